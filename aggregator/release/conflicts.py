"""Do the owners' schemas fit one release? Every conflict with its owner, attribute and a suggested fix."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from common.errors import ConflictError, did_you_mean, unicode_form
from common.model.schema import (
    MISSING_CATEGORY,
    PROPERTIES,
    RESERVED_NAMES,
    Attribute,
    IdentifierRules,
    Schema,
    derivable,
)
from common.model.structural_zeros import rules_of
from common.planning.arguments import ReleaseArguments
from common.planning.planner import groups_of_attributes, holders
from common.words.numbers import count_text, first_text

_MOST_CHARACTERS = 256 * 1024
"""Characters of the conflicts that are listed: what an operator is shown fits a message several times."""
_MOST_LABELS, _LONGEST_LABEL = 8, 100


def differences(expected: Attribute, seen: Attribute) -> Iterator[str]:
    """Compare two declarations of one attribute.

    Yields:
        One text per setting that differs, ending so that "at OWNER" can follow.
    """
    if expected.type is not seen.type:
        yield f"type is {seen.type}, {expected.type}"
        return
    if expected.categories:
        yield from _category_differences(expected, seen)
    elif not expected.is_categorical:
        # Compared as values: 10.0 and 10.00 are the same end at different resolutions.
        for end, ours, theirs in (
            ("min", expected.lower, seen.lower),
            ("max", expected.upper, seen.upper),
        ):
            if ours * expected.unit != theirs * seen.unit:
                yield f"{end} is {seen.text(theirs)}, {expected.text(ours)}"
    yield from filter(None, (each.difference(expected, seen) for each in PROPERTIES))


def _category_differences(expected: Attribute, seen: Attribute) -> Iterator[str]:
    ours, theirs = set(seen.categories), set(expected.categories)
    lacking = [label for label in expected.categories if label not in ours]
    more = [label for label in seen.categories if label not in theirs]
    for labels, text in ((lacking, "not declared, but"), (more, "declared, but not")):
        if MISSING_CATEGORY in labels:
            labels.remove(MISSING_CATEGORY)
            yield f'missing = "category" is {text}'
    twins = {unicode_form(label): label for label in lacking}
    if alike := {label: twin for label in more if (twin := twins.get(unicode_form(label)))}:
        twin_labels = set(alike.values())
        here, there = (_list_labels(labels, ascii) for labels in (alike, alike.values()))
        yield f"categories {here} look the same, and are {there}"
        lacking = [label for label in lacking if label not in twin_labels]
        more = [label for label in more if label not in alike]
    if lacking:
        yield f"categories {_list_labels(lacking)} are not declared, but"
    if more:
        yield f"categories {_list_labels(more)} are declared, but not"
    if ours == theirs and expected.categories != seen.categories:
        yield "categories are in another order than"


def _list_labels(labels: Iterable[str], written: Callable[[str], str] = repr) -> str:
    short = (label if len(label) <= _LONGEST_LABEL else f"{label[:_LONGEST_LABEL]}…" for label in labels)
    return first_text(map(written, short), _MOST_LABELS)


def missing_identifiers(
    rules: Mapping[str, IdentifierRules | None], *, needed: bool
) -> Iterator[tuple[str, str, str]]:
    """Compare how the owners' identifiers become comparable.

    Yields:
        Owner, what differs, what would resolve it.
    """
    declared = {owner: rule for owner, rule in rules.items() if rule is not None}
    if not declared and not needed:
        return
    reference = next(iter(declared), None)
    why = "records of different groups are aligned by it" if needed else f"{reference} declares one"
    for owner, rule in rules.items():
        if rule is None:
            yield owner, f"no identifier is declared, but {why}", "declare the identifier of the data set"
        elif reference is not None and rule != declared[reference]:
            yield from _differing(owner, rule, reference, declared[reference])


def _differing(
    owner: str, rules: IdentifierRules, reference: str, expected: IdentifierRules
) -> Iterator[tuple[str, str, str]]:
    if not (rules.passes and expected.passes):
        yield (
            owner,
            f"the identifier rules are {_rules_text(rules)}, {_rules_text(expected)} at {reference}",
            "declare as many columns, in the same order, with the same normalise steps everywhere"
            if not (rules.passes or expected.passes)
            else "declare the same passes as [[dataset.match]], or the same identifier, everywhere",
        )
        return
    fix = "declare the same passes, in the same order, as [[dataset.match]] everywhere"
    if rules.version != expected.version:
        yield (
            owner,
            f"match keys have version {rules.version}, {expected.version} at {reference}",
            ("use the same version of the software everywhere"),
        )
    ours, theirs = ({one.name: one for one in side.passes} for side in (rules, expected))
    for name in [*theirs, *(name for name in ours if name not in theirs)]:
        if name not in ours:
            yield owner, f"pass {name!r} of match keys is not declared, but at {reference}", fix
        elif name not in theirs:
            yield owner, f"pass {name!r} of match keys is declared, but not at {reference}", fix
        elif ours[name] != theirs[name]:
            keys = [", ".join(one.keys) for one in (ours[name], theirs[name])]
            yield owner, f"pass {name!r} compares {keys[0]}, and {keys[1]} at {reference}", fix
    if set(ours) == set(theirs) and list(ours) != list(theirs):
        yield owner, f"the passes of match keys are in another order than at {reference}", fix


def _rules_text(rules: IdentifierRules) -> str:
    if rules.passes:
        return f"match keys in {count_text(len(rules.passes), 'pass')}"
    steps = ", ".join(rules.normalise) or "no normalisation"
    for column, also in enumerate(rules.also, 1):
        steps += f", column {column} also {', '.join(also)}" if also else ""
    return f"{rules.n_columns} columns with {steps} (version {rules.version})"


@dataclass(frozen=True, slots=True)
class Conflict:
    """One reason why the owners' schemas do not fit."""

    owner: str
    """Owner id; empty if no single owner is meant."""
    attribute: str
    """Attribute name; empty if none is meant."""
    what: str
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


