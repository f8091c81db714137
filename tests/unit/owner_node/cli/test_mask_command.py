"""`owner-node mask`, run as its user runs it, without a daemon."""

import io
import json
import subprocess
import sys
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path
from typing import IO

import pandas as pd
import pyarrow.parquet as pq
import pytest

from common.canonical import digest
from common.cli import console
from common.model.mechanisms import MECHANISMS, REQUESTABLE
from common.planning.names import join_names
from owner_node.cli import application
from tests.fakes.owner_folder import ATTRIBUTES, make_owner_folder, spends
from tests.fakes.owner_folder import ask_mask as ask
from tests.system.searching import forms, in_memory, on_disk
from tests.unit.common.planning.test_names import ODD

MASKING = """
import logging, sys
from common.cli import console
from owner_node.cli import application
from owner_node.masking import mask
from owner_node.masking.arrays import SystemBits

inverted = []

class Spied(SystemBits):
    def __init__(self):
        super().__init__()
        inverted.append(bytes(255 - each for each in self._key))

mask.SystemBits = Spied
logging.basicConfig(level=logging.DEBUG, stream=sys.stderr)
code = console.run(application(), "owner-node", sys.argv[1:])
print(code, *(each.hex() for each in inverted), flush=True)
sys.stdin.read()
"""
"""Masks in a process of its own, remembers the keys of the noise with every bit inverted, and waits."""
MANUAL = 'approval = "manual"\n'
COMMAND = ("mask", "--dataset", "patients", "--epsilon", "1")


@pytest.fixture
def folder(tmp_path, monkeypatch) -> Path:
    """An owner's folder, and the place of work."""
    monkeypatch.chdir(tmp_path)
    return make_owner_folder(tmp_path)


def test_a_masked_file_and_its_report(folder, capsys):
    """The file holds masked values of every record and nothing else; the report says what is promised."""
    code, document = ask(
        capsys, "--out", "masked.csv", "--k", "6", "--id", "first", "--mechanism", "idp-joint"
    )
    assert code == 0
    assert (document["id"], document["charged"], document["remaining"]) == (
        "first", "0.999999999996", "1.500000000004",
    )  # fmt: skip
    masked = pd.read_csv("masked.csv")
    assert list(masked.columns) == list(ATTRIBUTES)
    assert len(masked) == 60
    assert masked["age"].between(0, 120).all()
    assert masked["age"].nunique() <= 10
    assert set(masked["stage"]) <= {"mild", "moderate", "severe"}
    assert "secret" not in Path("masked.csv").read_text()
    report = json.loads(Path("masked.csv.report.json").read_text())
    assert report == document["report"]
    assert report["file"]["sha256"] == digest(Path("masked.csv").read_bytes())
    assert (report["epsilon"], report["epsilon_joint"], report["records"]) == (
        "1", "0.999999999996", "60",
    )  # fmt: skip
    assert [each["k"] for each in report["attributes"]] == ["6"] * 6
    assert {each["epsilon"] for each in report["attributes"]} == {"0.166666666666"}
    assert any("individual differential privacy" in line for line in report["promises"])
    assert any("exact number of records" in line for line in report["invariants"])
    # The ids of data and of arguments let whoever guesses the data confirm the guess.
    assert not {"data", "source", "plan_digest"} & set(report)
    assert [Path(name).stat().st_mode & 0o777 for name in ("masked.csv", "masked.csv.report.json")] == [
        0o600
    ] * 2
    assert spends(folder) == [("first", Decimal("0.999999999996"))]


@pytest.mark.parametrize("options", [("--yes",), ("--yes", "--json"), ()])
def test_a_worthless_result_is_refused_without_a_terminal(folder, capsys, options):
    """`--yes` does not answer whether a result is wanted that the mean would do for; nothing is spent."""
    options = [*options, "--mechanism", "idp-joint", "--k", "60"]
    code = console.run(application(), "owner-node", [*COMMAND, "--out", "masked.csv", *options])
    captured = capsys.readouterr()
    assert code == 2
    assert "the mean would do as well (age, income" in " ".join((captured.out + captured.err).split())
    assert "--anyway" in captured.out + captured.err
    assert spends(folder) == []
    assert not Path("masked.csv").exists()


