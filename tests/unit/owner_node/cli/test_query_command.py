"""`owner-node query`, run as its user runs it, without a daemon."""

import json
from decimal import Decimal
from pathlib import Path

import pytest

from common.cli import console
from owner_node.cli import application
from tests.fakes.owner_folder import make_owner_folder, spends, write_patients


@pytest.fixture
def folder(tmp_path, monkeypatch) -> Path:
    """An owner's folder, and the place of work."""
    monkeypatch.chdir(tmp_path)
    return make_owner_folder(tmp_path)


def ask(capsys, question: str, attribute: str, *arguments: str, epsilon: str = "0.5") -> tuple[int, dict]:
    """Run a query with --yes and --json; nothing it prints holds an identifier."""
    code = console.run(
        application(),
        "owner-node",
        ["query", question, "--dataset", "patients", "--attribute", attribute, "--epsilon", epsilon,
         *arguments, "--yes", "--json"],
    )  # fmt: skip
    captured = capsys.readouterr()
    assert "secret" not in captured.out + captured.err
    return code, json.loads(captured.out)


@pytest.mark.parametrize("question", ["median", "maximum", "second-maximum"])
@pytest.mark.parametrize("attribute", ["age", "income", "admitted", "stage"])
def test_statistics(folder, capsys, question, attribute):
    """Every attribute with an order has them; the answer is a value of its domain, at its price."""
    code, document = ask(capsys, question, attribute)
    assert code == 0
    assert (document["charged"], document["remaining"]) == ("0.5", "2")
    if attribute == "stage":
        assert document["answer"] in ("mild", "moderate", "severe")
    elif attribute == "admitted":
        assert "2015-01-01" <= document["answer"] <= "2026-12-31"
    else:
        assert Decimal(-10) <= Decimal(document["answer"]) <= 9000
    assert [charge for _, charge in spends(folder)] == [Decimal("0.5")]


def test_answers_are_near_the_truth_when_they_cost_much(folder, capsys):
    """Ages are 0 to 59: with much epsilon the noise is small, so the right thing was counted."""
    assert abs(int(ask(capsys, "count", "age", "--at-least", "15", epsilon="1")[1]["answer"]) - 45) < 12
    assert abs(int(ask(capsys, "median", "age", epsilon="1")[1]["answer"]) - 30) < 12


def test_counts_and_histograms(folder, capsys):
    """A count of a range, and counts of all ranges for one epsilon."""
    code, document = ask(capsys, "count", "ward", "--equals", "eye, ear")
    assert (code, document["range"]) == (0, {"equals": "eye, ear"})
    assert 0 <= int(document["answer"]) <= 60
    code, document = ask(capsys, "histogram", "age", "--bins", "20,40")
    assert code == 0
    assert [(each["first"], each["last"]) for each in document["answer"]] == [
        ("0", "19"), ("20", "39"), ("40", "120"),
    ]  # fmt: skip
    assert [charge for _, charge in spends(folder)] == [Decimal("0.5")] * 2


def test_the_scale_of_the_noise_is_not_told(folder, capsys):
    """The local sensitivity of a statistic is not protected by any epsilon, so nothing printed holds it."""
    document = ask(capsys, "median", "age")[1]
    assert set(document) == {
        "id", "question", "attribute", "epsilon", "charged", "budget", "remaining", "promises", "answer",
        "range", "error_95", "left_out",
    }  # fmt: skip
    assert document["error_95"] is None
    console.run(application(), "owner-node", ["history", "--json"])
    details = [line["details"] for line in json.loads(capsys.readouterr().out)["history"]]
    assert "scale" not in json.dumps(details)
    assert "sensitivity" not in json.dumps(details)


def test_answers_have_error_bars(folder, capsys):
    """Noise that is the same for all data is stated: scale times ln 20, of a mean divided by n;
    that of a quantile is not.
    """
    for kind, expected in (("sum", "719"), ("mean", "12"), ("count", "6"), ("histogram", "12")):
        more = {"count": ("--below", "50"), "histogram": ("--bins", "50")}.get(kind, ())
        code, document = ask(capsys, kind, "age", *more)
        assert (code, document["error_95"]) == (0, expected), kind
    code, document = ask(capsys, "quantile", "age", "--share", "0.9")
    assert (code, document["error_95"]) == (0, None)
    assert 0 <= int(document["answer"]) <= 120
    assert ask(capsys, "quantile", "age", "--share", "1.5")[0] == 2
    assert ask(capsys, "mean", "stage")[0] == 2


def test_answers_about_a_coarser_grid(folder, capsys):
    """Sums, means and statistics are of values, not of steps; what is between two steps is no threshold."""
    place = folder / "owner.toml"
    place.write_text(place.read_text().replace("max = 120", "max = 120\nstep = 5"))
    code, document = ask(capsys, "sum", "age", epsilon="1")
    assert (code, document["error_95"], int(document["answer"]) % 5) == (0, "359", 0)
    code, document = ask(capsys, "mean", "age", epsilon="1")
    assert (code, document["error_95"]) == (0, "5.99")
    assert abs(Decimal(document["answer"]) - 30) < 20
    code, document = ask(capsys, "count", "age", "--at-least", "17")
    assert code == 2
    assert "0 to 120, in steps of 5" in document["error"]["hint"]
    assert int(ask(capsys, "median", "age")[1]["answer"]) % 5 == 0


