import re
from dataclasses import fields
from datetime import date
from decimal import Decimal
from pathlib import Path
from typing import Any, get_args, get_type_hints

import pytest
from pydantic.fields import FieldInfo

from common.errors import ConfigurationError, UsageError
from common.model.schema import Attribute, AttributeType
from common.settings import Section
from common.workspace import machine_memory
from owner_node.config import KnownAggregator, OwnerConfig, PolicyConfig, load
from owner_node.config.dataset import DatasetTable
from owner_node.config.engine import EngineKind
from owner_node.sources.options import CsvOptions, SourceOptions
from owner_node.sources.spark import SparkSource
from owner_node.values.normal_forms import NormalForm

SAMPLES = Path(__file__).parents[4] / "deploy" / "samples"
HEAD = """
[owner]
id = "north"
trust_domain = "hospitals.example"
state_dir = "state"
[[aggregator]]
name = "central"
address = "host:8443"
[tls]
ca = "ca.pem"
cert = "north.pem"
key = "north.key"
"""
DATASET = """
[[dataset]]
name = "adult"
source = "adult.csv"
total_epsilon = 2
"""
AGE = """
[dataset.attributes.age]
type = "integer"
min = 0
max = 120
"""


def _load(folder: Path, *parts: str) -> OwnerConfig:
    path = folder / "owner.toml"
    path.write_text("\n".join(parts), encoding="utf-8")
    return load(path)


def _problems(folder: Path, *parts: str) -> tuple[str, ...]:
    with pytest.raises(ConfigurationError) as caught:
        _load(folder, *parts)
    return caught.value.problems


def test_the_minimal_sample_has_every_default():
    """What a first owner.toml leaves out means what the documentation says."""
    config = load(SAMPLES / "owner.minimal.toml")
    dataset = config.dataset("patients")
    assert config.owner.state_dir == SAMPLES / "state"
    assert config.aggregators == (KnownAggregator("central", "aggregator.hospitals.example:8443"),)
    assert config.policy == PolicyConfig()
    assert (dataset.budget, dataset.total_epsilon, dataset.missing) == ("patients", Decimal(2), "error")
    assert (dataset.identifier, dataset.normalise, dataset.csv) == ((), (), CsvOptions())
    assert dataset.source == str(SAMPLES / "patients.csv")
    assert dataset.attributes == (Attribute("age", AttributeType.INTEGER, 0, 120),)


def test_the_full_sample_states_the_defaults():
    """The sample that explains every option does not quietly change one."""
    config = load(SAMPLES / "owner.full.toml")
    dataset = config.dataset("patients")
    assert config.policy == PolicyConfig(max_epsilon_per_release=Decimal(1))
    assert dataset.csv == CsvOptions()
    assert [attribute.type for attribute in dataset.attributes] == [
        AttributeType.INTEGER,
        AttributeType.NUMBER,
        AttributeType.DATE,
        AttributeType.CATEGORY,
        AttributeType.CATEGORY,
        AttributeType.BOOLEAN,
    ]


def _keys(annotation: Any) -> set[str]:
    """Return the keys of all tables in the type of a setting."""
    if not (isinstance(annotation, type) and issubclass(annotation, Section)):
        return {key for each in get_args(annotation) for key in _keys(each)}
    hints = get_type_hints(annotation, include_extras=True)
    own = [(each.name, hints[each.name]) for each in fields(annotation)]
    names = {FieldInfo.from_annotation(hint).alias or name for name, hint in own}
    return names | {key for _, hint in own for key in _keys(hint)}


def test_the_full_sample_explains_every_supported_option():
    """A new option does not stay out of the sample."""
    not_in_the_file = {
        "path", "datasets", "digest", "taxonomies", "missing_in", "simulated", "spark", "texts_version",
        "following",
    }  # fmt: skip
    keys = (_keys(OwnerConfig) | _keys(DatasetTable)) - not_in_the_file
    text = (SAMPLES / "owner.full.toml").read_text()
    assert len(keys) > 50
    place = r"(^|\n)(# )?\[*((dataset|notify|console)\.)?"
    assert [key for key in sorted(keys) if not re.search(rf"{place}{key}\b", text)] == []


