"""The site of the documentation: built without a warning, with nothing from elsewhere, complete and true."""

import json
import re
import runpy
import subprocess
import sys
import tomllib
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pytest
from pydantic import TypeAdapter, ValidationError

import aggregator.cli
import aggregator.config
import owner_node.cli
import owner_node.config
from aggregator.control.facts_file import FactsFile
from tests.fakes.published import make_release
from tests.unit.test_command_line_docs import commands

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
COMMANDS = commands(aggregator.cli.application(), "aggregator") | commands(
    owner_node.cli.application(), "owner-node"
)
_CODE = re.compile(
    r"^```(?:sh)?\n.*?^```$|(?<=\n\n) {4,}.*?(?=\n\n|\n\S|\Z)|`[^`\n]+`", re.MULTILINE | re.DOTALL
)
_TYPED = re.compile(r"(?m)^[\s`$]*((?:aggregator|owner-node) [a-z-]+(?: .*?)?)`?$")
_LOADED = re.compile(r'<(?:script|link|img|iframe)[^>]+(?:src|href)="([a-z]+:)?//[^"]*"')


@pytest.fixture(scope="module")
def site(tmp_path_factory) -> Path:
    """The site, as `make docs` builds it: a broken link or heading is an error."""
    folder = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "mkdocs", "build", "--quiet", "--site-dir", str(folder)]
    environment = {"PYTHONPATH": ".", "NO_MKDOCS_2_WARNING": "1", "PATH": "/usr/bin:/bin"}
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True)
    assert (done.returncode, done.stdout + done.stderr) == (0, "")
    return folder


def test_nothing_is_loaded_from_elsewhere(site):
    """Fonts, scripts and pictures are in the site; it can be read without a network."""
    pages = list(site.rglob("*.html"))
    assert len(pages) > 25
    assert [
        (page.name, _LOADED.search(page.read_text())) for page in pages if _LOADED.search(page.read_text())
    ] == []


def test_every_page_is_in_the_site(site):
    """Each page of docs/ is built, and reachable from every other one."""
    start = (site / "index.html").read_text()
    for page in (ROOT / "docs").glob("*.md"):
        assert (site / f"{page.stem}.html").exists()
        assert f"{page.stem}.html" in start or page.stem == "index"


@pytest.mark.parametrize(
    ("name", "application"),
    [("owner-node", owner_node.cli.application), ("aggregator", aggregator.cli.application)],
)
def test_every_command_and_key_is_there(site, name, application):
    """The reference has all commands, and every key of the sample that explains all of them."""
    text = (site / "reference" / f"{name}.html").read_text()
    for command in application().commands:
        assert f"{name} {command}" in text
    file = "owner" if name == "owner-node" else "aggregator"
    keys = (site / "reference" / f"{file}-toml.html").read_text()
    sample = (ROOT / "deploy" / "samples" / f"{file}.full.toml").read_text()
    for key in set(re.findall(r"^(?:# )?([a-z_]+) = ", sample, re.MULTILINE)):
        assert f"<code>{key}</code>" in keys or key in keys, key


def test_every_link_leads_somewhere(site):
    """Links to pages, headings, pictures and files of the checkout, on generated pages too."""
    pages = {path: path.read_text() for path in site.rglob("*.html") if path.name != "404.html"}
    headings = {path: {*re.findall(r'id="([^"]+)"', text), "", "__skip"} for path, text in pages.items()}
    for page, text in pages.items():
        for link in map(urlsplit, re.findall(r'(?:href|src)="([^"]+)"', text)):
            if not link.scheme:
                target = (page.parent / unquote(link.path)).resolve() if link.path else page
                assert target.exists(), (page.name, link.geturl())
                assert unquote(link.fragment) in headings.get(target, {""}), (page.name, link.geturl())


def test_every_key_of_a_manifest_is_described(tmp_path):
    """The page names the keys that there are, and no other."""
    described = runpy.run_path(str(ROOT / "docs" / "site" / "pages.py"))["MANIFEST"]
    manifest = json.loads((make_release(tmp_path).folder / "manifest.json").read_bytes())
    of_synthetic = {"product", "synthesis", "rounds"}
    assert sorted(described) == sorted({*manifest, *of_synthetic})
    assert not of_synthetic & set(manifest)


