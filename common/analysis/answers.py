"""Answers to what analysts ask of a release, laid out alike for both products.

Every answer is a table with a line per estimate:

| column | meaning |
|---|---|
| `released` | what plain software says of the released records |
| `estimate` | what it says of the original records, as far as anything public tells |
| `standard_error` | of the noise, and of sampling where that is asked for |
| `low`, `high` | the interval of `estimate`; infinite where nothing bounds it |
| `note` | reason for an open interval or a missing estimate; the share of missing values; else empty |

A line of dates has dates, and its standard error is in days.
"""

import re
from collections.abc import Iterable, Sequence
from datetime import date, timedelta
from typing import TYPE_CHECKING

import numpy as np

from common.arrays import Float64Array
from common.errors import UsageError
from common.model.schema import Attribute, AttributeType

if TYPE_CHECKING:
    import pandas as pd

COLUMNS = ("released", "estimate", "standard_error", "low", "high", "note")
_LEAST_SHOWN = 0.001
"""Smallest share of missing values that a note has in digits."""
_EPOCH = date(1970, 1, 1)


def answer(
    index: "pd.Index",
    released: Float64Array,
    estimates: Float64Array,
    errors: Float64Array,
    reach: float,
    bounds: tuple[float, float] | None = None,
) -> "pd.DataFrame":
    """Return an answer with symmetrical intervals.

    Args:
        index: Names of the lines.
        released: `(n_lines,)`, as the others.
        errors: Standard errors; an infinite one gives an open interval.
        reach: How many of them an interval reaches to either side.
        bounds: What no estimate is below or above.
    """
    import pandas as pd

    low, high = estimates - reach * errors, estimates + reach * errors
    columns = (released, estimates, errors, low, high, "")
    table = pd.DataFrame(dict(zip(COLUMNS, columns, strict=True)), index=index)
    return bounded(table, *bounds) if bounds else table


def bounded(table: "pd.DataFrame", least: float, most: float) -> "pd.DataFrame":
    """Return an answer whose estimates and intervals are within bounds.

    An estimate outside of them is moved to the nearest one with its interval, which would else have no width.
    """
    moved = table["estimate"].clip(least, most) - table["estimate"]
    sides = ("estimate", "low", "high")
    return table.assign(**{side: (table[side] + moved).clip(least, most) for side in sides})


def refused(name: str, reason: str) -> "pd.DataFrame":
    """Return a line without an estimate."""
    import pandas as pd

    return pd.DataFrame([[np.nan] * 5 + [reason]], columns=list(COLUMNS), index=[name])


def joined(lines: Sequence["pd.DataFrame"], name: str) -> "pd.DataFrame":
    """Return one answer of several, its index named."""
    import pandas as pd

    if not lines:
        raise UsageError("nothing is asked for", "name an attribute")
    return pd.concat(lines).rename_axis(name)


def with_dates(table: "pd.DataFrame", of_dates: Sequence[bool]) -> "pd.DataFrame":
    """Return an answer whose lines of dates, in days since 1970-01-01, have dates."""
    if not any(of_dates):
        return table
    table = table.astype(dict.fromkeys(("released", "estimate", "low", "high"), object))
    for place in np.flatnonzero(of_dates):
        for name in ("released", "estimate", "low", "high"):
            days = table[name].iloc[place]
            if np.isfinite(days):
                table.iloc[int(place), list(table.columns).index(name)] = _EPOCH + timedelta(
                    days=round(float(days))
                )
    return table


def within(table: "pd.DataFrame", attribute: Attribute) -> "pd.DataFrame":
    """Return an answer whose estimates and intervals are within the domain of an attribute."""
    unit = 1.0 if attribute.is_categorical else float(attribute.unit)
    return bounded(table, attribute.lower * unit, attribute.upper * unit)


def with_missing(table: "pd.DataFrame", share: float) -> "pd.DataFrame":
    """Return an answer about the values that are present, whose lines say which share is missing."""
    shown = f"{share:.1%}" if share >= _LEAST_SHOWN else f"less than {_LEAST_SHOWN:.1%}"
    return table.assign(note=f"of present values; {shown} are missing") if share else table


