"""The shape of `[dataset.attributes.NAME]` in the file, and its way to `common.schema.Attribute`."""

from collections.abc import Iterator, Mapping
from datetime import date
from decimal import Decimal, InvalidOperation
from typing import Annotated, Any, Literal, Self

from pydantic import Field, PlainValidator, model_validator

from common.schema import Attribute, AttributeType, CategoryOrder, to_units
from common.setting_types import Names, not_yet
from common.settings import Contradictions, Section, shown

_MOST_DIGITS = 28
"""Digits that a decimal keeps exactly when it is scaled; a domain of 64-bit integers has fewer."""
_SMALLEST, _LARGEST = -(2**63), 2**63 - 1
_QUOTE = '"'
_RANGED = ("number", "integer", "date")
_GOES_WITH = {
    "min": _RANGED,
    "max": _RANGED,
    "decimals": ("number",),
    "categories": ("category",),
    "ordered": ("category",),
    "order": ("category",),
}
_NEEDED: dict[str, tuple[str, ...]] = {
    "number": ("min", "max", "decimals"),
    "integer": ("min", "max"),
    "date": ("min", "max"),
    "category": ("categories",),
    "boolean": (),
}
_ACCEPTED = {
    "number": "a number",
    "integer": "a whole number",
    "date": "a date such as 2026-12-31",
}


def _bound(value: object) -> str:
    """Take one end of a domain, a number or a date, as text."""
    if isinstance(value, int | Decimal | str) and not isinstance(value, bool):
        return str(value)
    if type(value) is date:
        return value.isoformat()
    raise ValueError("expected a number or a date")


Bound = Annotated[str, PlainValidator(_bound)]


class AttributeTable(Section):
    """One declared attribute."""

    type: Literal["integer", "number", "date", "category", "boolean"] = Field(
        description='one of "integer", "number", "date", "category" or "boolean"'
    )
    min: Bound | None = None
    max: Bound | None = None
    decimals: int | None = Field(default=None, ge=0, le=18)
    outside: Literal["error", "clamp"] = "error"
    categories: Annotated[Names, Field(min_length=1)] | None = None
    ordered: bool = False
    order: Literal["declared", "frequency"] = "declared"
    taxonomy: Annotated[Any, not_yet()] = None
    method: Annotated[Any, not_yet()] = None

    @model_validator(mode="after")
    def _fits_together(self) -> Self:
        if found := [*self._ends()]:
            raise Contradictions(found)
        return self

    def _ends(self) -> Iterator[tuple[str, str]]:
        ends = {"min": self.min, "max": self.max} if self.type in _RANGED else {}
        units = {}
        for key, text in ends.items():
            if text is None:
                continue
            try:
                units[key] = self._units(text)
            except ValueError as problem:
                yield key, f" = {shown(key, text).strip(_QUOTE)}: {problem}"
        if len(units) < 2:
            return
        if units["min"] > units["max"]:
            yield "min", f" = {self.min}: above max, {self.max}"
        elif units["min"] < _SMALLEST or units["max"] > _LARGEST or units["max"] - units["min"] >= _LARGEST:
            yield "", "the domain from min to max has more values than 64-bit integers can count"

    def _units(self, text: str) -> int:
        kind = AttributeType(self.type)
        expected = f"expected {_ACCEPTED[self.type]}"
        if kind is AttributeType.DATE:
            try:
                return to_units(kind, text)
            except ValueError:
                raise ValueError(expected) from None
        try:
            value = Decimal(text)
        except InvalidOperation:
            raise ValueError(expected) from None
        if not value.is_finite():
            raise ValueError(expected)
        if len(value.as_tuple().digits) > _MOST_DIGITS or abs(value.adjusted()) > _MOST_DIGITS:
            raise ValueError(f"expected at most {_MOST_DIGITS} digits")
        try:
            return to_units(kind, text, self.decimals or 0)
        except ValueError:
            places = f"a number with {self.decimals} decimals or fewer" if self.decimals else "a whole number"
            raise ValueError(f"expected {places}") from None

    def attribute(self, name: str) -> Attribute:
        """Return the run-time form under the attribute's name."""
        kind = AttributeType(self.type)
        if kind is AttributeType.BOOLEAN:
            return Attribute(name, kind, 0, 1)
        if kind is AttributeType.CATEGORY:
            labels, order = tuple(self.categories or ()), CategoryOrder(self.order)
            return Attribute(
                name, kind, 0, len(labels) - 1, categories=labels, ordered=self.ordered, order=order
            )
        lower, upper = (self._units(end or "") for end in (self.min, self.max))
        return Attribute(name, kind, lower, upper, self.decimals or 0, self.outside)


def unfitting(table: Mapping[str, object]) -> Iterator[tuple[str, str]]:
    """Find the keys that a type needs and those that it has no use for, in a table as it was read.

    Returns:
        Pairs of a key and what is wrong with it; none if the type itself is unknown.
    """
    kind = table.get("type")
    if not isinstance(kind, str) or kind not in _NEEDED:
        return
    for key, kinds in _GOES_WITH.items():
        if key in table and kind not in kinds:
            yield key, f"goes with type {' or '.join(kinds)}, not with {kind}"
    if table.get("outside") == "clamp" and kind not in _RANGED:
        yield "outside", f'"clamp" goes with type {" or ".join(_RANGED)}, not with {kind}'
    for key in _NEEDED[kind]:
        if key not in table:
            yield key, f"missing; type {kind} needs it"