def conflicts(request: ReleaseArguments, schemas: Mapping[str, Schema]) -> tuple[Conflict, ...]:
    """Return the conflicts between the owners' schemas; none if they fit."""
    held = {name for owner in request.owners for name in schemas[owner].names}
    following = {each.name: each for owner in request.owners for each in schemas[owner].following}
    alone = [
        each
        for name, each in following.items()
        if name in request.attributes and each.base not in request.attributes
    ]
    if alone:
        return tuple(
            Conflict("", each.name, f"it follows {each.base}", f"name {each.base} in --attributes, too")
            for each in alone
        )
    held |= following.keys()
    unknown = [name for name in request.attributes if name not in held]
    if unknown:
        # Other conflicts may follow from the unknown name.
        return tuple(
            Conflict(
                "", name, "no owner has it",
                did_you_mean(name, sorted(held)) or "check its spelling in --attributes",
            )
            for name in unknown
        )  # fmt: skip
    held -= following.keys()
    n_declared = sum(len(schemas[owner].names) for owner in request.owners)
    if len(request.groups) == 1 and 1 < len(request.owners) <= len(held) == n_declared:
        what = "every owner holds other attributes, and in the horizontal layout all hold the same"
        return (Conflict("", "", what, "ask for --layout vertical, or correct --dataset"),)
    owner_groups = groups_of_attributes(request.groups, holders(request, schemas))
    faults: list[Conflict] = []
    for group, owners in enumerate(request.groups):
        wanted = [name for name, home in owner_groups.items() if group in home]
        faults += _within(owners, wanted, schemas)
        faults += _other_following(request, owners, wanted, schemas)
        if request.product.rules.whole_records:
            faults += _other_rules(owners, wanted, schemas)
    faults += _between(request, owner_groups, schemas)
    faults += _following_elsewhere(request, owner_groups, schemas)
    faults += _several_records(request, schemas)
    faults += [
        Conflict(owner, "", what, fix)
        for owner, what, fix in missing_identifiers(
            {owner: schemas[owner].identifier for owner in request.owners}, needed=len(request.groups) > 1
        )
    ]
    if request.max_overlap > 1 and not any(schemas[owner].identifier for owner in request.owners):
        what = "no identifier is declared, and persons at several owners are found by it"
        faults.append(Conflict("", "", what, "declare it at every owner, or leave --max-overlap out"))
    return tuple(dict.fromkeys(faults))


def conflict_error(faults: Sequence[Conflict]) -> ConflictError:
    """Return the error that reports all conflicts, as far as a message holds them."""
    shown, room = [faults[0]], _MOST_CHARACTERS
    for conflict in faults[1:]:
        room -= len(str(conflict))
        if room < 0:
            break
        shown.append(conflict)
    lines = "".join(f"\n  {conflict}" for conflict in shown)
    if len(shown) < len(faults):
        lines += f"\n  and {len(faults) - len(shown)} more"
    return ConflictError(
        f"the owners' data sets do not fit together, {len(faults)} conflicts:{lines}"
        if len(faults) > 1
        else f"the owners' data sets do not fit together: {faults[0]}",
        "settle them in the owners' configurations, or choose attributes with --attributes",
        {
            "conflicts": [
                {"owner": one.owner, "attribute": one.attribute, "what": one.what, "fix": one.fix}
                for one in shown
            ]
        },
    )


def _several_records(request: ReleaseArguments, schemas: Mapping[str, Schema]) -> list[Conflict]:
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


