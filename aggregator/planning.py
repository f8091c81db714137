"""Schemas become a plan, or all the reasons why they do not fit together.

References:
    Del Vasto-Terrientes et al. 2025, §4.2 (steps of a release) and Theorems 1 and 2 (composition).
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from decimal import Context, Decimal

from aggregator.cluster_size import check_k, check_records, choose_k, smallest_accepted_k
from aggregator.comparison import differences, missing_identifiers
from aggregator.protocol.request import Request
from aggregator.shares import shares
from common.errors import ConflictError
from common.plan import Layout, Linking, Plan, PlannedAttribute, Task
from common.privacy import EXPONENTIAL, epsilon_joint, most_clusters, plain
from common.schema import Attribute, Schema, TaxonomyMethod, most_records

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
    found += _several_records(request, schemas)
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
        UsageError: If epsilon cannot be divided so finely or so, or k does not go with the mechanism.
        UnusableDataError: If an owner has fewer than k records.
    """
    g = max(schemas[owner].max_records_per_person for owner in request.owners)
    check_k(request.mechanism, request.k, g)
    groups = [_chosen(request, owners, schemas) for owners in request.groups]
    planner = _Planner(
        request,
        shares(request, [[attribute.name for attribute in group] for group in groups]),
        g,
        smallest_accepted_k([schemas[owner] for owner in request.owners]),
    )
    tasks = tuple(
        Task(
            owner,
            request.dataset,
            group,
            schemas[owner].records_rounded,
            tuple(planner.planned(attribute, schemas[owner].records_rounded) for attribute in attributes),
        )
        for group, (owners, attributes) in enumerate(zip(request.groups, groups, strict=True))
        for owner in owners
    )
    check_records(tasks, schemas)
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


def expected_error(mechanism: str, k: int, n_records: int, epsilon: Decimal, g: int = 1) -> Decimal:
    """Return the expected squared error as a share of the variance of a uniform attribute (MECHANISMS §5).

    Args:
        mechanism: Mechanism id.
        k: Minimum cluster size; 1 where the mechanism makes no clusters.
        n_records: Number of records, as rounded in the schema.
        epsilon: The attribute's share of the budget.
        g: The most records that one person has.

    Returns:
        (k/n)² + 24·(g/(k·ε))², with six significant digits. For idp-cbls n stands in the place of the second
        k: the local sensitivity of a cluster is about its own width, k/n of the domain's.
    """
    size, n = Decimal(k), Decimal(max(n_records, 1))
    within = _SIX_DIGITS.power(_SIX_DIGITS.divide(size, n), 2)
    steadiness = _SIX_DIGITS.multiply(n if mechanism == "idp-cbls" else size, epsilon)
    noise = _SIX_DIGITS.power(_SIX_DIGITS.divide(Decimal(g), steadiness), 2)
    return plain(_SIX_DIGITS.add(within, _SIX_DIGITS.multiply(Decimal(24), noise)))


@dataclass(frozen=True, slots=True)
class _Planner:
    """Plans single attributes under what holds for the whole release."""

    request: Request
    epsilons: Mapping[str, Decimal]
    """Every attribute's share."""
    g: int
    """The most records that one person has."""
    least_k: int
    """The smallest k that all policies accept."""

    def planned(self, attribute: Attribute, n_records: int) -> PlannedAttribute:
        exponential = attribute.method is TaxonomyMethod.EXPONENTIAL
        mechanism = EXPONENTIAL if exponential else self.request.mechanism
        epsilon = self.epsilons[attribute.name]
        k = self.request.k or choose_k(
            mechanism,
            n_records=n_records,
            n_values=attribute.n_values,
            epsilon=epsilon,
            g=self.g,
            least=self.least_k,
        )
        n_clusters = most_clusters(most_records(n_records), k)
        return PlannedAttribute(
            attribute.name,
            mechanism,
            epsilon,
            k,
            epsilon_joint(mechanism, epsilon, frequency_order=attribute.by_frequency, n_clusters=n_clusters),
            expected_error(mechanism, k or 1, n_records, epsilon, self.g),
        )


def _chosen(request: Request, owners: Sequence[str], schemas: Mapping[str, Schema]) -> tuple[Attribute, ...]:
    """Return a group's attributes, in the order asked for or else as its first owner declares them."""
    held = schemas[owners[0]].by_name
    return tuple(held[name] for name in request.attributes or held if name in held)


def _in_order(request: Request, groups: Sequence[Sequence[Attribute]]) -> tuple[Attribute, ...]:
    """Return all attributes in the order of the release's columns."""
    by_name = {attribute.name: attribute for attributes in groups for attribute in attributes}
    return tuple(by_name[name] for name in request.attributes or by_name)


def _several_records(request: Request, schemas: Mapping[str, Schema]) -> list[Conflict]:
    """Return the owners whose persons may have several records, where groups are aligned by person."""
    if len(request.groups) == 1:
        return []
    return [
        Conflict(
            owner,
            "",
            f"a person may have up to {schemas[owner].max_records_per_person} records, and groups of "
            "attributes are aligned on persons with one record each",
            "release it in the horizontal layout, or declare max_records_per_person = 1",
        )
        for owner in request.owners
        if schemas[owner].max_records_per_person > 1
    ]


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
