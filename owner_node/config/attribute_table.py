"""The shape of `[dataset.attributes.NAME]` in the file, and its way to `common.model.schema.Attribute`."""

from collections.abc import Iterator, Mapping
from datetime import date
from decimal import Decimal, InvalidOperation
from typing import TYPE_CHECKING, Annotated, Literal, Self

from pydantic import Field, PlainValidator, ValidationInfo, model_validator

from common.daemon.settings import Names, parse_path
from common.model.schema import Attribute, AttributeType, CategoryOrder, TaxonomyMethod, to_units
from common.settings import Contradictions, Section, shown

if TYPE_CHECKING:
    from owner_node.values.taxonomy import Taxonomy

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
    "taxonomy": ("category",),
    "method": ("category",),
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


def _hierarchy(value: object, info: ValidationInfo) -> Mapping[str, tuple[str, ...]]:
    """Take the path of a hierarchy file as what is in it."""
    from owner_node.values.taxonomy import read_hierarchy

    try:
        text = parse_path(value, info).read_text(encoding="utf-8")
    except UnicodeDecodeError:
        raise ValueError("it is not encoded in UTF-8") from None
    except OSError as problem:
        raise ValueError(f"it cannot be read: {problem.strerror}") from None
    return read_hierarchy(text)


Bound = Annotated[str, PlainValidator(_bound)]
Hierarchy = Annotated[Mapping[str, tuple[str, ...]], PlainValidator(_hierarchy)]


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
    taxonomy: Hierarchy | None = None
    method: Literal["rank", "exponential"] | None = None

    @model_validator(mode="after")
    def _fits_together(self) -> Self:
        if found := [*self._ends(), *self._taxonomy()]:
            raise Contradictions(found)
        return self

    @property
    def labels(self) -> tuple[str, ...]:
        """The categories in declared order; those of the taxonomy, line by line, if none are listed."""
        return tuple(self.categories or self.taxonomy or ())

    def tree(self) -> "Taxonomy | None":
        """Return the taxonomy of the categories, if there is one.

        Raises:
            MalformedTaxonomy: If it has other categories than are declared.
        """
        from owner_node.values.taxonomy import taxonomy_of

        return taxonomy_of(self.taxonomy, self.labels) if self.taxonomy is not None else None

    def _taxonomy(self) -> Iterator[tuple[str, str]]:
        if self.taxonomy is None:
            if self.method is not None:
                yield "method", "goes with a taxonomy, and there is none"
            return
        if self.order == "frequency":
            yield "order", '"frequency" does not go with a taxonomy, which has an order of its own'
        try:
            self.tree()
        except ValueError as problem:
            yield "taxonomy", str(problem)

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
            tree = self.tree()
            return Attribute(
                name,
                kind,
                0,
                len(self.labels) - 1,
                categories=self.labels,
                ordered=self.ordered,
                order=CategoryOrder(self.order),
                taxonomy=tree.digest if tree is not None else "",
                method=TaxonomyMethod(self.method or TaxonomyMethod.RANK),
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
        if key not in table and (key, "taxonomy" in table) != ("categories", True):
            yield key, f"missing; type {kind} needs it"
