"""Plain English wherever a person reads: the rules of docs/site/styles, which Vale can read, too.

What they object to is shown as a warning: prose is judged by people.
"""

import ast
import re
import runpy
import warnings
from collections.abc import Iterator
from itertools import chain, pairwise
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).parents[2]
_STYLE = sorted((ROOT / "docs/site/styles/Tessera").glob("*.yml"))
_RULES = [yaml.safe_load(file.read_text()) | {"name": file.stem} for file in _STYLE]
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


def _texts() -> Iterator[tuple[str, str]]:
    """Yield what people read: pages, help texts, sentences and errors of the programs, templates, samples."""
    for page in (ROOT / "README.md", ROOT / "CHANGELOG.md", *sorted((ROOT / "docs").rglob("*.md"))):
        yield page.name, page.read_text(encoding="utf-8")
    yield from runpy.run_path(str(ROOT / "docs/site/pages.py"))["generated"]().items()
    for file in sorted((ROOT / "deploy" / "samples").glob("*.toml")):
        yield file.name, file.read_text(encoding="utf-8").replace("\n# ", "\n  ")
    for file in chain(*((ROOT / place).rglob("*.*") for place in _PLACES)):
        if file.suffix in (".html", ".py") and file.parent.name != "v1":
            found = [file.read_text(encoding="utf-8")] if file.suffix == ".html" else _strings(file)
            yield str(file.relative_to(ROOT)), "\n\n".join(found)


def _strings(file: Path) -> Iterator[str]:
    """Yield the texts of a module that are neither docstrings nor SQL."""
    nodes = list(ast.walk(ast.parse(file.read_text(encoding="utf-8"))))
    docstrings = {id(each.value) for each in nodes if isinstance(each, ast.Expr)}
    for each in nodes:
        if isinstance(each, ast.Constant) and isinstance(each.value, str) and id(each) not in docstrings:
            yield "" if each.value.startswith("CREATE ") else each.value


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


def test_nothing_is_hard_to_read():
    """No word, idiom or length of a sentence that the style forbids."""
    texts = dict(_texts())
    assert len(texts) > 60
    found = [
        f"{name}:{text.count(chr(10), 0, place) + 1}: {message}"
        for name, text in texts.items()
        for rule in _RULES
        if f"<!-- vale Tessera.{rule['name']} = NO -->" not in text
        for place, message in _problems(rule, _prose(text))
    ]
    if found:
        warnings.warn("\n".join(found), stacklevel=1)


@pytest.mark.parametrize("rule", _RULES, ids=lambda rule: rule["name"])
def test_every_rule_finds_something(rule):
    """An example of what not to write is found, also across lines; code and plain sentences are not."""
    bad = "The raw data went. Of a refusal it\nis told, but who holds it knows."
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
