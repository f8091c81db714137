"""What owners and the aggregator state and sign about fragments, and checks of an addendum against its plan.

Every statement is plain data with one canonical form (`common.canonical.Document`).

Owners run `contradictions` before they spend, and `verify` runs it on a release folder. It checks everything
that follows from plan and counts. It cannot check what only the aggregator has seen: how many owners hold a
person, and which persons all groups hold. The aggregator could still state these wrongly.
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from decimal import Decimal
from functools import cached_property

from common.canonical import OMITTED, Document, digest
from common.model.match_quality import MatchQuality, contradictions_of
from common.model.matches import Match
from common.model.plan import MOST_AUDIT_DAYS, RELEASE_ID, Plan

LINKINGS = ("disjoint", "overlapping", "equal", "intersected", "united", "asserted")
"""What linking can have found (`common.model.plan.LinkingFound`)."""
DECISIONS = ("accept", "refuse")
"""What an owner can answer to a plan."""
MOST_ENTRIES = 2**62
"""Upper limit of the entries of a ledger: the number must fit into 64 bits."""
MOST_GENERATIONS = 999_999_999
"""Upper limit of the generation of a linkage key."""
KEPT_AFTER_END = timedelta(days=30)
"""How long owners keep what they sealed after a release ended unpublished, so that it can go on."""

_DIGEST = re.compile(r"[0-9a-f]{64}")
_OWNER = re.compile(r"[a-z0-9][a-z0-9._-]{0,63}")


@dataclass(frozen=True, slots=True)
class KeyProof(Document):
    """Shows the other owners of a release that an owner has the linkage key."""

    owner: str
    """Id of the owner."""
    fingerprint: str
    """SHA-256 of the key that the owner signed with when it linked, hexadecimal."""
    sum_key: str
    """Its key for the sums of a synthetic release, hexadecimal; empty for others."""
    proof: str
    """HMAC-SHA256 of all this under a key of the release that follows from the linkage key, hexadecimal
    (`owner_node.linking.tokens`)."""

    def __post_init__(self) -> None:
        _check_names(self.owner)
        _check_digests(self.fingerprint, self.proof, *([self.sum_key] if self.sum_key else []))


@dataclass(frozen=True)
class Addendum(Document):
    """What linking found, signed by the aggregator before any owner masks."""

    release: str
    """Id of the release."""
    plan_digest: str
    """Digest of the plan that it answers."""
    linking: str
    """The result in a word, of `LINKINGS`; without a check "asserted"."""
    records: Mapping[str, int]
    """Exact number of records by owner id; of all persons where the release is of everybody: an owner counts
    those whom it does not hold as absent."""
    matches: tuple[Match, ...] = field(default=(), metadata=OMITTED)
    """What every two groups of owners have in common; empty where there is one group."""
    multiples: tuple[int, ...] = field(default=(), metadata=OMITTED)
    """By group: the largest number of its owners that hold one person; empty where the plan allows one."""
    released: int | None = field(default=None, metadata=OMITTED)
    """Number of records of the release, where the plan allows persons to be shared; None elsewhere: as many
    as the owners of any one group have."""
    common: int | None = field(default=None, metadata=OMITTED)
    """Number of persons that all groups hold, where records were left out for that; else None."""
    selections: Mapping[str, str] = field(default_factory=dict, metadata=OMITTED)
    """By owner id: SHA-256 of the selection of its records, or with match keys of the numbers of its persons,
    or in a mixed synthetic release of the owners that have them, too, or where the release is of everybody of
    their places; empty elsewhere."""
    match_quality: MatchQuality | None = field(default=None, metadata=OMITTED)
    """What the passes of match keys linked; None where there are none."""
    key_proofs: tuple[KeyProof, ...] = field(default=(), metadata=OMITTED)
    """One for every owner; empty where the plan has no tokens, and in releases of versions before 0.2."""

    def __post_init__(self) -> None:
        _check_names(self.release, *self.records)
        _check_digests(self.plan_digest)
        _check_one_of(self.linking, LINKINGS)
        _check_counts(*self.records.values(), *self.multiples)
        _check_counts(*(count for count in (self.released, self.common) if count is not None))
        _check_digests(*self.selections.values())
        if not {owner for match in self.matches for owner in match.only} <= set(self.records):
            raise ValueError("a match is between owners of the release")

    @cached_property
    def digest(self) -> str:
        """SHA-256 of the canonical bytes, which every owner's fragment statement has."""
        return digest(self.to_bytes())


