"""Check descriptions of releases by RO-Crate's, Croissant's and SHACL's own validators, without a network.

A program of its own, with `build/descriptions` on the path: its packages need other versions than the rest.
RO-Crate's context is the one that the package `rocrate` brings (1.3). No package has the official shapes of
DCAT-AP 3, HealthDCAT-AP and the Five Safes profile, so they are not run. `SHAPES` states in our own words
what DCAT-AP 3 requires of data sets, distributions and checksums, and HealthDCAT-AP of columns.
"""

import json
import os
import subprocess
import sys
from importlib.resources import files
from pathlib import Path
from typing import Any
from unittest import mock

from common.release.description import DESCRIPTION_FILE, croissant

SHAPES = """
@prefix sh: <http://www.w3.org/ns/shacl#> .
@prefix dcat: <http://www.w3.org/ns/dcat#> .
@prefix dct: <http://purl.org/dc/terms/> .
@prefix foaf: <http://xmlns.com/foaf/0.1/> .
@prefix spdx: <http://spdx.org/rdf/terms#> .
@prefix csvw: <http://www.w3.org/ns/csvw#> .
@prefix health: <http://healthdataportal.eu/ns/health#> .
@prefix xsd: <http://www.w3.org/2001/XMLSchema#> .
[] a sh:NodeShape ; sh:targetClass dcat:Dataset ;
  sh:property [ sh:path dct:title ; sh:minCount 1 ; sh:nodeKind sh:Literal ] ,
    [ sh:path dct:description ; sh:minCount 1 ; sh:nodeKind sh:Literal ] ,
    [ sh:path dct:publisher ; sh:maxCount 1 ; sh:class foaf:Agent ] ,
    [ sh:path dct:issued ; sh:maxCount 1 ; sh:datatype xsd:dateTime ] ,
    [ sh:path dct:provenance ; sh:class dct:ProvenanceStatement ] ,
    [ sh:path dcat:distribution ; sh:minCount 1 ; sh:class dcat:Distribution ] ,
    [ sh:path dcat:keyword ; sh:minCount 1 ; sh:nodeKind sh:Literal ] ,
    [ sh:path health:numberOfRecords ; sh:maxCount 1 ; sh:datatype xsd:nonNegativeInteger ] .
[] a sh:NodeShape ; sh:targetClass dcat:Distribution ;
  sh:property [ sh:path dcat:accessURL ; sh:minCount 1 ; sh:nodeKind sh:IRI ] ,
    [ sh:path dcat:mediaType ; sh:maxCount 1 ; sh:class dct:MediaType ] ,
    [ sh:path dcat:byteSize ; sh:maxCount 1 ; sh:datatype xsd:nonNegativeInteger ] ,
    [ sh:path spdx:checksum ; sh:maxCount 1 ; sh:class spdx:Checksum ] .
[] a sh:NodeShape ; sh:targetClass spdx:Checksum ;
  sh:property [ sh:path spdx:algorithm ; sh:minCount 1 ; sh:maxCount 1 ] ,
    [ sh:path spdx:checksumValue ; sh:minCount 1 ; sh:maxCount 1 ; sh:datatype xsd:hexBinary ] .
[] a sh:NodeShape ; sh:targetClass foaf:Agent ; sh:property [ sh:path foaf:name ; sh:minCount 1 ] .
[] a sh:NodeShape ; sh:targetClass csvw:Column ;
  sh:property [ sh:path csvw:name ; sh:minCount 1 ; sh:maxCount 1 ] ,
    [ sh:path csvw:titles ; sh:minCount 1 ] , [ sh:path dct:description ; sh:minCount 1 ] ,
    [ sh:path csvw:datatype ; sh:minCount 1 ; sh:maxCount 1 ] .
"""


ROOT = Path(__file__).parents[1]
PACKAGES = ROOT / "build/descriptions"
"""Folder of the validators, after `make descriptions`."""


def description_problems(folder: Path) -> dict[str, list[str]]:
    """Return what each validator objects to in the description of a release folder."""
    ran = subprocess.run(
        [sys.executable, "-m", "tests.description_checks", str(folder)],
        env={**os.environ, "PYTHONPATH": f"{PACKAGES}{os.pathsep}{ROOT}"},
        cwd=ROOT, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert ran.returncode == 0, ran.stderr
    problems: dict[str, list[str]] = json.loads(ran.stdout.splitlines()[-1])
    return problems


class Answer:
    """What the address of RO-Crate's context answers."""

    status_code, url = 200, ""

    def __init__(self) -> None:
        self.headers = {"Content-Type": "application/ld+json"}
        self.text = (files("rocrate") / "data/ro-crate.jsonld").read_text(encoding="utf-8")

    def json(self) -> Any:
        """Return the document."""
        return json.loads(self.text)


def crate_problems(folder: Path) -> list[str]:
    """Return what the validator of RO-Crate 1.2 requires and does not find."""
    from rocrate_validator import services
    from rocrate_validator.utils.http import HttpRequester

    settings = services.ValidationSettings(rocrate_uri=str(folder), profile_identifier="ro-crate-1.2")
    with mock.patch.object(HttpRequester, "get", create=True, return_value=Answer()):
        issues = services.validate(settings).get_issues()
    return [f"{each.check.identifier}: {each.message} ({each.violatingEntity})" for each in issues]


def croissant_problems(folder: Path) -> list[str]:
    """Return errors and warnings of Croissant's own library, and a column that it cannot load."""
    import mlcroissant

    description = croissant((folder / DESCRIPTION_FILE).read_bytes())
    path = folder.parent / "croissant.json"
    path.write_text(json.dumps(description), encoding="utf-8")
    mapping = {name: folder / name for name in ("data.parquet", "data.csv") if (folder / name).exists()}
    try:
        dataset = mlcroissant.Dataset(path, mapping={f"#file-{name}": file for name, file in mapping.items()})
    except mlcroissant.ValidationError as fault:
        return [str(fault)]
    issues = dataset.metadata.ctx.issues
    return [*issues.errors, *issues.warnings]


def shape_problems(folder: Path) -> list[str]:
    """Return what the shapes of catalogues and columns do not find."""
    from pyshacl import validate
    from rdflib import Graph

    document = json.loads((folder / DESCRIPTION_FILE).read_bytes())
    document["@context"][0] = Answer().json()["@context"]
    graph = Graph().parse(data=json.dumps(document), format="json-ld", publicID="https://release.example/")
    conforms, _, text = validate(graph, shacl_graph=Graph().parse(data=SHAPES, format="turtle"))
    return [] if conforms else [text]


if __name__ == "__main__":
    place = Path(sys.argv[1])
    found = {each.__name__: each(place) for each in (crate_problems, croissant_problems, shape_problems)}
    sys.stdout.write(f"\n{json.dumps(found)}")
