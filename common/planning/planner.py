"""The plan of a release, from its arguments and the owners' schemas. Pure.

The aggregator plans with the schemas of all owners. An owner plans with its own schema alone: to mask for
itself, to explore settings, or to evaluate its policy on a release that was not requested.

References:
    Del Vasto-Terrientes et al. 2025, §4.2 (steps of a release) and Theorems 1 and 2 (composition).
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from decimal import Decimal
from itertools import chain

from common.errors import UsageError
from common.model.events import column_of, fault_of_events
from common.model.plan import OWNER_COLUMN, Linking, Plan, Synthesis
from common.model.presence import presence_attribute
from common.model.products import Product
from common.model.schema import Attribute, Schema, derivable
from common.model.structural_zeros import rules_of
from common.model.task import Modelled, PlannedAttribute, Task
from common.planning.arguments import ReleaseArguments
from common.planning.attributes import check_k, plan_attribute, shares, smallest_accepted_k
from common.planning.facts import Held, resolve_facts
from common.synthesis.accounting import default_colluding, honest_owners


def make_plan(
    arguments: ReleaseArguments, schemas: Mapping[str, Schema], *, aggregator: str, created: str, version: str
) -> Plan:
    """Make the plan of a release.

    Whether every owner can have as many records as its largest k is a separate check
    (`common.planning.attributes.check_records`): an owner that plans for itself knows the exact number.

    Args:
        arguments: The arguments; every attribute that they name is in some schema.
        schemas: Every owner's schema by owner id; they do not conflict.
        aggregator: SPIFFE ID of the aggregator; for an owner's own plan, a placeholder.
        created: ISO 8601 time, UTC.
        version: Version of the software.

    Raises:
        UsageError: If epsilon cannot be divided so finely or so, k, weights or rank noise do not go with
            the mechanism or the attributes, a synthetic release is not possible, or a stated fact cannot be
            used.
    """
    g = max(schemas[owner].max_records_per_person for owner in arguments.owners)
    owner_groups = groups_of_attributes(arguments.groups, holders(arguments, schemas))
    held = [_attributes_of(arguments, group, owner_groups, schemas) for group in range(len(arguments.groups))]
    own = {owner: schemas[owner] for owner in arguments.owners}
    zeros, stated = resolve_facts(
        arguments.facts, Held.of(tuple(chain.from_iterable(held)), own, arguments.attributes)
    )
    groups = _counted(arguments, held, stated)
    names = [[attribute.name for attribute in group] for group in groups]
    _check_events(arguments, groups, stated, own.values())
    _check_presence(arguments, {*chain.from_iterable(names), *(each.name for each in stated)})
    modelled: list[Modelled | None] = [None] * len(groups)
    masked: dict[tuple[str, int], tuple[PlannedAttribute, ...]] = {}
    synthesis = None
    if arguments.product is Product.SYNTHETIC:
        synthesis = replace(
            _synthesis(arguments, schemas, groups),
            stated_zeros=zeros,
            stated_following=tuple(each.name for each in stated),
        )
        # One person's record at all owners has one epsilon: it is not divided.
        modelled = [Modelled(tuple(each), arguments.epsilon) for each in names]
    else:
        masked = _masked(arguments, groups, schemas, g)
    tasks = tuple(
        Task(
            owner,
            arguments.dataset,
            group,
            schemas[owner].records_rounded,
            masked.get((owner, group), ()),
            modelled[group],
        )
        for group, owners in enumerate(arguments.groups)
        for owner in owners
    )
    # What is derived is as the first owner of a group declares it.
    following = (
        *(
            each
            for own, owners in zip(names, arguments.groups, strict=True)
            for each in derivable(schemas[owners[0]].following, own, arguments.attributes)
        ),
        *stated,
    )
    rules = [each for owner in arguments.owners if (each := schemas[owner].identifier) is not None]
    identifier = replace(rules[0], texts=min(each.texts for each in rules)) if rules else None
    plan = Plan(
        release=arguments.release,
        aggregator=aggregator,
        created=created,
        version=version,
        purpose=arguments.purpose,
        layout=arguments.layout,
        epsilon=arguments.epsilon,
        budget_split=arguments.budget_split,
        attributes=_in_order(arguments, groups),
        identifier=identifier,
        max_records_per_person=g,
        linking=replace(
            _linking(arguments, tasks, tokens=identifier is not None),
            min_match_quality=max(schemas[each].limits.min_match_quality for each in arguments.owners)
            if identifier is not None and identifier.passes
            else Decimal(0),
        ),
        tasks=tasks,
        owner_column=_checked_owner_column(arguments, names, following),
        synthesis=synthesis,
        following=following,
        permit=arguments.permit,
        duo=arguments.duo,
    )
    if synthesis is not None:
        # It brings numpy, which nothing else of a plan needs.
        from common.planning.synthetic import check_synthetic

        check_synthetic(plan)
    return plan


def _counted(
    arguments: ReleaseArguments, held: Sequence[Sequence[Attribute]], stated: Sequence[Attribute]
) -> list[tuple[Attribute, ...]]:
    """Return the attributes of every group without those that stated facts derive.

    Raises:
        UsageError: If none is left of a group.
    """
    derived = {each.name for each in stated}
    groups = [tuple(each for each in group if each.name not in derived) for group in held]
    for owners, before, after in zip(arguments.groups, held, groups, strict=True):
        if before and not after:
            raise UsageError(
                f"facts derive every attribute of {', '.join(owners)}, and nothing is left to count there",
                "leave the owner out of the release, or the fact",
            )
    return groups


def _synthesis(
    arguments: ReleaseArguments, schemas: Mapping[str, Schema], groups: Sequence[Sequence[Attribute]]
) -> Synthesis:
    """Return how a synthetic release is made.

    Args:
        groups: The counted attributes of every group of owners.

    Raises:
        UsageError: If more owners may collude than there are others, a pair names other attributes, or some
            cannot be counted together.
    """
    # It brings numpy, which nothing else of a plan needs.
    from common.planning.synthetic import attributes_together, named_pairs, stated_records
    from common.synthesis.schedule import budget_split

    attributes = _in_order(arguments, groups)
    names = [each.name for each in attributes]
    group_of = {each.name: number for number, group in enumerate(groups) for each in group}
    n_owners, colluding = max(map(len, arguments.groups)), arguments.colluding
    if colluding is None:
        colluding = default_colluding(n_owners)
    honest_owners(n_owners, colluding)
    rules = [each for owner in arguments.owners for each in schemas[owner].structural_zeros]
    records = [[schemas[owner].records_rounded for owner in owners] for owners in arguments.groups]
    split = budget_split(
        stated_records(records, unites=arguments.on_mismatch == "union"), arguments.epsilon, arguments.delta
    )
    return Synthesis(
        colluding, split, arguments.delta, rules_of(tuple(dict.fromkeys(rules)), names),
        named_pairs(arguments.pairs, names), audit_days=arguments.audit,
        together=attributes_together(arguments.together, attributes, group_of, arguments.pairs),
    )  # fmt: skip


def _masked(
    arguments: ReleaseArguments,
    groups: Sequence[Sequence[Attribute]],
    schemas: Mapping[str, Schema],
    g: int,
) -> dict[tuple[str, int], tuple[PlannedAttribute, ...]]:
    """Return how every owner masks the attributes of a group, by owner and number of the group."""
    check_k(arguments.mechanism, arguments.k, g)
    names = [[attribute.name for attribute in group] for group in groups]
    arguments.rank_noise.check_names(name for group in names for name in group)
    epsilons = shares(arguments.epsilon, names, arguments.budget_split, dict(arguments.weights))
    least_k = smallest_accepted_k([schemas[owner] for owner in arguments.owners])
    return {
        (owner, group): tuple(
            plan_attribute(
                attribute,
                mechanism=arguments.mechanism,
                epsilon=epsilons[attribute.name],
                k=arguments.k,
                records_rounded=schemas[owner].records_rounded,
                fewest_records=min(schemas[each].records_rounded for each in owners),
                g=g,
                least_k=least_k,
                rank_noise=arguments.rank_noise,
                owners_rank_noise=schemas[owner].rank_noise,
            )
            for attribute in attributes
        )
        for group, (owners, attributes) in enumerate(zip(arguments.groups, groups, strict=True))
        for owner in owners
    }


def _check_events(
    arguments: ReleaseArguments,
    groups: Sequence[Sequence[Attribute]],
    stated: Sequence[Attribute],
    schemas: Iterable[Schema],
) -> None:
    """Check that the events of persons can be released, if there are any.

    Args:
        groups: The attributes that are released, by group of owners.
        stated: Those that follow others by stated facts.
        schemas: The owners' schemas, with the slots of every column.

    Raises:
        UsageError: If they cannot.
    """
    slots = [[each for each in group if each.slot > 0] for group in groups]
    names = [each.name for each in chain.from_iterable(slots)]
    if not names:
        return
    left_out = f"leave them out: --attributes without {', '.join(names)}"
    if arguments.product is not Product.SYNTHETIC:
        raise UsageError(
            f"the events of persons ({names[0]} and others) are for synthetic releases alone",
            f"make a release of them: aggregator release --product synthetic; or {left_out}",
        )
    if arguments.on_mismatch == "union":
        raise UsageError(
            "events do not go with a release of everybody whom any owner holds",
            f"choose --on-mismatch intersect, or {left_out}",
        )
    fault = fault_of_events([*chain.from_iterable(groups)])
    if sum(map(bool, slots)) > 1:
        fault = "several groups of owners have events"
    columns = {column_of(each) for each in chain.from_iterable(slots)}
    held = {each.name: each for schema in schemas for each in schema.attributes if each.slot > 0}
    lacking = [name for name, each in held.items() if column_of(each) in columns and name not in names]
    if lacking and not fault:
        fault = f"the events lack {lacking[0]}: all slots of a column are released, or none"
    if followed := [each.base for each in stated if each.base in names]:
        fault = f"a stated fact follows the event {followed[0]}"
    if fault:
        raise UsageError(fault, f"name the number of events with every slot of one table, or {left_out}")


def _check_presence(arguments: ReleaseArguments, names: set[str]) -> None:
    """Check that no attribute has the name of one that says who is present.

    Raises:
        UsageError: If one has it.
    """
    owners = arguments.owners if arguments.on_mismatch == "union" else ()
    if taken := sorted(names & {presence_attribute(owner).name for owner in owners}):
        raise UsageError(
            f"attribute {taken[0]!r} has the name of the column that says whom an owner holds",
            "rename the attribute at its owner, or leave it out: --attributes",
        )


def _checked_owner_column(
    arguments: ReleaseArguments, names: Sequence[Sequence[str]], following: Sequence[Attribute]
) -> bool:
    """Return whether owners get a column, whose name no attribute may have.

    Raises:
        UsageError: If one has it.
    """
    columns = {OWNER_COLUMN, *(f"{OWNER_COLUMN}_{group + 1}" for group in range(len(names)))}
    taken = sorted(columns & {*chain.from_iterable(names), *(each.name for each in following)})
    if arguments.owner_column and taken:
        raise UsageError(
            f"attribute {taken[0]!r} has the name of the column of owners",
            "leave --owner-column out, or rename the attribute at the owners",
        )
    return arguments.owner_column


def _linking(arguments: ReleaseArguments, tasks: Sequence[Task], *, tokens: bool) -> Linking:
    """Return the bounds for what linking may find; fewer common persons than the largest k never do."""
    if arguments.on_mismatch != "intersect":
        return Linking(tokens, arguments.max_overlap, arguments.on_mismatch, key_proofs=tokens)
    largest_k = max((each.k or 1 for task in tasks for each in task.attributes), default=1)
    return Linking(
        tokens,
        arguments.max_overlap,
        arguments.on_mismatch,
        arguments.min_common or largest_k,
        key_proofs=tokens,
    )


def _attributes_of(
    arguments: ReleaseArguments,
    group: int,
    owner_groups: Mapping[str, Sequence[int]],
    schemas: Mapping[str, Schema],
) -> tuple[Attribute, ...]:
    """Return a group's attributes, in the requested order, or else as its first owner declares them."""
    held = schemas[arguments.groups[group][0]].by_name
    return tuple(held[name] for name in arguments.attributes or held if group in owner_groups.get(name, ()))


