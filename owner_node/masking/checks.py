"""What would make masking fail, found before anything is spent on it."""

from collections.abc import Mapping, Sequence

import numpy as np

from common.errors import DataError, UnusableDataError, UsageError
from common.privacy import MECHANISMS, is_rank_noise, smallest_k
from common.schema import Attribute
from owner_node.masking.arrays import Int64Array
from owner_node.masking.tasks import AttributeTask, mechanism_of


def check_table(columns: Mapping[str, Int64Array], tasks: Sequence[AttributeTask]) -> None:
    """Raise whatever would make `mask_table` fail; to be called before anything is spent.

    Args:
        columns: As in `mask_table`.
        tasks: As in `mask_table`.

    Raises:
        UsageError: If a setting makes no sense: k, epsilon, mechanism, an attribute twice.
        DataError: If a column is absent, has another length, or values outside its domain.
        UnusableDataError: If there are fewer records than k, or a domain is too wide for exact sums.
    """
    names = [task.attribute.name for task in tasks]
    if len(set(names)) != len(names):
        raise UsageError("an attribute is to be masked twice", "name every attribute once")
    absent = [name for name in names if name not in columns]
    if absent:
        raise DataError(f"no column for: {', '.join(absent)}", "load every attribute that is to be masked")
    if len({columns[name].size for name in names}) > 1:
        raise DataError("columns differ in their number of records", "load all attributes from one source")
    for task in tasks:
        check_attribute(columns[task.attribute.name], task)


def check_attribute(values: Int64Array, task: AttributeTask) -> None:
    """Raise whatever would make `mask_attribute` fail; arguments and errors as in `check_table`."""
    check_setting(values.size, task)
    check_domain(values, task.attribute)


def check_setting(n_records: int, task: AttributeTask) -> None:
    """Raise what would make masking so many records fail, whatever their values are.

    Args:
        n_records: Number of records.
        task: How they are masked.

    Raises:
        UsageError, UnusableDataError: As `check_table` says.
    """
    name, setting = task.attribute.name, task.setting
    _check_taxonomy(task)
    chosen = mechanism_of(task)
    _check_k(task)
    _check_rank_noise(task)
    if n_records < setting.k:
        k = "" if task.k is None else f", k = {task.k}"
        raise UnusableDataError(
            f"{n_records} records{k}: at least {setting.k} are needed",
            "ask for a smaller k, or leave this owner out",
            {"attribute": name, "records": n_records, "k": task.k},
        )
    chosen.check(setting)


def _check_k(task: AttributeTask) -> None:
    name = task.attribute.name
    needed = smallest_k(task.mechanism, task.max_records_per_person)
    if needed is None:
        if task.k is not None:
            raise UsageError(
                f"attribute {name!r}: {task.mechanism} makes no clusters and takes no k",
                "leave k out, or choose a mechanism that makes clusters",
                {"attribute": name, "k": task.k},
            )
    elif task.k is None or task.k < needed:
        found = "no k is given" if task.k is None else f"k = {task.k} is too small"
        raise UsageError(
            f"attribute {name!r}: {found}, {task.mechanism} takes at least {needed}",
            f"ask for k of at least {needed}",
            {"attribute": name, "k": task.k, "least": needed},
        )


def _check_rank_noise(task: AttributeTask) -> None:
    name, rank_noise = task.attribute.name, task.rank_noise
    if not is_rank_noise(rank_noise):
        raise UsageError(
            f"attribute {name!r}: rank noise is a share of the ranks, not {rank_noise}",
            "give a decimal number from 0 to 1, for example 0.03",
            {"attribute": name},
        )
    if rank_noise and not MECHANISMS[task.mechanism].listed:
        raise UsageError(
            f"attribute {name!r}: {task.mechanism} releases no list in rank order and takes no rank noise",
            "leave rank noise out, or choose another mechanism",
            {"attribute": name},
        )


def check_domain(values: Int64Array, attribute: Attribute) -> None:
    """Raise if values are not within the domain of their attribute.

    Args:
        values: `(n_records,)`, at least one, in resolution units.
        attribute: The attribute.

    Raises:
        DataError: As `check_table` says.
    """
    if values.dtype != np.int64 or values.ndim != 1:
        raise DataError(f"attribute {attribute.name!r}: not a column of 64-bit integers")
    if int(values.min()) >= attribute.lower and int(values.max()) <= attribute.upper:
        return
    outside = int(np.count_nonzero((values < attribute.lower) | (values > attribute.upper)))
    raise DataError(
        f"attribute {attribute.name!r}: {outside} of {values.size} values are outside the declared domain",
        'correct the source, declare a wider domain, or set outside = "clamp"',
        {"attribute": attribute.name, "outside": outside, "records": int(values.size)},
    )


def _check_taxonomy(task: AttributeTask) -> None:
    attribute, taxonomy = task.attribute, task.taxonomy
    n_expected = attribute.n_values if attribute.taxonomy else None
    n_found = taxonomy.n_categories if taxonomy is not None else None
    if n_found != n_expected:
        raise UsageError(
            f"attribute {attribute.name!r}: the taxonomy that was read is not the one it was declared with",
            "declare the hierarchy file as taxonomy of the attribute",
            {"attribute": attribute.name, "categories": n_found, "expected": n_expected},
        )
