"""`owner-node explore`: a table, a document or a page; nothing is charged, noted or sent."""

import hashlib
import json
import re
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from decimal import Decimal
from pathlib import Path

import pytest

from common.cli import console
from owner_node import config
from owner_node.cli import application
from owner_node.config.editing import set_rank_noise
from owner_node.explore.assessment import ALL_MEASURES
from owner_node.risk.attacks import ATTACKS
from tests.fakes.owner_folder import ask_mask, make_owner_folder, spends

SETTING = ("--dataset", "patients", "--epsilon", "2", "--k", "5")
COMMAND = ("explore", *SETTING, "--repetitions", "2")
ONE = ("--rank-noise", "0.1")
"""A single setting instead of four."""


@pytest.fixture
def folder(tmp_path, monkeypatch) -> Path:
    """An owner's folder, in it."""
    monkeypatch.chdir(tmp_path)
    return make_owner_folder(tmp_path)


def ask(capsys, *arguments) -> tuple[int, str, str]:
    """Run the command; no identifier and no undeclared value is ever printed."""
    return run(capsys, *COMMAND, *arguments)


def search(capsys, most, *arguments) -> tuple[int, str, str]:
    """Search the rank noise for a stated risk."""
    return run(capsys, "explore", *SETTING, "--max-reidentified", most, *arguments)


def run(capsys, *arguments) -> tuple[int, str, str]:
    """Run a command as `ask` says."""
    code = console.run(application(), "owner-node", list(arguments))
    captured = capsys.readouterr()
    assert "secret" not in captured.out + captured.err
    return code, captured.out, captured.err


def digests(folder: Path) -> dict[str, str]:
    """The bytes of every file below a folder."""
    files = (path for path in sorted(folder.rglob("*")) if path.is_file())
    return {str(path): hashlib.sha256(path.read_bytes()).hexdigest() for path in files}


def test_nothing_is_charged_or_kept(folder, capsys):
    """An owner's state is the same to the byte after exploring, with a ledger and without a state folder."""
    assert ask(capsys, *ONE)[0] == 0
    assert not (folder / "state").exists()
    assert ask_mask(capsys, "--out", "masked.csv", "--id", "one")[0] == 0
    before = digests(folder)
    assert ask(capsys, *ONE, "--json")[0] == 0
    assert digests(folder) == before
    assert [each[0] for each in spends(folder)] == ["one"]


def test_table_and_advice(folder, capsys):
    """Every setting is a line, with and without rank noise; advice is in words, progress is apart."""
    code, out, err = ask(capsys)
    assert code == 0
    noises = [line.split()[3] for line in out.splitlines() if line.startswith("auto")]
    assert noises == ["0", "0.03", "0.1", "0.3"]
    assert "recommended" in out or "No setting here is worth releasing" in out
    assert "settings: 4 of 4" in err
    assert "settings:" not in out
    assert err.count("auto, ε = 2, k = 5, rank noise ") == err.count(": mean SSE ") >= 4


def test_what_was_done_before_ctrl_c_is_shown(folder, capsys, monkeypatch):
    """The settings that were assessed are in the table, the others are named; the exit code says it."""

    @contextmanager
    def interrupted(*_: object, **__: object) -> Iterator[Callable[[int, int], None]]:
        def progress(done: int, _of: int) -> None:
            if done:
                raise KeyboardInterrupt

        yield progress

    monkeypatch.setattr("owner_node.cli.explore.progress_bar", interrupted)
    code, out, _ = ask(capsys)
    assert code == 130
    shown = [line.split() for line in out.splitlines() if line.startswith("auto")]
    assert [line[4] == "–" for line in shown].count(False) == 1
    assert "not possible: the exploration was interrupted before it was tried" in out


def test_rank_noise_of_one_attribute(folder, capsys):
    """It is the same in every setting, and bounds follow from it; others have what is tried."""
    quick = (
        "--attacks",
        "none",
        "--measures",
        "none",
        "--mechanism",
        "idp-joint,dp",
        "--attributes",
        "age,income",
    )
    code, out, _ = ask(capsys, *quick, "--rank-noise", "0.1,0,age=0.5", "--json")
    assert code == 0
    document = json.loads(out)
    assert (document["rank_noises"], document["own_rank_noises"]) == (["0.1", "0"], {"age": "0.5"})
    first, second, third = document["cells"]
    assert first["epsilon_table"] == "26"
    assert second["epsilon_table"] is None
    assert (third["mechanism"], third["problem"]) == ("dp", None)
    code, out, _ = ask(capsys, *quick, "--rank-noise", "age=0.5")
    assert [line.split()[3] for line in out.splitlines() if line.startswith("idp-joint")] == [
        "0",
        "0.03",
        "0.1",
        "0.3",
    ]
    assert [line.split()[2:4] for line in out.splitlines() if line.startswith("dp ")] == [["–", "–"]]
    assert "rank noise in every setting: age 0.5" in out
    assert code == 0