def test_a_mean_keeps_the_places_that_were_paid_for(folder, capsys):
    """Its last place is small beside the noise; else 95 % of answers would not lie where they are said to."""
    (folder / "owner.toml").write_text((folder / "owner.toml").read_text().replace("max = 120", "max = 1"))
    records = "".join(f"secret-{n},{n % 2},1,medicine,mild,2020-01-01,true,x\n" for n in range(4000))
    (folder / "patients.csv").write_text(f"id,age,income,ward,stage,admitted,emergency,note\n{records}")
    code, document = ask(capsys, "mean", "age", epsilon="2")
    assert code == 0
    places = -int(Decimal(document["answer"]).as_tuple().exponent)
    assert Decimal(1).scaleb(-places) * 20 < Decimal(document["error_95"]) < Decimal("0.001")


def test_a_histogram_says_what_holds_for_each_count(folder, capsys):
    """All counts together are further away; counts are whole numbers. One label has no histogram."""
    command = [
        "query",
        "histogram",
        "--dataset",
        "patients",
        "--attribute",
        "ward",
        "--epsilon",
        "1",
        "--yes",
    ]
    assert console.run(application(), "owner-node", command) == 0
    assert "95 % of the time each count is within 6 of the exact one" in capsys.readouterr().out
    written = (folder / "owner.toml").read_text()
    (folder / "owner.toml").write_text(written.replace('["medicine", "eye, ear"]', '["medicine"]'))
    code, document = ask(capsys, "histogram", "ward")
    assert (code, document["error"]["message"]) == (2, "attribute 'ward' has no histogram: it has one label")


def test_the_ledger_says_what_was_asked(folder, capsys):
    """A person who reads the ledger sees a question as a question, not as the plan of a release."""
    assert ask(capsys, "median", "age")[0] == 0
    assert console.run(application(), "owner-node", ["ledger"]) == 0
    assert "query median" in capsys.readouterr().out


def test_the_same_id_gives_the_same_answer_uncharged(folder, capsys):
    """However often it is asked; a question without an id is drawn and charged anew."""
    first = ask(capsys, "histogram", "stage", "--id", "once")[1]
    for _ in range(3):
        code, again = ask(capsys, "histogram", "stage", "--id", "once")
        assert (code, again["charged"], again["answer"]) == (0, 0, first["answer"])
    assert len(spends(folder)) == 1
    ask(capsys, "histogram", "stage")
    assert len(spends(folder)) == 2


@pytest.mark.parametrize(
    ("question", "attribute", "arguments"),
    [
        ("maximum", "age", ()),
        ("median", "income", ()),
        ("count", "age", ("--below", "9")),
    ],
)
def test_the_same_id_for_another_question(folder, capsys, question, attribute, arguments):
    """A conflict, uncharged; so is the same question about other data."""
    ask(capsys, "median", "age", "--id", "once")
    assert ask(capsys, question, attribute, *arguments, "--id", "once")[0] == 3
    write_patients(folder, 61)
    assert ask(capsys, "median", "age", "--id", "once")[0] == 3
    assert len(spends(folder)) == 1


@pytest.mark.parametrize(
    ("question", "attribute", "arguments", "code"),
    [
        ("median", "ward", (), 2),
        ("median", "note", (), 2),
        ("count", "age", (), 2),
        ("count", "age", ("--at-least", "x"), 2),
        ("count", "age", ("--at-least", "0"), 2),
        ("histogram", "income", (), 2),
        ("histogram", "income", ("--bins", "3,2"), 2),
        ("median", "age", ("--epsilon", "-1"), 2),
        ("median", "age", ("--epsilon", "2.51"), 5),
        ("median", "age", ("--id", "A B"), 2),
        ("median", "age", ("--dataset", "other"), 2),
    ],
)
def test_what_cannot_be_asked_costs_nothing(folder, capsys, question, attribute, arguments, code):
    """Every mistake ends in words and its exit code."""
    found, document = ask(capsys, question, attribute, *arguments)
    assert found == code
    assert document["error"]["hint"]
    assert spends(folder) == []


@pytest.mark.parametrize(
    ("policy", "question", "rule"),
    [
        ('mechanisms = ["dp"]', "median", "policy.mechanisms does not list 'idp'"),
        ('mechanisms = ["idp-joint", "idp"]', "count", "policy.mechanisms does not list 'dp'"),
        ('attributes = ["ward"]', "median", "policy.attributes does not list 'age'"),
        ("max_epsilon_per_release = 0.4", "median", "policy.max_epsilon_per_release = 0.4"),
        ("valid_from = 2999-01-01", "median", "policy.valid_from"),
    ],
)
def test_the_policy_holds(tmp_path, monkeypatch, capsys, policy, question, rule):
    """An owner that wants differential privacy alone gives no median; attributes, limits and dates hold."""
    monkeypatch.chdir(tmp_path)
    make_owner_folder(tmp_path, policy=policy)
    arguments = ("--below", "30") if question == "count" else ()
    code, document = ask(capsys, question, "age", *arguments)
    assert code == 4
    assert rule in document["error"]["message"]
    assert spends(tmp_path) == []


def test_it_asks_first(folder, capsys):
    """Without a terminal and without --yes nothing is charged, but the promise is shown."""
    command = ["query", "median", "--dataset", "patients", "--attribute", "age", "--epsilon", "1"]
    code = console.run(application(), "owner-node", command)
    shown = capsys.readouterr()
    assert code == 2
    assert "Individual differential privacy" in shown.out
    assert spends(folder) == []
    assert console.run(application(), "owner-node", [*command, "--yes"]) == 0
    assert "median of age: " in capsys.readouterr().out


def test_several_records_per_person(tmp_path, monkeypatch, capsys):
    """The promise speaks of all records of a person, and only the declared number may be there."""
    monkeypatch.chdir(tmp_path)
    make_owner_folder(tmp_path)
    settings = tmp_path / "owner.toml"
    settings.write_text(
        settings.read_text().replace('identifier = "id"', 'identifier = "id"\nmax_records_per_person = 2')
    )
    document = ask(capsys, "maximum", "income")[1]
    assert "up to 2 records" in document["promises"][0]
