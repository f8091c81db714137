"""Schemas become a plan, or all the reasons why they do not fit together.

References:
    Del Vasto-Terrientes et al. 2025, §4.2 (steps of a release) and Theorems 1 and 2 (composition).
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from decimal import Context, Decimal

from aggregator.comparison import differences, missing_identifiers
from aggregator.protocol.request import Request
from common.errors import ConflictError, UnusableDataError, UsageError
from common.plan import Layout, Linking, Plan, PlannedAttribute, Task
from common.privacy import MECHANISMS, epsilon_joint, plain, share, smallest_k
from common.schema import Attribute, CategoryOrder, Schema

RESERVED = ("record", "token")
"""Names of columns that the release or a fragment has anyway."""
_SIX_DIGITS = Context(prec=6)


@dataclass(frozen=True, slots=True)
class Conflict:
    """One reason why the owners' schemas do not fit."""

    owner: str
    """Owner id; empty if no single owner is meant."""
    attribute: str
    """Attribute name; empty if none is meant."""
    what: str
    """What differs."""
    fix: str
    """What would resolve it."""

    def __str__(self) -> str:
        """Return the line that an operator reads."""
        place = ", ".join(
            part
            for part in (
                f"owner {self.owner}" if self.owner else "",
                f"attribute {self.attribute}" if self.attribute else "",
            )
            if part
        )
        return f"{place}: {self.what} ({self.fix})" if place else f"{self.what} ({self.fix})"


def conflicts(request: Request, schemas: Mapping[str, Schema]) -> tuple[Conflict, ...]:
    """Compare the owners' schemas.

    Args:
        request: What the operator asked for.
        schemas: Every owner's schema by owner id.

    Returns:
        Every conflict; empty if the schemas fit.
    """
    held = {name for owner in request.owners for name in schemas[owner].names}
    unknown = [name for name in request.attributes if name not in held]
    if unknown:
        # What else does not fit may well follow from the name that nobody has.
        return tuple(
            Conflict("", name, "no owner has it", "check its spelling in --attributes") for name in unknown
        )
    found: list[Conflict] = []
    for owners in request.groups:
        found += _within(request, owners, schemas)
    found += _between(request, schemas)
    found += [
        Conflict(owner, "", what, fix)
        for owner, what, fix in missing_identifiers(
            {owner: schemas[owner].identifier for owner in request.owners}, needed=len(request.groups) > 1
        )
    ]
    return tuple(dict.fromkeys(found))


def conflict_error(found: Sequence[Conflict]) -> ConflictError:
    """Return the error that tells all conflicts together."""
    lines = "".join(f"\n  {conflict}" for conflict in found)
    return ConflictError(
        f"the owners' data sets do not fit together, {len(found)} conflicts:{lines}"
        if len(found) > 1
        else f"the owners' data sets do not fit together: {found[0]}",
        "settle them in the owners' configurations, or choose attributes with --attributes",
        {
            "conflicts": [
                {"owner": each.owner, "attribute": each.attribute, "what": each.what, "fix": each.fix}
                for each in found
            ]
        },
    )


def make_plan(
    request: Request, schemas: Mapping[str, Schema], *, aggregator: str, created: str, version: str
) -> Plan:
    """Make the plan of schemas without conflicts.

    Args:
        request: What the operator asked for.
        schemas: Every owner's schema by owner id.
        aggregator: SPIFFE ID of the aggregator.
        created: ISO 8601 time, UTC.
        version: Version of the software.

    Raises:
        UsageError: If epsilon cannot be divided so finely, or k is too small for the mechanism.
        UnusableDataError: If an owner has fewer than k records.
    """
    g = max(schemas[owner].max_records_per_person for owner in request.owners)
    _check_k(request, schemas, g)
    groups = [_chosen(request, owners, schemas) for owners in request.groups]
    of_group = share(request.epsilon, len(groups))
    tasks = tuple(
        Task(
            owner,
            request.dataset,
            group,
            schemas[owner].records_rounded,
            tuple(
                _planned(request, attribute, share(of_group, len(attributes)), schemas[owner])
                for attribute in attributes
            ),
        )
        for group, (owners, attributes) in enumerate(zip(request.groups, groups, strict=True))
        for owner in owners
    )
    identifier = schemas[request.owners[0]].identifier
    return Plan(
        release=request.release,
        aggregator=aggregator,
        created=created,
        version=version,
        purpose=request.purpose,
        layout=Layout(request.layout),
        epsilon=request.epsilon,
        budget_split=request.budget_split,
        attributes=_in_order(request, groups),
        identifier=identifier,
        max_records_per_person=g,
        linking=Linking(tokens=identifier is not None),
        tasks=tasks,
    )