@pytest.mark.parametrize(("answer", "code", "charged"), [("n", 4, 0), ("y", 0, 1)])
def test_at_a_terminal_it_is_asked_again(folder, capsys, monkeypatch, answer, code, charged):
    """`--yes` agrees to the charge alone: the question about a worthless result is asked all the same."""
    monkeypatch.setattr(console, "can_ask", lambda: True)
    monkeypatch.setattr("sys.stdin", io.StringIO(f"{answer}\n"))
    command = [*COMMAND, "--mechanism", "idp-joint", "--k", "60", "--out", "masked.csv", "--yes"]
    assert console.run(application(), "owner-node", command) == code
    assert "Continue anyway?" in capsys.readouterr().err
    assert len(spends(folder)) == charged


def _until(lines: IO[bytes], start: bytes) -> Iterator[bytes]:
    for line in lines:
        yield line
        if line.startswith(start):
            return


@pytest.mark.skipif(sys.platform != "linux", reason="memory of another process is read through /proc")
def test_keys_of_the_noise_are_nowhere(folder):
    """In no file, no log and nowhere in the memory that could be written to a swap, once masking is done."""
    asked = ("--out", "masked.csv", "--k", "6", "--yes", "--anyway")
    command = [sys.executable, "-c", MASKING, *COMMAND, *asked]
    with (folder / "log").open("wb") as log, subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log
    ) as masking:  # fmt: skip
        assert masking.stdout is not None
        # The command's own lines, then the exit code with the keys.
        *printed, line = _until(masking.stdout, b"0 ")
        inverted = [bytes.fromhex(each) for each in line.decode().split()[1:]]
        keys = [bytes(255 - each for each in key) for key in inverted]
        assert len(set(keys)) == len(ATTRIBUTES)
        every = [form for key in keys for form in forms(key)]
        assert in_memory(masking.pid, every) == set()
        # The same search finds what is there.
        assert in_memory(masking.pid, inverted) == set(inverted)
        (folder / "printed").write_bytes(b"".join(printed))
        assert on_disk(folder, every) == {}
        assert masking.stdin is not None
        masking.stdin.close()


def test_records_are_shuffled(folder, capsys):
    """A record's place in the file says nothing: the ages, which ascend in the source, do not."""
    ask(capsys, "--out", "masked.parquet", "--attributes", "age", "--k", "5", "--rank-noise", "0")
    ages = pq.read_table("masked.parquet").column("age").to_pylist()
    assert pd.Series(ages).corr(pd.Series(range(60))) < 0.6


def test_parquet_has_the_types_of_a_release(folder, capsys):
    """Doubles, dates, dictionaries and booleans; one file that pandas reads as it is."""
    assert ask(capsys, "--out", "masked.parquet")[0] == 0
    types = [str(field.type) for field in pq.read_schema("masked.parquet")]
    labels = "dictionary<values=string, indices=int32, ordered={}>"
    assert types == [
        "int64", "double", labels.format(0), labels.format(1), "date32[day]", "bool"
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        (("--mechanism", "ir"), 2),
        (("--mechanism", "exponential"), 2),
        (("--mechanism", "dp", "--k", "5"), 2),
        (("--k", "2"), 2),
        (("--k", "61"), 4),
        (("--epsilon", "0"), 2),
        (("--epsilon", "2.6"), 5),
        (("--attributes", "note"), 2),
        (("--attributes", "age,age"), 2),
        (("--weights", "age=1"), 2),
        (("--dataset", "nobody"), 2),
        (("--out", "a.xlsx"), 2),
        (("--out", "nowhere/a.csv"), 2),
        (("--out", "/proc/a.csv"), 2),
        (("--out", "a" * 201 + ".csv"), 2),
        (("--id", "../up"), 2),
        (("--mechanism", "idp-cbls", "--k", "3"), 5),
    ],
)
def test_what_cannot_be_done_costs_nothing(folder, capsys, arguments, code):
    """Every mistake ends in words and the exit code of its kind, with no file and no charge."""
    found, document = ask(capsys, "--out", "a.csv", *arguments)
    assert found == code, document
    assert document["error"]["hint"]
    assert spends(folder) == []
    assert not Path("a.csv").exists()