@dataclass(frozen=True, slots=True)
class Consent(Document):
    """An owner's answer to a plan, signed by the owner."""

    release: str
    """Id of the release."""
    owner: str
    """Id of the owner."""
    plan_digest: str
    """Digest of the plan that is accepted or refused."""
    key_check: str
    """Linkage key-check value, hexadecimal; empty where the plan has no identifier."""
    decision: str
    """The decision: "accept" or "refuse"."""
    key_generation: int = field(default=0, metadata=OMITTED)
    """Generation of the linkage key; 0 where the plan has no identifier, or an older version answered."""
    audit_days: int = field(default=0, metadata=OMITTED)
    """For how many days after publication the owner keeps what an audit needs, as the plan asks."""

    @classmethod
    def accepting(cls, plan: Plan, owner: str, key_check: str, key_generation: int) -> "Consent":
        """Return the consent of an owner that accepts a plan.

        Raises:
            ValueError: If the key-check value or the generation is malformed.
        """
        days = plan.audit_days
        return cls(plan.release, owner, plan.digest, key_check, "accept", key_generation, days)

    def __post_init__(self) -> None:
        _check_names(self.release, self.owner)
        _check_digests(self.plan_digest)
        _check_one_of(self.decision, DECISIONS)
        if not re.fullmatch(r"(?:[0-9a-f]{2}){0,64}", self.key_check):
            raise ValueError("a key-check value is hexadecimal")
        if not 0 <= self.key_generation <= MOST_GENERATIONS or (self.key_generation and not self.key_check):
            raise ValueError("a generation goes with the key-check value of a linkage key")
        if not 0 <= self.audit_days <= MOST_AUDIT_DAYS:
            raise ValueError("an owner keeps its messages for an audit for some days, or not at all")


@dataclass(frozen=True, slots=True)
class FragmentStatement(Document):
    """What an owner says about its sealed fragment, signed by the owner."""

    release: str
    """Id of the release."""
    owner: str
    """Id of the owner."""
    plan_digest: str
    """Digest of the plan that the fragment answers."""
    addendum_digest: str
    """Digest of the addendum it was masked under."""
    fragment_digest: str
    """SHA-256 of the fragment's bytes."""
    size: int
    """Number of bytes of the fragment."""
    records: int
    """Exact number of records in it."""

    def __post_init__(self) -> None:
        _check_names(self.release, self.owner)
        _check_digests(self.plan_digest, self.addendum_digest, self.fragment_digest)
        _check_counts(self.size, self.records)


@dataclass(frozen=True, slots=True)
class Receipt(Document):
    """The aggregator's signed acknowledgement that it holds a fragment."""

    release: str
    owner: str
    plan_digest: str
    fragment_digest: str
    """SHA-256 of the bytes received."""
    received: str
    """ISO 8601 time, UTC."""

    def __post_init__(self) -> None:
        _check_names(self.release, self.owner)
        _check_digests(self.plan_digest, self.fragment_digest)
        datetime.fromisoformat(self.received)


@dataclass(frozen=True, slots=True)
class LedgerHead(Document):
    """Head of an owner's ledger, signed by the owner with consents, sealed fragments and polls."""

    owner: str
    sequence: int
    """Number of entries; 0 for an empty ledger."""
    hash: str
    """Hash of the newest entry, hexadecimal; empty for an empty ledger."""

    def __post_init__(self) -> None:
        _check_names(self.owner)
        _check_counts(self.sequence)
        if self.sequence >= MOST_ENTRIES:
            raise ValueError("no ledger has so many entries")
        if self.hash or self.sequence:
            _check_digests(self.hash)


def _check_names(release_or_owner: str, *owners: str) -> None:
    if not (RELEASE_ID.fullmatch(release_or_owner) or _OWNER.fullmatch(release_or_owner)):
        raise ValueError("a release or owner id was expected")
    if not all(_OWNER.fullmatch(owner) for owner in owners):
        raise ValueError("an owner id was expected")


def _check_digests(*digests: str) -> None:
    if not all(_DIGEST.fullmatch(each) for each in digests):
        raise ValueError("a SHA-256 digest was expected, 64 lower-case hexadecimal digits")


def _check_one_of(value: str, accepted: tuple[str, ...]) -> None:
    if value not in accepted:
        raise ValueError(f"one of {', '.join(accepted)} was expected")


def _check_counts(*counts: int) -> None:
    if any(count < 0 for count in counts):
        raise ValueError("a count was expected")