def with_open(table: "pd.DataFrame") -> "pd.DataFrame":
    """Return an answer of log odds whose lines without a finite estimate have open intervals.

    Their regressors may tell apart all records with the event, or without it.
    """
    numbers = table[["estimate", "standard_error", "low", "high"]].to_numpy(dtype=np.float64)
    separated = ~np.isfinite(numbers).all(axis=1)
    table.loc[separated, ["estimate", "standard_error", "low", "high"]] = [np.nan, np.inf, -np.inf, np.inf]
    table.loc[separated, "note"] = "it may tell apart all records with the event: nothing bounds its odds"
    return table


def is_numeric(attribute: Attribute) -> bool:
    """Return whether the values of an attribute are numbers, or 0 and 1."""
    return not attribute.is_categorical or attribute.n_values == 2


def is_date(attribute: Attribute) -> bool:
    """Return whether an attribute has dates."""
    return attribute.type is AttributeType.DATE


def check_confidence(confidence: object) -> None:
    """Raises UsageError if it is not between 0 and 1."""
    if not isinstance(confidence, int | float) or not 0 < confidence < 1:
        raise UsageError(f"confidence = {confidence!r} is not between 0 and 1", "for example 0.95")


def names_of(names: object) -> list[str]:
    """Return one name, or several, as a list.

    Raises:
        UsageError: If one is not text, is named twice, or is an interaction.
    """
    texts = different(names)
    if crossed := [name for name in texts if ":" in name or "*" in name]:
        raise UsageError(
            f"{crossed[0]!r} is an interaction, which only models have",
            'name attributes; in a model, on=["age", "sex", "age:sex"]',
        )
    return texts


def regressors_of(on: object) -> list[str]:
    """Return the regressors of a model: "age*sex" stands for "age", "sex" and their interaction "age:sex".

    "sex:age" is the same interaction, and is there once.

    Raises:
        UsageError: If one is not text, is named twice, or is not an interaction of two attributes.
    """
    found: dict[frozenset[str], str] = {}
    for name in different(on):
        parts = [part.strip() for part in re.split("[:*]", name)]
        if len(parts) > 2 or not all(parts) or len(set(parts)) < len(parts):
            raise UsageError(
                f"{name!r} is not an interaction of two attributes",
                'for example on=["age", "sex", "age:sex"]',
            )
        for each in (*([part] for part in parts), parts) if "*" in name else (parts,):
            found.setdefault(frozenset(each), ":".join(each))
    return list(found.values())


def parts_of_regressors(names: Iterable[str]) -> list[str]:
    """Return the attributes of regressors, each once."""
    return list(dict.fromkeys(part for name in names for part in name.split(":")))


def different(names: object) -> list[str]:
    """Return one name, or several, as a list; raises UsageError if one is not text, or is named twice."""
    found = list(names) if isinstance(names, Iterable) and not isinstance(names, str) else [names]
    texts = [name for name in found if isinstance(name, str)]
    if wrong := [name for name in found if not isinstance(name, str)]:
        raise UsageError(f"{wrong[0]!r} is not the name of an attribute", 'for example ["age", "sex"]')
    if len(set(texts)) != len(texts):
        raise UsageError("an attribute is named twice", "name every attribute once")
    return texts


def numbers_of(asked: float | Sequence[float]) -> Float64Array:
    """Return one number, or several, `(n_numbers,)`; raises UsageError if they are not numbers."""
    try:
        return np.atleast_1d(np.asarray(asked, dtype=np.float64))
    except (TypeError, ValueError):
        raise UsageError(f"{asked!r} are not numbers", "for example [0.1, 0.5]") from None


def quantile_shares(at: float | Sequence[float]) -> Float64Array:
    """Return shares of the records below quantiles; raises UsageError unless they are between 0 and 1."""
    shares = numbers_of(at)
    if not shares.size or not ((shares > 0) & (shares < 1)).all():
        raise UsageError("shares of quantiles are between 0 and 1", "for example at=[0.1, 0.5]")
    return shares


def event_code(attribute: Attribute, event: str | bool | None) -> int:  # noqa: FBT001
    """Return the code, from 0, of the label whose odds are asked for.

    Raises:
        UsageError: If the attribute has no such label.
    """
    if not attribute.is_categorical:
        raise UsageError(f"the response {attribute.name!r} is neither boolean nor category", "use regress")
    if event is None and attribute.n_values == 2:
        return 1
    labels = attribute.labels
    text = str(event).lower() if isinstance(event, bool) else event
    if text not in labels:
        what = "needs an event" if event is None else f"has no category {event!r}"
        raise UsageError(f"the response {attribute.name!r} {what}", f"event is one of: {', '.join(labels)}")
    return labels.index(text)