@pytest.mark.parametrize(
    ("policy", "arguments", "rule"),
    [
        ("min_k = 9", ("--k", "8"), "policy.min_k = 9"),
        ("max_epsilon_per_release = 0.5", (), "policy.max_epsilon_per_release = 0.5"),
        ('mechanisms = ["idp-joint"]', ("--mechanism", "dp"), "policy.mechanisms"),
        ('attributes = ["age"]', ("--attributes", "age,ward"), "policy.attributes does not list 'ward'"),
        ("valid_until = 2020-01-01", (), "policy.valid_until"),
        (f"{MANUAL}max_unchanged_share = 0.01", ("--attributes", "emergency"), "policy.max_unchanged_share"),
        (
            f"{MANUAL}max_zero_noise_share = 0",
            ("--attributes", "stage", "--mechanism", "idp-cbls", "--epsilon", "0.1"),
            "policy.max_zero_noise_share",
        ),
    ],
)
def test_the_policy_holds(tmp_path, monkeypatch, capsys, policy, arguments, rule):
    """What the policy refuses is refused with exit code 4, and the history says by which rule."""
    monkeypatch.chdir(tmp_path)
    make_owner_folder(tmp_path, policy=policy)
    code, document = ask(capsys, "--out", "a.csv", *arguments)
    assert code == 4
    assert rule in document["error"]["message"]
    assert console.run(application(), "owner-node", ["history", "--json"]) == 0
    (line,) = json.loads(capsys.readouterr().out)["history"]
    assert line["decision"] == "refuse"
    assert rule in line["rule"]
    assert spends(tmp_path) == []


def test_only_the_attributes_of_the_policy_unless_others_are_named(tmp_path, monkeypatch, capsys):
    """What may not take part is not even read."""
    monkeypatch.chdir(tmp_path)
    make_owner_folder(tmp_path, policy='attributes = ["age", "ward"]')
    assert ask(capsys, "--out", "a.csv")[0] == 0
    assert list(pd.read_csv("a.csv").columns) == ["age", "ward"]


def test_a_copy_of_the_data_has_no_budget_of_its_own(folder, capsys):
    """A data set of another name and budget over a copied file is known as what was charged before."""
    ask(capsys, "--out", "a.csv")
    text = Path("owner.toml").read_text()
    declared = text[text.index("[[dataset]]") :]
    copied = declared.replace('"patients', '"copied').replace('"people"', '"fresh"')
    Path("copied.csv").write_bytes(Path("patients.csv").read_bytes())
    Path("owner.toml").write_text(text + copied)
    code, document = ask(capsys, "--out", "b.csv", "--dataset", "copied")
    assert (code, "'people'" in document["error"]["message"]) == (4, True)
    assert len(spends(folder)) == 1


def test_per_centroid_accounting(tmp_path, monkeypatch, capsys):
    """The ledger takes the plain epsilon if the owner's policy counts as the papers do."""
    monkeypatch.chdir(tmp_path)
    make_owner_folder(tmp_path, policy='accounting = "per-centroid"')
    code, document = ask(capsys, "--out", "a.csv", "--mechanism", "idp-cbls", "--attributes", "age")
    assert (code, document["charged"]) == (0, "1")
    assert Decimal(document["report"]["epsilon_joint"]) > 10


def test_weights(folder, capsys):
    """Shares by weight, in the order of the attributes that were named."""
    arguments = ("--attributes", "income,age", "--weights", "age=3,income=1")
    report = ask(capsys, "--out", "a.csv", *arguments)[1]["report"]
    assert [(each["name"], each["epsilon"]) for each in report["attributes"]] == [
        ("income", "0.25"),
        ("age", "0.75"),
    ]


def test_bad_data(folder, capsys):
    """What is wrong with the source is told by column and count, before anything is charged."""
    text = Path("patients.csv").read_text()
    Path("patients.csv").write_text(text + "secret-x,999,1,medicine,mild,2020-01-01,true,x\n")
    code, document = ask(capsys, "--out", "a.csv")
    assert (code, document["error"]["code"]) == (2, "bad_data")
    assert spends(folder) == []


