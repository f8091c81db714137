"""docs/omop.md, followed: from OMOP databases in PostgreSQL and SQLite to a released person table."""

import re
import shlex
import sqlite3
import tomllib
from datetime import date, timedelta
from pathlib import Path

import numpy as np
import pytest

import tessera
from deploy.local_cluster import LocalCluster
from deploy.local_setup import make_setup, share_linkage_key
from tests.postgres_server import PASSWORD, PostgresServer, postgres_server
from tests.system.pasted import blocks
from tests.system.small_owners import ask

pytestmark = pytest.mark.needs("postgres")

PAGE = (Path(__file__).parents[2] / "docs" / "omop.md").read_text(encoding="utf-8")
OWNERS = ("clinic", "registry")
N_PERSONS = 400
TABLES = {
    "concept": "concept_id integer, concept_name varchar(255)",
    "concept_ancestor": "ancestor_concept_id integer, descendant_concept_id integer",
    "person": "person_id integer, gender_concept_id integer, year_of_birth integer",
    "visit_occurrence": "person_id integer, visit_concept_id integer, visit_start_date date",
    "condition_occurrence": "person_id integer, condition_concept_id integer, condition_start_date date",
    "measurement": "person_id integer, measurement_concept_id integer, measurement_date date,"
    " value_as_number numeric",
    "death": "person_id integer, death_date date",
}
CONCEPTS = {
    8507: "MALE", 8532: "FEMALE", 9201: "Inpatient Visit", 9202: "Outpatient Visit",
    201826: "Type 2 diabetes mellitus", 443732: "Disorder due to type 2 diabetes mellitus",
    320128: "Essential hypertension", 3004410: "Hemoglobin A1c/Hemoglobin.total in Blood",
}  # fmt: skip


def records(first: int) -> dict[str, list[tuple[object, ...]]]:
    """Return the tables of an owner: half of the persons have diabetes, a tenth of these no measurement."""
    draw = np.random.default_rng(first)
    made: dict[str, list[tuple[object, ...]]] = {name: [] for name in TABLES}
    made["concept"] = list(CONCEPTS.items())
    made["concept_ancestor"] = [(201826, 201826), (201826, 443732), (320128, 320128)]
    for person in range(first, first + N_PERSONS):
        made["person"].append((person, 8507 if person % 3 else 8532, int(draw.integers(1930, 2000))))
        begin = date(2015, 1, 1) + timedelta(int(draw.integers(0, 900)))
        code = (201826, 320128, 443732, 320128)[person % 4]
        made["condition_occurrence"].append((person, code, begin.isoformat()))
        for _ in range(int(draw.integers(1, 8))):
            day = (begin + timedelta(int(draw.integers(-100, 900)))).isoformat()
            made["visit_occurrence"].append((person, int(draw.choice([9201, 9202])), day))
            if person % 20:
                value = round(float(draw.uniform(4, 12)), 1)
                made["measurement"].append((person, 3004410, (begin + timedelta(30)).isoformat(), value))
        if person % 7 == 0:
            made["death"].append((person, (begin + timedelta(950)).isoformat()))
    return made


def in_server(server: PostgresServer, tables: dict[str, list[tuple[object, ...]]]) -> str:
    """Put tables into a schema of a server; return its URL."""
    server.run("create schema cdm")
    for name, columns in TABLES.items():
        server.run(f"create table cdm.{name} ({columns})")
        values = ", ".join(["%s"] * len(columns.split(",")))
        server.run(f"insert into cdm.{name} values ({values})", *tables[name])
    return server.url(options="?options=-csearch_path%3Dcdm")


def in_file(path: Path, tables: dict[str, list[tuple[object, ...]]]) -> None:
    """Put tables into a file of SQLite."""
    with sqlite3.connect(path) as connection:
        for name, columns in TABLES.items():
            connection.execute(f"create table {name} ({columns})")
            values = ", ".join("?" * len(columns.split(",")))
            connection.executemany(f"insert into {name} values ({values})", tables[name])
    connection.close()


def cohort(tables: dict[str, list[tuple[object, ...]]]) -> set[object]:
    """Return the persons with diabetes and a measurement after it began."""
    ill = {person for person, code, _ in tables["condition_occurrence"] if code in (201826, 443732)}
    return ill & {person for person, *_ in tables["measurement"]}


def test_the_page_leads_to_a_release(tmp_path):
    """Declarations and commands as they stand; the person table is the one that the tables say."""
    (declared,) = re.findall(r"^```toml\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
    clinic, registry = records(1), records(1001)
    with postgres_server() as server:
        url = in_server(server, clinic)
        for owner in OWNERS:
            (tmp_path / "owners" / owner).mkdir(parents=True)
        secret = tmp_path / "owners" / "clinic" / "database-password"
        secret.touch(0o600)
        secret.write_text(PASSWORD)
        in_file(tmp_path / "owners" / "registry" / "omop.db", registry)
        source = tomllib.loads(declared)["dataset"][0]["source"]
        of_file = declared.replace(source, "sqlite:///omop.db")
        of_file = of_file.replace('password_file = "database-password"\n', "")
        make_setup(tmp_path, {"clinic": declared.replace(source, url), "registry": of_file})
        share_linkage_key(tmp_path, OWNERS)
        with LocalCluster(tmp_path) as cluster:
            cluster.start()
            check, release = blocks(PAGE)
            for owner, tables in (("clinic", clinic), ("registry", registry)):
                code, document = ask(cluster, *shlex.split(check), owner=owner)
                assert code == 0, document
                (found,) = document["datasets"]
                assert found["records"] == len(cohort(tables))
                assert set(found["dropped_by"]) == {"first_hba1c", "mean_hba1c"}
            making, verifying = release.splitlines()
            code, document = ask(cluster, *shlex.split(making), "--yes", "--anyway")
            assert code == 0, document
            words = shlex.split(verifying.replace("releases/diabetes-1", document["directory"]))
            assert ask(cluster, *words)[0] == 0
            frame = tessera.read_release(document["directory"]).frame
    assert len(frame) == len(cohort(clinic)) + len(cohort(registry))
    assert set(frame["sex"]) == {"FEMALE", "MALE"}
    assert frame["mean_hba1c"].between(4, 12).mean() > 0.9
    assert frame.columns.tolist() == [
        "sex", "year_of_birth", "visits", "inpatient", "first_hba1c", "mean_hba1c", "died", "followed",
    ]  # fmt: skip
