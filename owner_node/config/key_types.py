"""The types that keys of an owner's configuration have, beside those of both daemons."""

from collections.abc import Sequence
from datetime import date
from decimal import Decimal
from typing import Annotated

from pydantic import AfterValidator, BeforeValidator, PlainValidator

from common.daemon.settings import LABEL, distinct_names, parse_address, parse_bound, reject
from common.errors import UsageError
from common.model.privacy import parse_epsilon, read_decimal
from common.settings import Listed, nearest, value_text

_EPSILON = 'expected a positive decimal such as 0.5 or "0.5", up to 1000000, with at most 12 decimal places'
_SHARE = 'expected a share from 0 to 1 such as 0.2 or "0.2"'


def _epsilon(value: object) -> Decimal:
    if isinstance(value, bool | float) or not isinstance(value, str | int | Decimal):
        reject(_EPSILON)
    try:
        return parse_epsilon(str(value))
    except UsageError:
        raise ValueError(_EPSILON) from None


def _share(value: object) -> Decimal:
    """Read a share from 0 to 1: a decimal, exact as it was written."""
    if isinstance(value, bool | float) or not isinstance(value, str | int | Decimal):
        reject(_SHARE)
    try:
        share = read_decimal(str(value))
    except ValueError:
        raise ValueError(_SHARE) from None
    return share if share.is_finite() and 0 <= share <= 1 else reject(_SHARE)


def _date(value: object) -> date:
    if type(value) is date:
        return value
    try:
        return date.fromisoformat(value) if isinstance(value, str) else reject("")
    except ValueError:
        raise ValueError("expected a date such as 2026-12-31") from None


def _label(value: object) -> str:
    ok = isinstance(value, str) and LABEL.fullmatch(value)
    return str(value) if ok else reject("expected letters, digits, '.', '-' and '_', at most 64")


def _dial(value: str) -> str:
    return value if int(value.rpartition(":")[2]) > 0 else reject("expected a port from 1 to 65535")


def _one_or_several(value: object) -> object:
    return [value] if isinstance(value, str) else value


def one_of(accepted: Sequence[str]) -> AfterValidator:
    """Return the validator of a list whose entries are accepted names."""

    def check(names: tuple[str, ...]) -> tuple[str, ...]:
        for name in names:
            if name not in accepted:
                reject(f"{value_text('', name)} is unknown; {nearest(name, accepted)}")
        return names

    return AfterValidator(check)


Epsilon = Annotated[Decimal, PlainValidator(_epsilon)]
Share = Annotated[Decimal, PlainValidator(_share)]
Date = Annotated[date, PlainValidator(_date)]
Label = Annotated[str, PlainValidator(_label)]
Bound = Annotated[str, PlainValidator(parse_bound)]
DialAddress = Annotated[str, PlainValidator(parse_address), AfterValidator(_dial)]
OneOrSeveralNames = Annotated[Listed[str], BeforeValidator(_one_or_several), AfterValidator(distinct_names)]
