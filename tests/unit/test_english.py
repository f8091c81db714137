"""Plain English wherever a person reads: the rules of docs/site/styles, which Vale can read, too.

What they object to is an error in changed lines, and a warning elsewhere: old prose is judged by people.
"""

import ast
import re
import runpy
import subprocess
import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import chain, pairwise
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).parents[2]
_STYLE = sorted((ROOT / "docs/site/styles/Tessera").glob("*.yml"))
_RULES = [yaml.safe_load(file.read_text()) | {"name": file.stem} for file in _STYLE]
_NAMES = yaml.safe_load((ROOT / "docs/site/styles/names.yml").read_text())
_BLANKED = (
    (re.compile(r"(?ms)^(```|~~~).*?^\1$|<!--.*?-->|(?<=\n\n) {4}.*?(?=\n\n|\n\S|\Z)"), " "),  # code
    (re.compile(r"`+[^`]+`+"), "x"),
    (re.compile(r"</d[dt]>"), "|"),  # what stands in a list of facts is no sentence
    (re.compile(r"(?s)\{[%{#].*?[%}#]\}|<[^<>]*>|(?<=\])\([^)]*\)"), " "),  # markup
)
_WRAPPED = re.compile(r"(?<!\n)\n(?!\s*(?:\n|[-*|#>]|\d+\.))")
_ENDS = re.compile(r"(?<=[.!?:;])\W*\s|\n\s*(?:\n|[-*|#>]|\d+\.)|\|")
_PLACES = ("aggregator", "common", "owner_node", "tessera")
pytestmark = pytest.mark.filterwarnings("default")


@dataclass(frozen=True)
class _Text:
    """What people read: a page, a template, a string, a docstring or a comment."""

    file: str
    lines: range
    """Lines of the file; for a page each place of the text has its own."""
    text: str

    def line(self, place: int) -> int:
        """Return the line of a place of the text; of a string, whose lines may be joined, its first line."""
        is_whole = len(self.lines) > self.text.count("\n")
        return self.lines.start + (self.text.count("\n", 0, place) if is_whole else 0)


def _texts() -> Iterator[_Text]:
    """Yield pages, help texts, templates, samples, and all that is written in modules."""
    pages = (ROOT / "README.md", ROOT / "CHANGELOG.md", *sorted((ROOT / "docs").rglob("*.md")))
    templates = chain(*((ROOT / place).rglob("*.html") for place in _PLACES))
    for file in chain(pages, templates):
        yield _whole(str(file.relative_to(ROOT)), file.read_text(encoding="utf-8"))
    for name, text in runpy.run_path(str(ROOT / "docs/site/pages.py"))["generated"]().items():
        yield _whole(name, text)
    for file in sorted((ROOT / "deploy" / "samples").glob("*.toml")):
        yield _whole(str(file.relative_to(ROOT)), file.read_text(encoding="utf-8").replace("\n# ", "\n  "))
    for file in chain(*((ROOT / place).rglob("*.py") for place in _PLACES)):
        if file.parent.name != "v1":
            yield from _written(file)


def _whole(name: str, text: str) -> _Text:
    return _Text(name, range(1, text.count("\n") + 2), text)


def _written(file: Path) -> Iterator[_Text]:
    """Yield strings (values in them are x), docstrings and comments of a module; no SQL."""
    name, source = str(file.relative_to(ROOT)), file.read_text(encoding="utf-8")
    for node, text in _strings(ast.parse(source)):
        if not text.startswith("CREATE "):
            yield _Text(name, range(node.lineno, (node.end_lineno or node.lineno) + 1), text)
    for found in re.finditer(r"(?m)(?:^ *# .*\n)+", source):
        line = source.count("\n", 0, found.start()) + 1
        text = re.sub(r"(?m)^ *# ", "", found[0])
        yield _Text(name, range(line, line + text.count("\n")), text)


def _strings(tree: ast.AST) -> Iterator[tuple[ast.expr, str]]:
    """Yield the strings below a node, each with its text."""
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.JoinedStr):
            parts = (each.value if isinstance(each, ast.Constant) else "x" for each in node.values)
            yield node, "".join(map(str, parts))
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield node, node.value
        else:
            yield from _strings(node)


def _git(*arguments: str) -> str:
    done = subprocess.run(["git", *arguments], cwd=ROOT, capture_output=True, text=True, check=False)
    if done.returncode:
        pytest.skip(f"no history: {done.stderr.strip()}")
    return done.stdout


@pytest.fixture(scope="module")
def changed_lines() -> dict[str, set[int]]:
    """Lines by file that differ from where the branch left main, or from main twenty commits ago."""
    base = _git("rev-list", "--max-count=20", "HEAD").split()[-1]
    with_main = subprocess.run(
        ["git", "merge-base", "HEAD", "origin/main"], cwd=ROOT, capture_output=True, text=True, check=False
    ).stdout.strip()
    if with_main and with_main != _git("rev-parse", "HEAD").strip():
        base = with_main
    lines: dict[str, set[int]] = {}
    name = ""
    for line in _git("diff", "--unified=0", "--no-color", base, "--", ".").splitlines():
        if line.startswith("+++ "):
            name = line.removeprefix("+++ b/")
        elif found := re.match(r"@@ \S+ \+(\d+)(?:,(\d+))? @@", line):
            start, count = int(found[1]), int(found[2] or 1)
            lines.setdefault(name, set()).update(range(start, start + count))
    return lines