def _in_order(arguments: ReleaseArguments, groups: Sequence[Sequence[Attribute]]) -> tuple[Attribute, ...]:
    """Return all attributes in the order of the release's columns."""
    by_name = {attribute.name: attribute for attributes in groups for attribute in attributes}
    return tuple(by_name[name] for name in arguments.attributes or by_name if name in by_name)


def holders(arguments: ReleaseArguments, schemas: Mapping[str, Schema]) -> dict[str, list[str]]:
    """Return the owners that hold each attribute of the release, in the order in which they declare them."""
    held_by: dict[str, list[str]] = {}
    requested = set(arguments.attributes)
    for owner in arguments.owners:
        for name in schemas[owner].names:
            if not requested or name in requested:
                held_by.setdefault(name, []).append(owner)
    return held_by


def groups_of_attributes(
    groups: Sequence[Sequence[str]], held_by: Mapping[str, Sequence[str]]
) -> dict[str, tuple[int, ...]]:
    """Find every attribute's group.

    Owners declare data sets, not groups. An owner that is in one group brings all its attributes to that
    group; of one that is in several, an attribute belongs to the group whose owners are exactly those that
    hold it.

    Args:
        groups: Owner ids by group.
        held_by: The owners that hold each attribute; every one of them is in some group.

    Returns:
        Indices of groups by attribute, in the order of `held_by`. Where the declarations fit together that is
        one group, whose owners are exactly those that hold it; otherwise all groups that the attribute may
        have been meant for, so that every conflict can be reported.
    """
    times = Counter(owner for owners in groups for owner in owners)
    return {name: _owner_groups(groups, set(having), times) for name, having in held_by.items()}


def _owner_groups(
    groups: Sequence[Sequence[str]], having: set[str], times: Mapping[str, int]
) -> tuple[int, ...]:
    exactly = [index for index, owners in enumerate(groups) if set(owners) == having]
    if exactly:
        return (exactly[0],)
    settled = [
        index
        for index, owners in enumerate(groups)
        if any(owner in having and times[owner] == 1 for owner in owners)
    ]
    if settled:
        return tuple(settled)
    # Only owners of several groups hold it: most probably it is missing somewhere in the group that most of
    # them are in, of several such groups in the smallest.
    nearest = max(
        range(len(groups)), key=lambda index: (len(having & set(groups[index])), -len(groups[index]))
    )
    return (nearest,)