def contradictions(plan: Plan, addendum: Addendum) -> Iterator[str]:
    """Find statements of an addendum that cannot be true.

    Yields:
        One text per contradiction, to follow "the addendum does not fit: ".
    """
    if (addendum.release, addendum.plan_digest) != (plan.release, plan.digest):
        yield "it belongs to another plan"
        return
    if set(addendum.records) != set(plan.owners):
        yield "it does not name the owners of the plan"
        return
    if addendum.linking not in plan.possible_linking:
        yield f"linking cannot have found {addendum.linking!r} under this plan"
    yield from _of_multiples(plan, addendum)
    yield from _of_selections(plan, addendum)
    yield from _of_matches(plan, addendum)
    yield from _of_counts(plan, addendum)


def multiples_of(plan: Plan, addendum: Addendum) -> tuple[int, ...]:
    """Return how many owners of each group hold the same person at most, as linking found it."""
    return addendum.multiples or (1,) * plan.n_groups


def n_records(plan: Plan, addendum: Addendum) -> int:
    """Return how many records a release has: those of any one group, where no person is shared."""
    if addendum.released is not None:
        return addendum.released
    return sum(addendum.records[owner] for owner in plan.owners_of(0))


def bounds_of_person(plan: Plan, addendum: Addendum) -> dict[str, Decimal | None]:
    """Return the bounds for one person given the result of linking, by name; None where there is no bound."""
    multiples = multiples_of(plan, addendum)
    return {
        "epsilon_person": plan.epsilon_of_person(multiples),
        "epsilon_joint": plan.epsilon_joint_of_person(multiples),
        **({"epsilon_table": plan.epsilon_table_of_person(multiples)} if plan.has_rank_noise else {}),
    }


def _of_multiples(plan: Plan, addendum: Addendum) -> Iterator[str]:
    found, most = addendum.multiples, plan.most_multiples
    if plan.linking.max_overlap == 1:
        if found:
            yield "it speaks of persons at several owners, which the plan does not allow"
        return
    if len(found) != len(most) or not all(1 <= m <= limit for m, limit in zip(found, most, strict=False)):
        yield "it does not say, within the plan's bounds, how many owners hold the same person"
    elif plan.n_groups == 1 and (addendum.linking == "overlapping") is (found == (1,)):
        yield f"persons at {found[0]} owners are not {addendum.linking!r}"


def _of_selections(plan: Plan, addendum: Addendum) -> Iterator[str]:
    intersected = addendum.linking == "intersected"
    each = intersected or plan.numbers_persons or plan.has_partners or plan.linking.unites
    wanted = set(plan.owners) if each else set()
    if set(addendum.selections) != wanted:
        yield "records of every owner are selected where groups are intersected, and only there"
    if intersected is (addendum.common is None):
        yield "common persons are counted where groups are intersected, and only there"
    if plan.linking.unites and addendum.matches:
        yield "it counts persons of two groups, whose presence noise is to hide"
    if addendum.common is not None and addendum.common < plan.linking.min_common:
        yield f"{addendum.common} persons are common, at least {plan.linking.min_common} are agreed"


def _of_matches(plan: Plan, addendum: Addendum) -> Iterator[str]:
    quality = addendum.match_quality
    if (quality is None) is bool(plan.passes):
        yield "it states what match keys linked where the plan has passes, and only there"
    elif quality is not None:
        yield from contradictions_of(quality, [each.name for each in plan.passes])
        if quality.quality_least < plan.linking.min_match_quality:
            yield f"the quality of matches is below {plan.linking.min_match_quality}, which is agreed"


def _of_counts(plan: Plan, addendum: Addendum) -> Iterator[str]:
    totals = [sum(addendum.records[owner] for owner in owners) for owners in plan.groups]
    multiples = multiples_of(plan, addendum)
    if len(multiples) != len(totals):
        return
    # Where no person is shared, a group has one record of every person.
    persons = {total for total, most in zip(totals, multiples, strict=True) if most == 1}
    persons |= {addendum.common} if addendum.common is not None else set()
    if plan.n_groups > 1 and len(persons) > 1:
        yield "its groups of attributes have different numbers of records"
    if (addendum.released is None) is not (plan.linking.max_overlap == 1):
        yield "it says how many records are released where persons may be shared, and only there"
    elif addendum.released is not None:
        most = max(multiples) * min(totals) if plan.n_groups > 1 else totals[0]
        if not max(totals) <= addendum.released <= most:
            yield f"{addendum.released} records cannot come of those of its owners"
    for owner, assignment in plan.assignments.items():
        if addendum.records[owner] < assignment.largest_k:
            yield f"{owner} has fewer records than its k"
