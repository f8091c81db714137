"""A synthetic table of one owner as files: the records, and beside them their noisy counts and a report.

`patients.parquet` (or .csv), `patients.parquet.counts.parquet` and `patients.parquet.report.json`. Nothing is
signed: who gets the files from their owner can check that they belong together, and that no record is from
anywhere but the noisy counts. The files of a release of several owners are signed
(`common.release.verification`).
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from common import __version__
from common.arrays import Int64Array
from common.canonical import canonical, parse_json
from common.errors import IntegrityError, UsageError
from common.files import file_digest
from common.model.privacy import is_share, read_decimal, read_whole_number
from common.model.products import Product
from common.model.schema import Attribute, fault_of_derived, fault_of_rules, rule_codes, with_derived
from common.model.structural_zeros import StructuralZero
from common.planning.synthetic import MOST_ATTRIBUTES
from common.release.counts import COUNTS_FILE, check_drawn
from common.release.data_files import (
    check_derived_values,
    check_sizes,
    csv_tables,
    label_bytes,
    open_parquet,
    parquet_pieces,
    read_counts,
    units_within,
)
from common.release.step import step
from common.release.table import describe_field
from common.release.values import columns_of, release_type
from common.synthesis.binning import all_pairs
from common.synthesis.records import SyntheticRelease
from common.synthesis.sample import MOST_RECORDS
from common.synthesis.schedule import METHOD, Design, RoundSums, check_design
from common.words.numbers import cost_text
from common.words.product import derived
from common.words.synthetic import exclusions, invariants, promises

_LARGEST_REPORT = 1 << 24
"""Bytes."""
_HINT = "do not use these files; get them again from who made them"
_step = partial(step, hint=_HINT, others=(OSError, pa.ArrowException, ArithmeticError))


def report_path(table: Path) -> Path:
    """Return the path of the report of a table."""
    return table.with_name(f"{table.name}.report.json")


def counts_path(table: Path) -> Path:
    """Return the path of the noisy counts of a synthetic table."""
    return table.with_name(f"{table.name}.{COUNTS_FILE}")


def records_table(made: SyntheticRelease, following: Sequence[Attribute] = ()) -> pa.Table:
    """Return the records as a table of release types, with descriptions of the columns."""
    design = made.measured.design
    cost = cost_text(design.epsilon, design.delta)
    how = f"made of noisy counts, {cost} for the whole record"
    released = with_derived(design.attributes, following)
    columns = columns_of(released, made.units)
    return pa.table(
        columns, schema=pa.schema([describe_field(each, each.origin or how) for each in released])
    )


def report_of(
    measured: RoundSums, zeros: Sequence[StructuralZero] = (), following: Sequence[Attribute] = ()
) -> dict[str, Any]:
    """Return what a report says of how records were made; the rest names work, owner and files."""
    design = measured.design
    return {
        "product": str(Product.SYNTHETIC),
        "version": __version__,
        "method": METHOD,
        "epsilon": design.epsilon,
        "delta": design.delta,
        "records": design.n_records,
        "order": "drawn",
        "schema": [each.to_document() for each in design.attributes],
        "attributes": [each.name for each in design.attributes],
        **({"structural_zeros": [each.to_document() for each in zeros]} if zeros else {}),
        **({"following": [each.to_document() for each in following]} if following else {}),
        "relations": [[design.attributes[i].name for i in pair] for pair in design.pairs],
        "seed": measured.seed.hex(),
        "promises": [*promises(design.epsilon, design.delta), *exclusions(zeros), *derived(following)],
        "invariants": list(invariants(design.n_records)),
    }


@dataclass(frozen=True, slots=True)
class VerifiedTable:
    """A synthetic table whose files were found to belong together."""

    made: SyntheticRelease
    """The release, made again from its noisy counts."""
    report: Mapping[str, Any]
    following: tuple[Attribute, ...] = ()
    """Attributes that are derived from drawn ones."""

    @property
    def design(self) -> Design:
        """All that the table follows from, without the noisy counts."""
        return self.made.measured.design

    @property
    def released(self) -> tuple[Attribute, ...]:
        """All attributes in the order of the columns."""
        return with_derived(self.design.attributes, self.following)

    def to_document(self) -> dict[str, Any]:
        """Return what `verify --json` shows."""
        shown = ("id", "epsilon", "delta", "records", "seed", "promises", "invariants")
        return {"holds": True, **{key: self.report[key] for key in shown}}

    def to_lines(self) -> tuple[str, ...]:
        """Return the lines that `verify` prints."""
        n_counts = sum(each.size for each in self.made.measured.sums)
        names = ", ".join(each.name for each in self.released)
        return (
            f"synthetic table {self.report['id']}: its records follow from {n_counts:,} noisy counts",
            f"{self.design.n_records:,} records of {names}",
            f"for the whole record of a person: {cost_text(self.design.epsilon, self.design.delta)}",
            "note: the files are not signed: that they come from their owner is not checked",
        )


def verify_table(
    path: Path, ca: Path | None = None, owners: Mapping[str, str] | None = None
) -> VerifiedTable:
    """Check that a synthetic table is whole, and that its records follow from its noisy counts.

    Args:
        path: The records, .csv or .parquet; counts and report are beside them.
        ca: As in `common.release.verification.verify_release`: for releases alone.
        owners: Likewise.

    Raises:
        UsageError: If it is not a synthetic table with its report, or signatures are to be checked.
        IntegrityError: Naming the first thing that does not hold.
    """
    if ca is not None or owners:
        raise UsageError(
            f"the files of {path} are not signed, so no CA and no fingerprint can be checked",
            "leave both out, and ask the owner of the table whether it is theirs",
        )
    report = _read_report(path)
    counts_at = counts_path(path)
    with _step(report_path(path).name):
        digests = {path: report["file"]["sha256"], counts_at: report["counts"]["sha256"]}
    for each, expected in digests.items():
        if not each.is_file() or each.is_symlink():
            raise IntegrityError(f"{each.name} is missing", _HINT)
        if file_digest(each) != expected:
            raise IntegrityError(f"{each.name} was changed: its digest is not that of the report", _HINT)
    # Nothing is computed of a report whose files are others, which is cheap to make.
    with _step(report_path(path).name):
        if report["method"] != str(METHOD):
            raise IntegrityError(f"version {report['version']} drew records otherwise: verify with that one")
        zeros = tuple(StructuralZero.from_document(rule) for rule in report.get("structural_zeros", ()))
        design = _design_of(report, zeros)
        following = tuple(Attribute.from_document(each) for each in report.get("following", ()))
        if fault := fault_of_derived(following, design.attributes):
            raise IntegrityError(fault)
    released = with_derived(design.attributes, following)
    units = dict(
        zip((each.name for each in released), _read_records(path, released, design.n_records), strict=True)
    )
    with _step(path.name):
        check_derived_values(released, units)
    codes = [units[each.name] - each.lower for each in design.attributes]
    counts = read_counts(counts_at, design.attributes)
    made = check_drawn(design, str(report["seed"]), counts, codes)
    with _step(report_path(path).name):
        expected_report = json.loads(canonical(report_of(made.measured, zeros, following)))
        # The wording may change between versions: only the same version can compare it.
        worded = () if report["version"] == __version__ else ("version", "promises", "invariants")
        for key in expected_report.keys() - set(worded):
            if report[key] != expected_report[key]:
                raise IntegrityError(f"its {key} are not those of this table")
    return VerifiedTable(made, report, following)


def _read_report(path: Path) -> dict[str, Any]:
    report_file = report_path(path)
    if not path.is_file() or not report_file.is_file():
        raise UsageError(
            f"{path} is not a synthetic table with its report",
            f"name the file of the records; {report_file.name} has to be beside it",
        )
    with _step(report_file.name):
        if report_file.stat().st_size > _LARGEST_REPORT:
            raise IntegrityError("it is larger than a report can be")
        report: dict[str, Any] = parse_json(report_file.read_bytes())
        product = report.get("product")
    if product != Product.SYNTHETIC:
        raise UsageError(
            f"{path} is not a synthetic table: masked records do not follow from what is published",
            "only their owner knows that they are as they were masked",
        )
    if "seed" not in report:
        raise UsageError(
            f"{path} was made by version {report.get('version')}, which published no counts",
            "make a new table",
        )
    return report


def _design_of(report: Mapping[str, Any], zeros: Sequence[StructuralZero]) -> Design:
    attributes = tuple(Attribute.from_document(attribute) for attribute in report["schema"])
    n_records = read_whole_number(report["records"])
    if not 1 <= len(attributes) <= MOST_ATTRIBUTES or not 0 < n_records <= MOST_RECORDS:
        raise IntegrityError("no synthetic table has so many attributes or records")
    epsilon, delta = (read_decimal(report[name]) for name in ("epsilon", "delta"))
    if not is_share(epsilon) or not 0 <= delta < 1:
        raise IntegrityError("its ε or δ is none")
    if fault := fault_of_rules(zeros, attributes):
        raise IntegrityError(fault)
    rules = tuple(rule_codes(rule, attributes) for rule in zeros)
    places = {each.name: place for place, each in enumerate(attributes)}
    pairs = tuple(tuple(map(places.__getitem__, pair)) for pair in report["relations"])
    if list(pairs) != sorted(set(pairs)) or not set(pairs) <= set(all_pairs(len(attributes))):
        raise IntegrityError("its relations are not those of this table")
    # One attribute has no pairs, and several have some.
    named = () if pairs == tuple(all_pairs(len(attributes))) else pairs
    if bool(pairs) is not (len(attributes) > 1):
        raise IntegrityError("its relations are not those of this table")
    design = Design(attributes, n_records, epsilon, delta, rules=rules, named_pairs=named)
    check_design(design)
    return design


def _read_records(path: Path, released: Sequence[Attribute], n_records: int) -> list[Int64Array]:
    """Return the values of every attribute, in resolution units, `(n_records,)` each."""
    pieces = list(_record_pieces(path, released, n_records))
    found = [
        np.concatenate([units_within(path.name, piece, each).to_numpy() for piece in pieces])
        for each in released
    ]
    if found[0].size != n_records:
        raise IntegrityError(f"{path.name} has {found[0].size} records, its report states {n_records}")
    return found


def _record_pieces(path: Path, released: Sequence[Attribute], n_records: int) -> Iterator[pa.Table]:
    names = [each.name for each in released]
    with _step(path.name):
        if path.suffix.lower() == ".parquet":
            types = [release_type(each) for each in released]
            with open_parquet(path) as file:
                schema, metadata = file.schema_arrow, file.metadata
            if (schema.names, schema.types) != (names, types) or metadata.num_rows != n_records:
                raise IntegrityError("its columns, or its number of records, are not those of the report")
            check_sizes(path, metadata, label_bytes(released))
            yield from parquet_pieces(path)
            return
        for piece in csv_tables(path, released):
            if piece.column_names != names:
                raise IntegrityError("its columns are not those of the report")
            yield piece
