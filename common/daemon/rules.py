"""Values of rules in configuration files: what they exclude, and what follows from what."""

from datetime import date
from decimal import Decimal
from typing import Annotated

from pydantic import PlainValidator

from common.model.schema import MISSING_CATEGORY


def parse_bound(value: object) -> str:
    """Return one end of a domain, a number or a date, as text."""
    if isinstance(value, int | Decimal | str) and not isinstance(value, bool):
        return str(value)
    if type(value) is date:
        return value.isoformat()
    raise ValueError("expected a number or a date")


def _parse_excluded(value: object) -> tuple[tuple[str, str], ...]:
    """Return the values or ranges that a rule excludes of one attribute; an end that is left out is ""."""
    if isinstance(value, dict) and value and value.keys() <= {"min", "max", "missing"}:
        missing = value.get("missing", False)
        if not isinstance(missing, bool):
            raise ValueError("expected missing = true, or missing = false for every other value")
        # Without ends a range is every value that is not missing.
        ends = [tuple(parse_bound(value[end]) if end in value else "" for end in ("min", "max"))]
        if missing:
            ends = [*ends[: value.keys() != {"missing"}], (MISSING_CATEGORY, MISSING_CATEGORY)]
        return tuple((lowest, highest) for lowest, highest in ends)
    if isinstance(value, list) and value:
        labels = [str(item).lower() if isinstance(item, bool) else parse_bound(item) for item in value]
        return tuple((label, label) for label in labels)
    raise ValueError(
        'expected values, such as ["yes", "no"], a range, such as { max = 15 }, or { missing = true }'
    )


def _followed(value: object) -> dict[str, str]:
    """Return a table of values by the values that they follow from."""
    if not isinstance(value, dict) or not value:
        raise ValueError('expected values by those that they follow from, such as { "HS-grad" = 9 }')
    return {
        str(key): str(each).lower() if isinstance(each, bool) else parse_bound(each)
        for key, each in value.items()
    }


Followed = Annotated[dict[str, str], PlainValidator(_followed)]
Excluded = Annotated[tuple[tuple[str, str], ...], PlainValidator(_parse_excluded)]