def test_an_unknown_data_set_names_the_known_ones():
    """A release for a data set that is not there says which ones are."""
    config = load(SAMPLES / "owner.minimal.toml")
    with pytest.raises(UsageError) as caught:
        config.dataset("x")
    assert "patients" in caught.value.hint


def test_everything_reaches_the_run_time_form(tmp_path):
    """No policy that was written down gets lost on its way."""
    policy = """
        [policy]
        max_epsilon_per_release = "0.5"
        min_k = 7
        mechanisms = ["idp-joint"]
        layouts = ["vertical"]
        attributes = ["age"]
        aggregators = ["central"]
        purposes = ["care"]
        valid_from = 2026-01-01
        valid_until = "2026-12-31"
        accounting = "per-centroid"
        approval = "manual"
        manual_above_epsilon = 0.5
        co_owners = ["south", "east=0A:{}", "east={}"]
        max_overlap = 1
        allow_intersect = false
        max_zero_noise_share = 0
        max_unchanged_share = 0.9
        max_unchanged_record_share = "0.25"
    """.format("0a" * 31, "1b" * 32)
    assert _load(tmp_path, HEAD, policy).policy == PolicyConfig(
        max_epsilon_per_release=Decimal("0.5"),
        min_k=7,
        mechanisms=("idp-joint",),
        layouts=("vertical",),
        attributes=("age",),
        aggregators=("central",),
        purposes=("care",),
        valid_from=date(2026, 1, 1),
        valid_until=date(2026, 12, 31),
        accounting="per-centroid",
        approval="manual",
        manual_above_epsilon=Decimal("0.5"),
        max_zero_noise_share=Decimal(0),
        max_unchanged_share=Decimal("0.9"),
        max_unchanged_record_share=Decimal("0.25"),
        co_owners=("south", f"east={'0a' * 32}", f"east={'1b' * 32}"),
    )