def test_lines_that_errors_are_compared_with(folder, capsys):
    """Beside the mean SSE there is that of the means, and of the same clusters without noise."""
    code, out, _ = ask(
        capsys, "--attacks", "none", "--measures", "none", "--rank-noise", "0", "--mechanism", "idp-joint"
    )
    assert code == 0
    assert "if every value is replaced by its attribute's mean" in " ".join(out.split())
    assert "(plain individual ranking) have 0." in out


def test_document_and_files(folder, capsys):
    """--json prints the document alone; the same goes to a file, or a page, for this user alone."""
    asked = ("--class", "ward", "--known", "age,income")
    code, out, err = ask(capsys, *ONE, "--json", "--out", "found.json", *asked)
    assert (code, err) == (0, "")
    document = json.loads(out)
    assert document == json.loads((folder / "found.json").read_text())
    assert (document["records"], document["known"], document["class"]) == (60, ["age", "income"], "ward")
    assert (folder / "found.json").stat().st_mode & 0o077 == 0
    code, out, _ = ask(capsys, "--out", "found.html", "--attacks", "none", "--measures", "none")
    assert code == 0
    page = (folder / "found.html").read_text()
    assert page.startswith("<!DOCTYPE html>")
    assert "secret" not in page
    assert (folder / "found.html").stat().st_mode & 0o077 == 0


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (("--out", "found.pdf"), ".html, .json"),
        (("--out", "absent/found.html"), "there is no folder"),
        (("--out", "/proc/found.html"), "/proc is not writable"),
        (("--out", "folder.html"), "folder.html is a folder"),
        (("--repetitions", "0"), "1 to 1000"),
        (("--attacks", "linkage,tea"), "'tea'"),
        (("--known", "shoe"), "'shoe'"),
        (("--class", "income"), "cannot be a class"),
        (("--rank-noise", "2"), "rank noise"),
        (("--rank-noise", "shoe=0.1"), "not released: shoe"),
        (("--rank-noise", "0.1,age=0.1,age=0.2"), "twice"),
        (("--k", "5,5"), "twice"),
        (("--k", "5,05"), "k 5 is named twice"),
        (("--epsilon", "1,1.0"), "epsilon 1 is named twice"),
        (("--rank-noise", "0.1,0.10"), "rank noise 0.1 is named twice"),
        (("--mechanism", "ir"), "evaluation only"),
        (("--k", "5000,6000"), "--k auto or another --k"),
    ],
)
def test_arguments_that_cannot_be(folder, capsys, arguments, told):
    """What cannot be asked for is a usage error that says why."""
    (folder / "folder.html").mkdir()
    code, out, err = ask(capsys, *arguments)
    assert (code, out) == (2, "")
    assert told in err


def test_a_file_that_cannot_be_written(folder, capsys, monkeypatch):
    """A path that cannot be used is told before the work; a disk that fills up meanwhile loses no result."""
    quick = ("--attacks", "none", "--measures", "none")
    assert "loading" not in ask(capsys, *quick, "--out", "/proc/found.html")[2]

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("owner_node.cli.explore.write_atomic", full)
    code, out, err = ask(capsys, *quick, "--out", "found.html")
    assert (code, "found.html cannot be written: No space left on device" in err) == (2, True)
    assert "if every value is replaced by its attribute's mean" in " ".join(out.split())
    assert "written to" not in out


def test_rank_noise_for_a_stated_risk(folder, capsys):
    """It is found, and written into the file only if that is agreed to; then plans have it."""
    before = (folder / "owner.toml").read_text()
    asked = ("0.9", "--known", "age", "--attributes", "age,income")
    code, out, _ = search(capsys, *asked)
    assert code == 0
    assert "Rank noise 0.03: an intruder who knows age" in out
    assert "--yes writes it" in out
    assert (folder / "owner.toml").read_text() == before
    code, out, err = search(capsys, *asked, "--yes", "--json")
    document = json.loads(out)
    assert (code, document["rank_noise"], document["written"]) == (0, "0.03", True)
    assert (folder / "owner.toml").read_text() != before
    assert config.load(folder / "owner.toml").datasets[0].rank_noise == Decimal("0.03")
    for wrong, words in (("0", "above 0"), ("x", "above 0")):
        code, _, err = search(capsys, wrong)
        assert (code, words in err) == (2, True)
    code, _, err = search(capsys, "0.1", "--k", "5,6")
    assert (code, "one epsilon, k and mechanism" in err) == (2, True)
    code, _, err = search(capsys, "0.1", "--known", "shoe")
    assert (code, "'shoe'" in err) == (2, True)