def expected_error(k: int, n_records: int, epsilon: Decimal) -> Decimal:
    """Return the expected squared error as a share of the variance of a uniform attribute (MECHANISMS §5).

    Args:
        k: Minimum cluster size.
        n_records: Number of records, as rounded in the schema.
        epsilon: The attribute's share of the budget.

    Returns:
        (k/n)² + 24/(k·ε)², with six significant digits.
    """
    size, n = Decimal(k), Decimal(max(n_records, 1))
    within = _SIX_DIGITS.power(_SIX_DIGITS.divide(size, n), 2)
    noise = _SIX_DIGITS.divide(Decimal(24), _SIX_DIGITS.power(_SIX_DIGITS.multiply(size, epsilon), 2))
    return plain(_SIX_DIGITS.add(within, noise))


def _planned(request: Request, attribute: Attribute, epsilon: Decimal, schema: Schema) -> PlannedAttribute:
    frequency = attribute.is_categorical and attribute.order is CategoryOrder.FREQUENCY
    return PlannedAttribute(
        attribute.name,
        request.mechanism,
        epsilon,
        request.k,
        epsilon_joint(request.mechanism, epsilon, frequency_order=frequency),
        expected_error(request.k, schema.records_rounded, epsilon),
    )


def _chosen(request: Request, owners: Sequence[str], schemas: Mapping[str, Schema]) -> tuple[Attribute, ...]:
    """Return a group's attributes, in the order asked for or else as its first owner declares them."""
    held = schemas[owners[0]].by_name
    return tuple(held[name] for name in request.attributes or held if name in held)


def _in_order(request: Request, groups: Sequence[Sequence[Attribute]]) -> tuple[Attribute, ...]:
    """Return all attributes in the order of the release's columns."""
    by_name = {attribute.name: attribute for attributes in groups for attribute in attributes}
    return tuple(by_name[name] for name in request.attributes or by_name)


def _check_k(request: Request, schemas: Mapping[str, Schema], g: int) -> None:
    needed = smallest_k(request.mechanism, g)
    if request.k < needed:
        trimmed = f", and {g} records per person" if MECHANISMS[request.mechanism].trimmed and g > 1 else ""
        raise UsageError(
            f"k must be at least {needed} with mechanism {request.mechanism}{trimmed}, not {request.k}",
            "ask for a larger k",
        )
    rounded = {owner: schemas[owner].records_rounded for owner in request.owners}
    # Numbers of records come rounded down: only what is too small whatever was rounded away is refused here.
    short = [owner for owner, n in rounded.items() if _most(n) < request.k]
    if short:
        raise UnusableDataError(
            f"fewer than k = {request.k} records at {', '.join(short)}: at least k are needed",
            "ask for a smaller k, or for a release without these owners; nothing was spent",
            {"k": request.k, "owners": short},
        )


def _most(rounded: int) -> int:
    """Return the largest number that rounds down to this one."""
    if rounded == 0:
        return 0
    step: int = 10 ** (len(str(rounded)) - 1)
    return rounded + step - 1


def _within(request: Request, owners: Sequence[str], schemas: Mapping[str, Schema]) -> list[Conflict]:
    """Return the conflicts within a group: its owners hold the same attributes, declared alike."""
    held = {owner: schemas[owner].by_name for owner in owners}
    wanted = list(dict.fromkeys(name for each in held.values() for name in each))
    if request.attributes:
        wanted = [name for name in wanted if name in request.attributes]
    found = [
        Conflict("", name, "the name is taken by the release's own column", "rename it at the owners")
        for name in wanted
        if name in RESERVED
    ]
    if not wanted:
        return found + [
            Conflict(
                owner, "", "none of its attributes takes part", "leave the owner out, or name one of its"
            )
            for owner in owners
        ]
    alike = [
        name for name in wanted if name not in RESERVED and _alike([each.get(name) for each in held.values()])
    ]
    leave_out = f"or leave it out: --attributes {','.join(alike)}" if alike else "at all owners"
    for name in wanted:
        having = [owner for owner in owners if name in held[owner]]
        reference = having[0]
        found += [
            Conflict(owner, name, f"is not there, but at {reference}", f"declare it, {leave_out}")
            for owner in owners
            if owner not in having
        ]
        found += [
            Conflict(owner, name, f"{what} at {reference}", f"declare it alike, {leave_out}")
            for owner in having[1:]
            for what in differences(held[reference][name], held[owner][name])
        ]
    return found


def _alike(declarations: Sequence[Attribute | None]) -> bool:
    return None not in declarations and len(set(declarations)) == 1


def _between(request: Request, schemas: Mapping[str, Schema]) -> list[Conflict]:
    """Return the conflicts between groups: each attribute belongs to one, and what was named exists."""
    first_with: dict[str, str] = {}
    found = []
    for owners in request.groups:
        names = dict.fromkeys(name for owner in owners for name in schemas[owner].names)
        for name in names:
            if request.attributes and name not in request.attributes:
                continue
            if name in first_with:
                what = f"is also held by {first_with[name]}, another group"
                fix = f"take it out of the data set at {owners[0]} or {first_with[name]}, or do not name it"
                found.append(Conflict(owners[0], name, what, fix))
            first_with.setdefault(name, owners[0])
    return found