def test_everything_of_a_data_set_reaches_the_run_time_form(tmp_path):
    """No setting of a data set gets lost on its way, and a single name is a list of one."""
    more = 'budget = "b"\nidentifier = "id"\nnormalise = "trim"\nmissing = "drop"\n'
    more += 'normalise_also = { id = "casefold" }\n'
    csv = '[dataset.csv]\ndelimiter = ";"\ndecimal = ","\nencoding = "latin-1"\nna_values = ["", "NA"]\n'
    dataset = _load(tmp_path, HEAD, DATASET, more, csv, AGE).dataset("adult")
    assert (dataset.budget, dataset.identifier, dataset.normalise) == ("b", ("id",), ("trim",))
    assert dataset.missing == "drop"
    assert dataset.normalise_also == {"id": ("casefold",)}
    assert dataset.normal_forms == (NormalForm(("trim", "casefold"), "%Y-%m-%d"),)
    assert dataset.csv == CsvOptions(";", ",", "iso8859-1", "%Y-%m-%d", ("", "NA"))


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("min_k = 2", "policy.min_k = 2: expected at least 3"),
        ("max_unchanged_share = 1.5", "policy.max_unchanged_share = 1.5: expected a share from 0 to 1"),
        ("max_unchanged_share = true", "expected a share from 0 to 1"),
        ("max_zero_noise_share = -0.1", "expected a share from 0 to 1"),
        ("max_zero_noise_share = nan", "expected a share from 0 to 1"),
        ('max_unchanged_record_share = "a tenth"', "expected a share from 0 to 1"),
        (
            'mechanisms = ["idp-join"]',
            "policy.mechanisms: \"idp-join\" is unknown; did you mean 'idp-joint'?",
        ),
        ("mechanisms = []", "policy.mechanisms: expected at least one; without this key all are allowed"),
        ("layouts = []", "policy.layouts: expected at least one; without this key all are allowed"),
        ('layouts = ["verticle"]', "did you mean 'vertical'?"),
        ("max_overlap = 0", "policy.max_overlap = 0: expected at least 1"),
        ("max_overlap = true", "policy.max_overlap"),
        ('allow_intersect = "yes"', "policy.allow_intersect"),
        ("max_epsilon_per_release = 0", "policy.max_epsilon_per_release = 0: expected a positive decimal"),
        (
            "valid_from = 2026-02-01\nvalid_until = 2026-01-31",
            "valid_until = 2026-01-31: before valid_from, 2026-02-01",
        ),
        ('approval = "yes"', 'policy.approval = "yes": expected one of "auto" or "manual"'),
        ('require_audit = "36h"', 'policy.require_audit = "36h": expected whole days, such as "30d"'),
        ("manual_above_epsilon = 0", "policy.manual_above_epsilon = 0: expected a positive decimal"),
        ('co_owners = ["South"]', '"South": an owner\'s id has lower-case letters'),
        ('co_owners = ["south=12"]', '"south=12": expected ID or ID=FINGERPRINT'),
        ('accounting = "other"', 'policy.accounting = "other": expected one of "joint" or "per-centroid"'),
        ('purposes = "care"', 'policy.purposes = "care": expected a list, [...]'),
        ('purposes = ["care", "care"]', "policy.purposes: expected names that are not empty, each once"),
    ],
)
def test_policies_that_make_no_sense(tmp_path, line, expected):
    """A policy that cannot mean what its author thinks is refused before any release."""
    (problem,) = _problems(tmp_path, HEAD, "[policy]", line)
    assert expected in problem


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ('query = "select 1"', "dataset[adult].query: goes with the URL of a database"),
        ('normalise = ["trim"]', "dataset[adult].normalise: there is no identifier to normalise"),
        (
            'identifier = "id"\nnormalise_also = { name = ["date"] }',
            "dataset[adult].normalise_also.name: is no column of the identifier",
        ),
        (
            'identifier = "id"\nnormalise_also = { id = ["dates"] }',
            "\"dates\" is unknown; did you mean 'date'?",
        ),
        ('identifier = "id"\nnormalise = ["trimm"]', "\"trimm\" is unknown; did you mean 'trim'?"),
        (
            "max_records_per_person = 2",
            "dataset[adult].max_records_per_person: there is no identifier to distinguish persons by",
        ),
        ("max_records_per_person = 0", "dataset[adult].max_records_per_person = 0: expected at least 1"),
        ('identifier = ["id", "age"]', "dataset[adult].attributes.age: an identifier is never released"),
        ('[dataset.csv]\ndelimiter = "::"', 'dataset[adult].csv.delimiter = "::": expected one character'),
        ('[dataset.csv]\ndecimal = ","', 'dataset[adult].csv.decimal: "," is the delimiter too'),
        ('[dataset.csv]\nencoding = "latin-99"', "expected the name of an encoding"),
        ('[dataset.attributes.record]\ntype = "boolean"', "attributes.record: the name is taken"),
        ('[dataset.attributes.""]\ntype = "boolean"', 'attributes."": an attribute needs a name'),
    ],
)  # fmt: skip
def test_data_sets_that_contradict_themselves(tmp_path, text, expected):
    """Settings of a data set that do not go together are found before the data is read."""
    (problem,) = _problems(tmp_path, HEAD, DATASET, text, AGE)
    assert expected in problem


def test_the_label_of_missing_values_cannot_be_a_category_of_its_own(tmp_path):
    """A missing value and a category of the same name would be counted as one."""
    labels = '[dataset.attributes.x]\ntype = "category"\ncategories = ["(missing)"]'
    (problem,) = _problems(tmp_path, HEAD, DATASET, 'missing = "category"', labels)
    assert problem.startswith("dataset[adult].attributes.x.categories:")