def test_search_is_about_the_intruder_of_the_policy(folder, capsys):
    """The policy says who might hold which attributes; `--known` asks about another intruder."""
    path = folder / "owner.toml"
    asked = ("0.9", "--attributes", "age,income")
    assert "an intruder who knows age, income of everybody" in search(capsys, *asked)[1]
    path.write_text(path.read_text().replace("[policy]", '[policy]\nknown = ["age", "ward"]'))
    assert "an intruder who knows age of everybody" in search(capsys, *asked)[1]
    assert "an intruder who knows income of everybody" in search(capsys, *asked, "--known", "income")[1]


def test_search_refuses_what_it_does_not_use(folder, capsys):
    """A file that was asked for and not written would look like one that was; nothing is loaded."""
    sweep = ("--rank-noise", "0.1", "--repetitions", "2", "--class", "ward", "--measures", "none",
             "--attacks", "none", "--out", "found.html")  # fmt: skip
    for option, value in zip(sweep[::2], sweep[1::2], strict=True):
        code, out, err = search(capsys, "0.9", option, value)
        assert (code, out, f"--max-reidentified does not take {option}\n" in err) == (2, "", True)
        assert "loading" not in err


def test_search_says_which_rank_noise_it_replaces(folder, capsys):
    """It can be smaller than the one that the data set has, and protect less."""
    path = folder / "owner.toml"
    set_rank_noise(path, "patients", Decimal("0.4"))
    before = path.read_text()
    asked = ("0.9", "--known", "age", "--attributes", "age,income")
    code, out, _ = search(capsys, *asked)
    assert (code, 'rank_noise = "0.03" (instead of 0.4)' in " ".join(out.split())) == (0, True)
    assert path.read_text() == before
    code, _, err = search(capsys, *asked, "--yes")
    assert (code, "(instead of 0.4)" in " ".join(err.split())) == (0, True)
    assert config.load(path).datasets[0].rank_noise == Decimal("0.03")


def test_attributes_that_determine_others_are_named(folder, capsys):
    """A note for the owner: whether it is public knowledge, a person decides."""
    path = folder / "patients.csv"
    head, *lines = path.read_text().splitlines()
    of_ward = {True: "mild", False: "severe"}
    changed = (re.sub("mild|moderate|severe", of_ward["medicine" in line], line) for line in lines)
    path.write_text("\n".join([head, *changed, ""]))
    code, out, err = run(capsys, "explore", *SETTING[:4], "--product", "synthetic", "--repetitions", "1")
    assert code == 0
    assert "each value of ward has one value of stage" in " ".join(err.split())
    assert 'declare follows = "ward" for stage' in " ".join(err.split())
    assert "follows =" not in out


def test_without_scikit_learn(folder, capsys, monkeypatch):
    """The default leaves out what needs it and says so; asked for, it is an error before data are loaded."""
    monkeypatch.setattr("owner_node.explore.models.find_spec", lambda _name: None)
    code, out, err = ask(capsys, *ONE, "--json")
    assert code == 0
    assert "without the measures pmse and f-measure" in err
    assert "tessera-release[explore]" in err
    (first, *_) = json.loads(out)["cells"]
    assert (first["pmse"], first["f_measure"]) == (None, None)
    assert first["divergence"] is not None
    for asked in (("--measures", "pmse"), ("--class", "ward")):
        code, _, err = ask(capsys, *asked)
        assert code == 2
        assert "tessera-release[explore]" in err
        assert "loading" not in err
    code, _, err = ask(capsys, *ONE, "--measures", "divergence")
    assert (code, "scikit-learn" in err) == (0, False)


def test_daemons_do_not_import_it():
    """Neither the command line nor the daemon of an owner loads anything of exploring when it starts."""
    import subprocess

    program = (
        "import sys, owner_node.cli, owner_node.daemon; owner_node.cli.application(); "
        "print([name for name in sys.modules if name.startswith(('sklearn', 'owner_node.explore', 'numpy'))])"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_help_names_every_measure_and_attack(capsys):
    """Anyone who may name them finds them in the help text, which loads none of their code."""
    assert console.run(application(), "owner-node", ["explore", "--help"]) == 0
    words = re.findall(r"[\w-]+", re.sub(r"-\n\s+", "-", capsys.readouterr().out))
    assert set(ALL_MEASURES) | set(ATTACKS) <= set(words)