def test_it_asks_first(folder, capsys):
    """Without a terminal and without --yes nothing is charged, but everything is shown."""
    code = console.run(application(), "owner-node", [*COMMAND, "--out", "a.csv", "--anyway"])
    shown = capsys.readouterr()
    assert code == 2
    assert "--yes" in shown.err
    assert "What is promised" in shown.out
    assert "charge: 1 of the 2.5" in shown.out
    assert spends(folder) == []


@pytest.mark.parametrize("mechanism", REQUESTABLE)
def test_every_mechanism(tmp_path, monkeypatch, capsys, mechanism):
    """All mechanisms that a release may ask for, for all types of attributes, with their own promise."""
    monkeypatch.chdir(tmp_path)
    make_owner_folder(tmp_path, policy='accounting = "per-centroid"')
    code, document = ask(capsys, "--out", "a.parquet", "--mechanism", mechanism)
    assert code == 0, document
    assert {each["mechanism"] for each in document["report"]["attributes"]} == {mechanism}
    individual = any("ndividual differential privacy" in line for line in document["report"]["promises"])
    assert individual == MECHANISMS[mechanism].individual
    assert len(pq.read_table("a.parquet")) == 60


def test_taxonomies(tmp_path, monkeypatch, capsys):
    """Categories with a hierarchy are drawn from it, whatever mechanism the others get."""
    monkeypatch.chdir(tmp_path)
    make_owner_folder(tmp_path, policy='accounting = "per-centroid"')
    Path("wards.csv").write_text('medicine;inner;any\n"eye, ear";outer;any\n')
    text = Path("owner.toml").read_text()
    declared = 'categories = ["medicine", "eye, ear"]'
    drawn = f'{declared}\ntaxonomy = "wards.csv"\nmethod = "exponential"'
    Path("owner.toml").write_text(text.replace(declared, drawn))
    code, document = ask(capsys, "--out", "a.csv", "--attributes", "age,ward")
    assert code == 0, document
    assert [each["mechanism"] for each in document["report"]["attributes"]] == [
        "idp-quantiles",
        "exponential",
    ]
    assert set(pd.read_csv("a.csv")["ward"]) <= {"medicine", "eye, ear"}


def test_a_policy_that_names_attributes_of_other_data_sets(tmp_path, monkeypatch, capsys):
    """`policy.attributes` is one list for all data sets: what it names of others does not matter here."""
    monkeypatch.chdir(tmp_path)
    make_owner_folder(tmp_path, policy='attributes = ["age", "height"]')
    code, document = ask(capsys, "--out", "masked.csv")
    assert code == 0
    assert pd.read_csv("masked.csv").columns.tolist() == ["age"]
    (tmp_path / "owner.toml").write_text((tmp_path / "owner.toml").read_text().replace('"age", ', ""))
    code, document = ask(capsys, "--out", "none.csv")
    assert (code, "names no attribute of data set" in document["error"]["message"]) == (4, True)
    assert len(spends(tmp_path)) == 1


def test_columns_of_any_name(tmp_path, monkeypatch, capsys):
    """From init to a masked file, columns with commas, brackets and quotes are named in every option."""
    monkeypatch.chdir(tmp_path)
    values = pd.Series([*range(100, 200)] * 2)
    pd.DataFrame(dict.fromkeys(ODD, values)).to_csv("d.csv", index=False)
    identity = ("--id", "a", "--trust-domain", "e.org", "--aggregator", "c=localhost:1")
    init = ("init", "d.csv", "--total-epsilon", "9", *identity)
    assert console.run(application(), "owner-node", init) == 0
    written = Path("owner.toml").read_text(encoding="utf-8")
    Path("owner.toml").write_text(written.replace('"FILL IN"', "500").replace("min = 500", "min = 0"))
    parts = [join_names([name]) for name in ODD]
    code = console.run(
        application(),
        "owner-node",
        [
            *("mask", "--dataset", "d", "--epsilon", "4", "--yes", "--anyway", "--out", "masked.csv"),
            *("--attributes", ",".join(reversed(parts))),
            *("--weights", ",".join(f"{each}={place}" for place, each in enumerate(parts, 1))),
            *("--rank-noise", f"0.1,{parts[0]}=0.2,{parts[5]}=0.3"),
        ],
    )
    assert code == 0, capsys.readouterr()
    assert list(pd.read_csv("masked.csv")) == list(reversed(ODD))