def test_an_attribute_treats_missing_values_in_its_own_way(tmp_path):
    """An attribute's own `missing` wins over the data set's, which is for categories."""
    sex = '[dataset.attributes.sex]\ntype = "category"\ncategories = ["f", "m"]\n'
    text = DATASET + '\nmissing = "category"\n'
    dataset = _load(tmp_path, HEAD, text, AGE, 'missing = "drop"', sex).datasets[0]
    assert dataset.dropping == {"age"}
    assert dataset.fills(dataset.attributes[1])
    dataset = _load(tmp_path, HEAD, text, AGE, 'missing = "drop"', sex, 'missing = "error"').datasets[0]
    assert not dataset.fills(dataset.attributes[1])
    assert not _load(tmp_path, HEAD, text, AGE).datasets[0].fills(dataset.attributes[0])
    (kept,) = _load(tmp_path, HEAD, DATASET, AGE, 'missing = "category"').datasets[0].attributes
    assert (kept.keeps_missing, kept.upper, kept.n_values) == (True, 120, 122)


def _two(first: str, second: str) -> str:
    heads = [f'[[dataset]]\nname = "{name}"\n{text}\n{AGE}' for name, text in (("a", first), ("b", second))]
    return "\n".join(heads)


def test_one_budget_has_one_total(tmp_path):
    """A budget is not as large as the data set that asks for it happens to say."""
    text = _two("source = 'a.csv'\ntotal_epsilon = 1", "source = 'b.csv'\nbudget = 'a'\ntotal_epsilon = 2.0")
    assert _problems(tmp_path, HEAD, text) == (
        "dataset[b].total_epsilon = 2.0: data set 'a' has the same budget with 1",
    )
    equal = text.replace("2.0", "'1.0'")
    assert {each.budget for each in _load(tmp_path, HEAD, equal).datasets} == {"a"}


@pytest.mark.parametrize("alias", ["x.csv", "./y/../x.csv", "link.csv"])
def test_one_source_has_one_budget(tmp_path, alias):
    """A second name for the same file, a link included, does not open a second budget for the same people."""
    (tmp_path / "link.csv").symlink_to(tmp_path / "x.csv")
    text = _two("source = 'x.csv'\ntotal_epsilon = 1", f"source = '{alias}'\ntotal_epsilon = 1")
    (problem,) = _problems(tmp_path, HEAD, text)
    assert "has the same source and budget" in problem
    assert "budget" in problem.split(":")[0]


def test_names_are_declared_once(tmp_path):
    """Two data sets or aggregators of one name could not be told apart."""
    one_more = '[[aggregator]]\nname = "central"\naddress = "other:8443"'
    assert _problems(tmp_path, HEAD, one_more, DATASET, AGE, DATASET, AGE) == (
        "dataset[adult]: declared twice",
        "aggregator[central]: declared twice",
    )


def test_problems_of_all_tables_come_together(tmp_path):
    """What is wrong between data sets is told together with what is wrong inside them."""
    head = HEAD.replace('id = "north"', 'id = "North"').replace("host:8443", "host")
    text = _two(
        "source = 'x.csv'\ntotal_epsilon = -1", "source = 'x.csv'\ntotal_epsilon = 1\nmising = 'drop'"
    )
    problems = _problems(tmp_path, head, text)
    assert [re.split(r"[ :]", problem)[0] for problem in problems] == [
        "owner.id",
        "aggregator[central].address",
        "dataset[a].total_epsilon",
        "dataset[b].mising",
        "dataset[b].budget",
    ]


