"""Verification where plans let linking find shared or common persons: all that is shown was signed."""

import json
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from common.errors import IntegrityError
from common.model.plan import Linking
from common.release.verification import verify_release
from common.trust.signing import Domain
from common.words.guarantee import promise_as_linked, promises
from tests.fakes.published import Made, make_release
from tests.fakes.releases import make_plan

SHARED = replace(make_plan([(["age"], ["a", "b"])]), linking=Linking(tokens=True, max_overlap=2))
COMMON = replace(
    make_plan([(["age"], ["a"]), (["income"], ["b"])]),
    linking=Linking(tokens=True, on_mismatch="intersect", min_common=20),
)
SELECTIONS = {"a": "ab" * 32, "b": "cd" * 32}


@pytest.fixture(scope="module")
def shared(tmp_path_factory) -> Made:
    """A release of two owners that hold the same persons, as linking found."""
    folder = tmp_path_factory.mktemp("shared")
    return make_release(folder, plan=SHARED, n_records=30, linking="overlapping", multiples=(2,), released=30)


def resigned(made: Made, to: Path, *way: str | int, value: Any) -> Path:
    """Return a copy whose manifest says something else, signed anew as a lying aggregator could."""
    folder = shutil.copytree(made.folder, to / "copy")
    manifest = json.loads((folder / "manifest.json").read_bytes())
    part = manifest
    for key in way[:-1]:
        part = part[key]
    assert part[way[-1]] != value
    part[way[-1]] = value
    data = json.dumps(manifest, indent=2, sort_keys=True, ensure_ascii=False).encode()
    (folder / "manifest.json").write_bytes(data)
    (folder / "manifest.sig").write_bytes(made.aggregator.sign(Domain.MANIFEST, data))
    return folder


def test_shared_persons_are_told(shared: Made) -> None:
    """The folder has the ε of a person at two owners, in numbers and words; verify says what was found."""
    manifest = json.loads((shared.folder / "manifest.json").read_bytes())
    joint = 2 * shared.plan.tasks[0].epsilon_joint  # type: ignore[operator]
    assert manifest["totals"]["epsilon_joint"] == str(joint) == str(shared.plan.epsilon_joint)
    assert "persons at up to 2 owners" in manifest["guarantee"][-1]
    assert f"ε = {joint}" in manifest["guarantee"][-1]
    assert "up to 2 owners of the same attributes" in manifest["composition"]
    verified = verify_release(shared.folder)
    assert "linking found: persons at up to 2 of a, b" in verified.to_lines()
    assert verified.to_document()["linking"] == ["persons at up to 2 of a, b"]
    assert verified.to_document()["epsilon_joint"] == joint
    assert verified.to_document()["epsilon_person"] == 2 * shared.plan.tasks[0].epsilon
    assert "ε of one person, as linking found: 0.2, joint 0.2" in verified.to_lines()


def test_charges_are_told_group_by_group() -> None:
    """An owner of shared persons spent its share twice, one of nobody shared once; planned bounds say so."""
    plan = replace(
        make_plan([(["age"], ["a", "b"]), (["income"], ["c", "d"])]),
        linking=Linking(tokens=True, max_overlap=2),
    )
    told = promise_as_linked(plan, (2, 1))
    assert "2 times for age at a, b; once for income at c, d" in told
    assert "as found: ε = 0.3" in told
    assert "All attributes of one person together, at most, as planned: " in " ".join(promises(plan))


def test_the_table_of_owners_has_what_ledgers_have(shared: Made) -> None:
    """The report's table and tiles speak of what linking found, not of the share that the plan has."""
    report = (shared.folder / "report.html").read_text()
    row = report[report.index('<th scope="row">a</th>') :].split("</tr>", 1)[0]
    assert row.count('<td class="n">0.2</td>') == 2
    assert "what each spent, as found" in report
    assert "<dt>ε, joint, as found</dt><dd>0.2</dd>" in report
    assert "ε of one person" not in report.split("<nav", 1)[0]


def test_nobody_shared_is_told_too(tmp_path: Path) -> None:
    """Where the plan would have allowed it and nobody is shared, the folder has the ε of one owner."""
    made = make_release(tmp_path, plan=SHARED, n_records=30, multiples=(1,), released=30)
    totals = json.loads((made.folder / "manifest.json").read_bytes())["totals"]
    assert totals["epsilon_joint"] == str(made.plan.tasks[0].epsilon_joint)
    assert "nobody at two owners" in " ".join(verify_release(made.folder).to_lines())


@pytest.mark.parametrize(
    ("way", "value", "told"),
    [
        (("totals", "epsilon_joint"), "0.1", "it differs from the plan in its totals"),
        (("totals", "epsilon_person"), "0.1", "it differs from the plan in its totals"),
        (("guarantee",), ["nobody is shared"], "promises something else"),
    ],
)
def test_a_manifest_that_makes_less_of_it(
    shared: Made, tmp_path: Path, way: Any, value: Any, told: str
) -> None:
    """What a manifest shows of shared persons is computed again from plan and addendum."""
    with pytest.raises(IntegrityError, match=told):
        verify_release(resigned(shared, tmp_path, *way, value=value))


@pytest.mark.parametrize(
    ("plan", "found", "told"),
    [
        (SHARED, {"linking": "overlapping", "multiples": (3,), "released": 30}, "plan's bounds"),
        (SHARED, {"linking": "disjoint", "multiples": (2,), "released": 30}, "are not 'disjoint'"),
        (SHARED, {"linking": "overlapping", "multiples": (2,)}, "how many records are released"),
        (SHARED, {"linking": "disjoint"}, "plan's bounds"),
        (make_plan([(["age"], ["a", "b"])]), {"multiples": (1,)}, "does not allow"),
        (COMMON, {"linking": "intersected", "common": 30}, "records of every owner are selected"),
        (COMMON, {"linking": "intersected", "common": 31, "selections": SELECTIONS}, "different numbers"),
        (COMMON, {"linking": "equal", "common": 30, "selections": SELECTIONS}, "are selected where"),
        (
            replace(COMMON, linking=replace(COMMON.linking, min_common=31)),
            {"linking": "intersected", "common": 30, "selections": SELECTIONS},
            "at least 31 are agreed",
        ),
    ],
)
def test_addenda_that_cannot_be(tmp_path: Path, plan: Any, found: dict[str, Any], told: str) -> None:
    """No release appears whose addendum its plan rules out, whoever signed it."""
    with pytest.raises(IntegrityError, match=told):
        make_release(tmp_path, plan=plan, n_records=30, **found)
    assert not (tmp_path / "releases" / plan.release).exists()


def test_common_persons_are_told(tmp_path: Path) -> None:
    """How many persons all groups hold is in the addendum, and verify says it."""
    found: dict[str, Any] = {"common": 30, "selections": SELECTIONS}
    made = make_release(tmp_path, plan=COMMON, n_records=30, linking="intersected", **found)
    lines = " ".join(verify_release(made.folder).to_lines())
    assert "30 persons at the owners of all attributes" in lines
    report = (made.folder / "report.html").read_text()
    assert "only persons at the owners of all attributes were masked" in report