def test_every_key_of_a_signed_document_is_described(tmp_path):
    """The tables of plan, addendum and statements have the keys that a real manifest has."""
    text = runpy.run_path(str(ROOT / "docs" / "site" / "pages.py"))["generated"]()["reference/manifest.md"]
    described = {
        title: set(re.findall(r"^\| `(\w+)` \|", section, re.MULTILINE))
        for title, section in re.findall(r"^## (\w+)\n(.*?)(?=^## |\Z)", text, re.MULTILINE | re.DOTALL)
    }
    manifest = json.loads((make_release(tmp_path).folder / "manifest.json").read_bytes())
    plan, owners = manifest["plan"]["document"], manifest["owners"]
    documents = {
        "Plan": [plan],
        "Linking": [plan["linking"]],
        "IdentifierRules": [plan["identifier"]],
        "Attribute": plan["attributes"],
        "Task": plan["tasks"],
        "PlannedAttribute": [each for task in plan["tasks"] for each in task["attributes"]],
        "Addendum": [manifest["addendum"]["document"]],
        "Consent": [each["consent"]["document"] for each in owners],
        "FragmentStatement": [each["fragment"]["document"] for each in owners],
    }
    for title, found in documents.items():
        keys = {key for document in found for key in document or ()}
        assert keys <= described[title], title
    assert "lower" not in described["Attribute"]


def test_every_key_has_a_meaning():
    """No cell of these tables is empty, or says what only the code calls so."""
    pages = runpy.run_path(str(ROOT / "docs" / "site" / "pages.py"))["generated"]()
    for name in ("manifest", "owner-toml", "aggregator-toml", "exit-codes"):
        lines = [line for line in pages[f"reference/{name}.md"].splitlines() if line.startswith("| ")]
        assert lines
        assert [line for line in lines if line.endswith("|  |") or "None" in line] == []


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_blocks_of_configuration_are_read(page, tmp_path):
    """A block of toml is a part of owner.toml, aggregator.toml or a file of facts; one of json is JSON."""
    text = page.read_text(encoding="utf-8")
    for block in re.findall(r"^ *```toml\n(.*?)^ *```$", text, re.MULTILINE | re.DOTALL):
        forms = (owner_node.config._File, aggregator.config._File, FactsFile)
        faults = [_faults(form, block, tmp_path) for form in forms]
        assert [] in faults, block
    for block in re.findall(r"^ *```json\n(.*?)^ *```$", text, re.MULTILINE | re.DOTALL):
        json.loads(block)


def _faults(form: type, block: str, folder: Path) -> list:
    """What is wrong with a part of a file, but for what it leaves out."""
    document = tomllib.loads(block)
    if isinstance(document.get("dataset"), dict):
        document["dataset"] = [document["dataset"]]
    try:
        TypeAdapter(form).validate_python(document, context={"folder": folder})
    except ValidationError as error:
        return [each for each in error.errors() if each["type"] != "missing"]
    return []


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_commands_are_typed_as_they_are(page):
    """Every command in a block or between backquotes exists, with its options."""
    code = "\n".join(_CODE.findall(page.read_text(encoding="utf-8"))).replace("\\\n", " ")
    for line in _TYPED.findall(code):
        words = re.split(r"\s+(?:[|;&#>]|&&|2>)", line)[0].replace("'", "").replace('"', "").split()
        name = next((key for n in (3, 2) if (key := " ".join(words[:n])) in COMMANDS), None)
        group = any(key.startswith(f"{' '.join(words[:2])} ") for key in COMMANDS)
        assert name or (group and words[2:3] in ([], ["KIND"])), line
        options = {word.partition("=")[0].rstrip("],") for word in words if re.match("--[a-z]", word)}
        assert not name or options <= COMMANDS[name] | {"--help"}, line


def test_notebooks_can_be_opened(site):
    """Each notebook is in the site as a file for Jupyter: the cells of the page, without what they showed."""
    pages = list((ROOT / "docs" / "notebooks").glob("*.md"))
    assert pages
    for page in pages:
        made = json.loads((site / "notebooks" / f"{page.stem}.ipynb").read_text())
        cells = [each["source"] + "\n" for each in made["cells"] if each["cell_type"] == "code"]
        assert cells == re.findall(r"^```python\n(.*?)^```$", page.read_text(), re.MULTILINE | re.DOTALL)
        assert not any("```text" in each["source"] for each in made["cells"])