@pytest.mark.parametrize(
    ("line", "told"),
    [
        ('kind = "sparc"', 'engine.kind = "sparc": expected one of "auto", "memory", "disk", "spark"'),
        ('master = "sc://host"', "expected a Spark master"),
        ('conf = { "executor.memory" = "1g" }', '"spark.executor.memory"'),
        ('conf = { "spark.master" = "local" }', "extra_jars of [engine] are for that"),
        ('conf = { "spark.task.cpus" = [1] }', "expected a text, a number or a boolean"),
        ('kind = "DuckDB"', 'engine.kind = "DuckDB": expected one of "auto"'),
        ("kind = 1", 'engine.kind = 1: expected one of "auto"'),
        ('memory_limit = "1 byte"', '"256MB"'),
    ],
)
def test_an_engine_that_does_not_exist_is_refused(tmp_path, line, told):
    """The error names what there is."""
    path = tmp_path / "owner.toml"
    path.write_text((SAMPLES / "owner.minimal.toml").read_text() + f"\n[engine]\n{line}\n")
    with pytest.raises(ConfigurationError, match=re.escape(told)):
        load(path)


@pytest.mark.parametrize("name", ["disk", "duckdb"])
def test_the_disk_engine_keeps_its_old_name(tmp_path, name):
    """Configurations of earlier versions stay valid."""
    path = tmp_path / "owner.toml"
    path.write_text((SAMPLES / "owner.minimal.toml").read_text() + f'\n[engine]\nkind = "{name}"\n')
    assert load(path).engine.kind is EngineKind.DISK


def test_spark_is_started_as_the_engine_table_says(tmp_path):
    """Every data set has its settings: whoever reads or masks it starts the same session."""
    path = tmp_path / "owner.toml"
    lines = ['kind = "spark"', "threads = 3", 'extra_jars = ["iceberg.jar"]']
    lines += ['conf = { "spark.task.cpus" = 2, "spark.ui.enabled" = true }']
    path.write_text((SAMPLES / "owner.minimal.toml").read_text() + "\n[engine]\n" + "\n".join(lines))
    owner = load(path)
    assert owner.engine.kind is EngineKind.SPARK
    found = owner.datasets[0].spark
    assert found is not None
    assert (found.master, found.is_local) == ("local[3]", True)
    assert found.conf == {"spark.task.cpus": "2", "spark.ui.enabled": "true"}
    assert found.extra_jars == (tmp_path / "iceberg.jar",)
    assert found.workspace == owner.workspace


@pytest.mark.parametrize(
    ("source", "place"),
    [
        ("spark:parquet:cohort", "spark:parquet:{folder}/cohort"),
        ("spark:parquet:s3a://bucket/cohort", "spark:parquet:s3a://bucket/cohort"),
        ("spark:table:lake.health.cohort", "spark:table:lake.health.cohort"),
        ("spark:orc?path=/data/x&b=a%26c", "spark:orc?b=a%26c&path=/data/x"),
        ("spark:", None),
        ("spark:parquet:", None),
        ("spark:table:a.b;drop", None),
        (
            "spark:parquet:abfss://box@account.example/cohort",
            "spark:parquet:abfss://box@account.example/cohort",
        ),
        ("spark:orc?path=/data/2026/x@y", "spark:orc?path=/data/2026/x%40y"),
        ("spark:jdbc?url=jdbc:x&password=y", None),
        ("spark:jdbc?url=jdbc:mysql://me:hunter2@host/db", None),
        ("spark:jdbc?url=jdbc:oracle:thin:me/hunter2@//host/db", None),
        ("spark:parquet:s3a://me:hunter2@bucket/cohort", None),
    ],
)
def test_what_spark_reads_is_one_source_however_it_is_written(tmp_path, source, place):
    """Budgets follow the source: it has one form, and no secret in it."""
    if place is None:
        with pytest.raises(ValueError, match=r"expected \"spark:parquet|is a secret|has a password"):
            SparkSource.normal(source, Path)
        return
    expected = place.format(folder=tmp_path)
    found = SparkSource.normal(source, lambda path: tmp_path / path)
    assert found == expected
    assert SparkSource("people", found, SourceOptions()).place == expected


def test_engines_are_chosen_by_size_unless_one_is_named():
    """The default decides while a table is loaded, and may take half of the machine's memory."""
    engine = load(SAMPLES / "owner.minimal.toml").engine
    assert engine.kind is EngineKind.AUTO
    assert engine.memory_limit == machine_memory() // 2