def _within(owners: Sequence[str], wanted: Sequence[str], schemas: Mapping[str, Schema]) -> list[Conflict]:
    """Return the conflicts within a group: its owners hold the same attributes, declared alike."""
    held = {owner: schemas[owner].by_name for owner in owners}
    looks = {owner: {unicode_form(name): name for name in own} for owner, own in held.items()}
    faults = [
        Conflict("", name, "the name is taken by the release's own column", "rename it at the owners")
        for name in wanted
        if name in RESERVED_NAMES
    ]
    if not wanted:
        return faults + [
            Conflict(
                owner, "", "none of its attributes takes part", "leave the owner out, or name one of its"
            )
            for owner in owners
        ]
    alike = [
        name
        for name in wanted
        if name not in RESERVED_NAMES and _alike([own.get(name) for own in held.values()])
    ]
    leave_out = f"or leave it out: --attributes {','.join(alike)}" if alike else "at all owners"
    for name in wanted:
        having = [owner for owner in owners if name in held[owner]]
        reference = having[0]
        faults += [
            Conflict(owner, name, f"{_absent(name, looks[owner])} at {reference}", f"declare it, {leave_out}")
            for owner in owners
            if owner not in having
        ]
        faults += [
            Conflict(owner, name, f"{what} at {reference}", f"declare it alike, {leave_out}")
            for owner in having[1:]
            for what in differences(held[reference][name], held[owner][name])
        ]
    return faults


def _other_following(
    request: ReleaseArguments, owners: Sequence[str], wanted: Sequence[str], schemas: Mapping[str, Schema]
) -> list[Conflict]:
    """Return the owners of a group whose attributes follow others in another way than the first one's."""
    of = {
        owner: {each.name: each for each in derivable(schemas[owner].following, wanted, request.attributes)}
        for owner in owners
    }
    reference = owners[0]
    return [
        Conflict(
            owner,
            name,
            f"it follows another attribute otherwise than at {reference}",
            "declare follows, values and domain alike",
        )
        for owner in owners[1:]
        for name in {**of[reference], **of[owner]}
        if of[owner].get(name) != of[reference].get(name)
    ]


def _following_elsewhere(
    request: ReleaseArguments, owner_groups: Mapping[str, Sequence[int]], schemas: Mapping[str, Schema]
) -> list[Conflict]:
    """Return the attributes that follow others and whose names another group has, too."""
    taken: dict[str, str] = {}
    for group, owners in enumerate(request.groups):
        taken |= {
            name: owners[0] for name, home in owner_groups.items() if group in home and name not in taken
        }
    faults = []
    for owners in request.groups:
        for each in derivable(schemas[owners[0]].following, owner_groups, request.attributes):
            other = taken.setdefault(each.name, owners[0])
            if other != owners[0]:
                what = f"it follows {each.base} here, and {other} has an attribute of this name, too"
                faults.append(
                    Conflict(owners[0], each.name, what, "rename it, or leave it out at one of them")
                )
    return faults


def _other_rules(
    owners: Sequence[str], wanted: Sequence[str], schemas: Mapping[str, Schema]
) -> list[Conflict]:
    """Return the owners of a group whose structural zeros are others than the first one's."""
    of = {owner: rules_of(schemas[owner].structural_zeros, wanted) for owner in owners}
    reference = owners[0]
    fix = "declare the same structural_zeros everywhere"
    faults = []
    for owner in owners[1:]:
        lacking = [rule for rule in of[reference] if rule not in of[owner]]
        more = [rule for rule in of[owner] if rule not in of[reference]]
        for rules, text in ((lacking, "not declared, but"), (more, "declared, but not")):
            faults += [
                Conflict(owner, "", f'the structural zero "{rule}" is {text} at {reference}', fix)
                for rule in rules
            ]
    return faults


def _absent(name: str, looks: Mapping[str, str]) -> str:
    """Return what an owner has instead of an attribute, of its names by form; "at OWNER" can follow."""
    twin = looks.get(unicode_form(name))
    return f"is {twin!a}, which looks the same as {name!a}" if twin else "is not there, but"


def _alike(declarations: Sequence[Attribute | None]) -> bool:
    return None not in declarations and len(set(declarations)) == 1


def _between(
    request: ReleaseArguments, owner_groups: Mapping[str, Sequence[int]], schemas: Mapping[str, Schema]
) -> list[Conflict]:
    """Return the conflicts between groups: each attribute belongs to one, and only its owners hold it."""
    faults = []
    for name, (first, *others) in owner_groups.items():
        known = request.groups[first]
        if others:
            faults += [
                _overlap(_holder(name, more, known, schemas), _holder(name, known, more, schemas), name)
                for more in (request.groups[other] for other in others)
            ]
        else:
            faults += [
                _overlap(owner, known[0], name)
                for owner in request.owners
                if owner not in known and name in schemas[owner].by_name
            ]
    return faults


def _holder(name: str, owners: Sequence[str], besides: Sequence[str], schemas: Mapping[str, Schema]) -> str:
    """Return an owner of a group that holds an attribute, rather one that is in this group alone."""
    holders = [owner for owner in owners if name in schemas[owner].by_name]
    return next((owner for owner in holders if owner not in besides), holders[0])


def _overlap(owner: str, known: str, name: str) -> Conflict:
    return Conflict(
        owner,
        name,
        f"is also held by {known}, another group",
        f"take it out of the data set at {owner} or {known}, or do not name it",
    )