def _prose(text: str) -> str:
    """Blank out code and markup, so that places stay, and join the lines of a paragraph."""
    for pattern, character in _BLANKED:
        text = pattern.sub(lambda found, by=character: re.sub(r"[^\n]", by, found[0]), text)  # type: ignore[misc]
    return _WRAPPED.sub(" ", text)


def _problems(rule: dict, text: str) -> Iterator[tuple[int, str]]:
    """Yield place and message of everything that a rule objects to: the part of Vale's rules used here."""
    flags = re.IGNORECASE if rule.get("ignorecase") else 0
    if rule["extends"] == "occurrence":
        for start, end in pairwise([0, *(each.end() for each in _ENDS.finditer(text)), len(text)]):
            if len(re.findall(rule["token"], text[start:end])) > rule["max"]:
                yield start, f"{rule['message']} ({text[start : start + 40]} …)"
    elif rule["extends"] == "substitution":
        for pattern, better in rule["swap"].items():
            for found in re.finditer(rf"\b(?:{pattern})\b", text, flags):
                yield found.start(), rule["message"].replace("%s", better, 1).replace("%s", found[0], 1)
    else:
        for found in chain(*(re.finditer(rf"\b(?:{each})\b", text, flags) for each in rule["tokens"])):
            yield found.start(), rule["message"].replace("%s", found[0])


def _report(found: list[tuple[str, range, str]], changed: dict[str, set[int]]) -> None:
    """Fail for what stands in changed lines, and warn of the rest."""
    fresh = {each for each in found if changed.get(each[0], set()).intersection(each[1])}
    if rest := [f"{file}:{lines.start}: {message}" for file, lines, message in set(found) - fresh]:
        warnings.warn("\n".join(sorted(rest)), stacklevel=2)
    assert not fresh, "\n".join(sorted(f"{file}:{lines.start}: {message}" for file, lines, message in fresh))


def test_nothing_is_hard_to_read(changed_lines):
    """No word, idiom or length of a sentence that the style forbids: an error in changed lines."""
    texts = list(_texts())
    assert len({each.file for each in texts}) > 60
    found = []
    for each in texts:
        prose = _prose(each.text)
        for rule in _RULES:
            if f"<!-- vale Tessera.{rule['name']} = NO -->" not in each.text:
                for place, message in _problems(rule, prose):
                    line = each.line(place)
                    is_page = not each.file.endswith(".py")
                    found.append((each.file, range(line, line + 1) if is_page else each.lines, message))
    _report(found, changed_lines)


def test_docstrings_say_what_is_returned(changed_lines):
    """No docstring begins with What, Which, Whether or Of: it says what the name does not."""
    found = []
    for file in chain(*((ROOT / place).rglob("*.py") for place in _PLACES)):
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
                text = str(node.value.value)
                if first := re.match(r"(?:What|Which|Whether|Of)\b", text):
                    lines = range(node.lineno, (node.end_lineno or node.lineno) + 1)
                    found.append((str(file.relative_to(ROOT)), lines, f"docstring begins with {first[0]}"))
    _report(found, changed_lines)


def test_names_are_nouns_of_the_field(changed_lines):
    """Nothing new is called by a word of our own where the field has one: docs/site/styles/names.yml."""
    found = []
    for file in chain(*((ROOT / place).rglob("*.py") for place in _PLACES)):
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            match node:
                case ast.ClassDef(name=name) | ast.FunctionDef(name=name) | ast.arg(arg=name):
                    pass
                case ast.Name(id=name, ctx=ast.Store()):
                    pass
                case _:
                    continue
            if better := _NAMES.get(name.strip("_")):
                lines = range(node.lineno, node.lineno + 1)
                found.append((str(file.relative_to(ROOT)), lines, f"call {name} {better}"))
    _report(found, changed_lines)


@pytest.mark.parametrize("rule", _RULES, ids=lambda rule: rule["name"])
def test_every_rule_finds_something(rule):
    """An example of what not to write is found, also across lines; code and plain sentences are not."""
    bad = "The raw data went. Of a refusal it\nis told, but who holds it knows. A text is no count."
    assert list(_problems(rule, _prose(f"{bad} A{' word' * 60}.")))
    assert not list(_problems(rule, _prose("Anyone who holds the key can read `raw data`.")))


@pytest.mark.parametrize("page", ["guarantee.md", "for-data-protection-officers.md"])
def test_promises_have_short_sentences(page):
    """Fifteen words on average, tables aside, where every word counts."""
    text = re.sub(r"\|.*", "", _prose((ROOT / "docs" / page).read_text(encoding="utf-8")))
    lengths = [len(words) for each in _ENDS.split(text) if len(words := re.findall(r"[\w'-]+", each)) > 2]
    average = sum(lengths) / len(lengths)
    if average > 15:
        warnings.warn(f"{page}: sentences have {average:.1f} words on average", stacklevel=1)
