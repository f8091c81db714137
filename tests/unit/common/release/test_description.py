"""Descriptions of releases: valid for the field's own validators, signed, and made again by `verify`."""

import json
from dataclasses import replace
from typing import Any

import pytest

from common.canonical import digest
from common.errors import IntegrityError, UsageError
from common.model.permit import condition_texts
from common.planning.arguments import ARGUMENTS
from common.release.description import DESCRIPTION_FILE, croissant, describe
from common.release.verification import verify_release
from common.trust.signing import Domain
from common.words.essentials import essentials
from tests.description_checks import description_problems
from tests.fakes.published import NAMES, make_release
from tests.fakes.releases import make_plan

FIRST, LAST = NAMES[:2], NAMES[2:]
LAYOUTS = {
    "masked": ((NAMES, ("a", "b")),),
    "vertical": ((FIRST, ("a",)), (LAST, ("b",))),
    "mixed": ((FIRST, ("a", "b")), (LAST, ("c", "d"))),
}
USED: dict[str, Any] = {
    "described": True,
    "purpose": "a study of wards",
    "permit": "FDI-2026-17",
    "duo": ("DUO:0000042", "DUO:0000046"),
}


def resigned(made, change):
    """Change the list of files and sign the manifest anew, as a lying aggregator could."""
    manifest = json.loads((made.folder / "manifest.json").read_bytes())
    change(manifest["files"])
    data = json.dumps(manifest).encode()
    (made.folder / "manifest.json").write_bytes(data)
    (made.folder / "manifest.sig").write_bytes(made.aggregator.sign(Domain.MANIFEST, data))


@pytest.mark.needs("descriptions")
@pytest.mark.parametrize("layout", LAYOUTS)
def test_validators_object_to_nothing(tmp_path, layout):
    """RO-Crate's and Croissant's validators, and shapes of catalogues, find a description in order."""
    made = make_release(tmp_path, plan=replace(make_plan(LAYOUTS[layout]), **USED))
    assert not any(description_problems(made.folder).values())


@pytest.mark.needs("descriptions")
def test_validators_do_object(tmp_path):
    """Each of the three notices what is left out: that they are content means something."""
    made = make_release(tmp_path, plan=replace(make_plan(LAYOUTS["masked"]), described=True))
    path = made.folder / DESCRIPTION_FILE
    document = json.loads(path.read_bytes())
    for each in document["@graph"]:
        for name in ("license", "dcat:accessURL", "cr:fileObject"):
            each.pop(name, None)
    path.write_text(json.dumps(document))
    assert all(description_problems(made.folder).values())


def test_the_facts_are_those_of_the_plan(tmp_path):
    """The plan's numbers, permit, conditions, owners and files are stated; references lead somewhere."""
    made = make_release(tmp_path, plan=replace(make_plan(LAYOUTS["masked"]), **USED))
    graph = json.loads((made.folder / DESCRIPTION_FILE).read_bytes())["@graph"]
    known = {each["@id"]: each for each in graph}
    assert len(known) == len(graph)
    assert known["#fact-epsilon"]["value"] == str(made.plan.epsilon)
    assert known["#fact-plan_digest"]["value"] == made.plan.digest
    assert known["#project"]["identifier"] == "FDI-2026-17"
    assert known["obo:DUO_0000042"]["name"] == "general research use"
    assert {"#owner-a", "#consent-a", "#owner-b", "#consent-b"} <= known.keys()
    assert known["data.csv"]["sha256"] == digest((made.folder / "data.csv").read_bytes())
    referred = {part.split('"')[0] for part in json.dumps(graph).split('{"@id": "#')[1:]}
    assert {f"#{each}" for each in referred} <= known.keys()
    columns = [each["@id"] for each in known["#records"]["cr:field"]]
    assert columns == [f"#field-{name}" for name in ("record", *NAMES)]


def test_a_changed_description_is_refused(tmp_path):
    """A signed description that does not follow from the manifest is a lie; without one a release holds."""
    made = make_release(tmp_path, plan=replace(make_plan(LAYOUTS["masked"]), described=True))
    path = made.folder / DESCRIPTION_FILE
    lie = path.read_bytes().replace(b"Disclosure check", b"Disclosure proof")
    path.write_bytes(lie)
    with pytest.raises(IntegrityError, match=r"ro-crate-metadata\.json was changed"):
        verify_release(made.folder)
    stated = {"digest": digest(lie), "size": str(len(lie))}
    resigned(made, lambda files: files.update({DESCRIPTION_FILE: stated}))
    with pytest.raises(IntegrityError, match="not the description of this manifest"):
        verify_release(made.folder)
    path.unlink()
    resigned(made, lambda files: files.pop(DESCRIPTION_FILE))
    assert DESCRIPTION_FILE not in verify_release(made.folder).files


def test_the_same_release_has_the_same_description(tmp_path):
    """The bytes follow from manifest and files alone, read from the folder or not."""
    made = make_release(tmp_path, plan=replace(make_plan(LAYOUTS["masked"]), described=True))
    manifest = json.loads((made.folder / "manifest.json").read_bytes())
    files = {name: (each["digest"], int(each["size"])) for name, each in manifest["files"].items()}
    del files[DESCRIPTION_FILE]
    written = (made.folder / DESCRIPTION_FILE).read_bytes()
    assert describe(manifest, made.evidence, files) == written
    assert croissant(written)["@graph"][0]["@type"] == "Dataset"


def test_owners_read_permit_and_conditions():
    """A consent shows the permit and the conditions first; a plan without them keeps its bytes."""
    plain = make_plan(LAYOUTS["masked"])
    plan = replace(plain, **USED)
    lines = " ".join(essentials(plan))
    assert "data permit FDI-2026-17" in lines
    assert all(text in lines for text in condition_texts(plan.duo))
    assert type(plan).from_bytes(plan.to_bytes()) == plan
    assert "permit" in plan.features
    assert not {"permit", "duo", "described"} & plain.to_document().keys()


def test_permits_and_codes_are_checked():
    """A permit is one visible line, and a condition is a code of DUO, with or without its prefix."""
    assert ARGUMENTS["duo"].read(["0000042", "duo:0000046"]) == ("DUO:0000042", "DUO:0000046")
    wrong = (("permit", "a\nb"), ("permit", "x" * 121), ("duo", ["DUO:9"]), ("duo", ["0000042"] * 2))
    for name, value in wrong:
        with pytest.raises(UsageError):
            ARGUMENTS[name].read(value)
    with pytest.raises(ValueError, match="codes of DUO"):
        replace(make_plan(LAYOUTS["masked"]), duo=("DUO:9",))
