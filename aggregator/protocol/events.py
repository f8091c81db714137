"""The events of a release. The journal stores these, and nothing else determines its state.

Signatures are hexadecimal, documents the text of their canonical JSON, times Unix seconds. Two answers of
an owner are the same answer if their `content` is equal; signatures and times may differ.
"""

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from common.errors import ConfigurationError
from common.model.compatibility import Software
from common.planning.arguments import ReleaseArguments


@dataclass(frozen=True, slots=True, kw_only=True)
class Event:
    """Something that happened to a release."""

    at: int
    """Unix time."""

    @property
    def name(self) -> str:
        """Its name in the table of states and in the journal."""
        return _NAMES[type(self)]


@dataclass(frozen=True, slots=True, kw_only=True)
class OwnerEvent(Event):
    """An answer of an owner."""

    owner: str

    @property
    def content(self) -> tuple[object, ...]:
        """What a repeated answer must have in common with the first."""
        return ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Started(Event):
    """An operator requested the release."""

    request: ReleaseArguments
    confirmed: bool = False
    """Whether the operator has agreed to the plan without seeing it (--yes)."""
    allowed: Mapping[str, int]
    """Seconds that each state may last, as configured when the release started."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Described(OwnerEvent):
    """An owner sent the schema of its data set."""

    schema: str
    """Canonical JSON."""
    software: Software
    """What the owner runs."""

    @property
    def content(self) -> tuple[object, ...]:
        """The schema."""
        return (self.schema,)


@dataclass(frozen=True, slots=True, kw_only=True)
class Planned(Event):
    """The schemas fitted, and a plan was made and signed."""

    plan: str
    """Canonical JSON."""
    signature: str
    """Over tessera/v1/plan."""
    certificate: str
    """PEM chain of the aggregator."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Confirmed(Event):
    """The operator agreed to the plan."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Waiting(OwnerEvent):
    """A person at the owner has to decide."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Consented(OwnerEvent):
    """An owner accepted the plan and reserved the charge."""

    key_check: str
    """Linkage key-check value; empty without an identifier."""
    signature: str
    """Over tessera/v1/consent."""
    certificate: str
    """PEM chain of the owner."""
    key_generation: int = 0
    """Generation of the linkage key; 0 without an identifier."""

    @property
    def content(self) -> tuple[object, ...]:
        """The key-check value and the key's generation."""
        return (self.key_check, self.key_generation)


@dataclass(frozen=True, slots=True, kw_only=True)
class Linked(OwnerEvent):
    """An owner loaded and pinned its source, and sent tokens where the plan wants them."""

    records: int
    """Exact number of records."""
    tokens_digest: str
    """Of the token list; empty where the plan wants none."""
    sum_key: str = ""
    """Its key for sums, hexadecimal; empty unless the release is synthetic."""
    signature: str = ""
    """Over tessera/v1/sum-key; empty without a key."""
    certificate: str = ""
    """PEM chain of the owner; empty without a key."""
    key_proof: str = ""
    """Canonical JSON (`common.model.fragment.KeyProof`); empty where the plan wants no tokens."""

    @property
    def content(self) -> tuple[object, ...]:
        """The number of records, the list's digest and the key."""
        return (self.records, self.tokens_digest, self.sum_key)


@dataclass(frozen=True, slots=True, kw_only=True)
class Addended(Event):
    """Linking succeeded; what it found was signed."""

    addendum: str
    """Canonical JSON."""
    signature: str
    """Over tessera/v1/addendum."""
    certificate: str
    """PEM chain of the aggregator."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Sealed(OwnerEvent):
    """An owner spent, masked and sealed its fragment."""

    statement: str
    """Canonical JSON of the fragment statement."""
    signature: str
    """Over tessera/v1/fragment."""
    certificate: str
    """PEM chain of the owner."""

    @property
    def content(self) -> tuple[object, ...]:
        """The statement."""
        return (self.statement,)


@dataclass(frozen=True, slots=True, kw_only=True)
class Opened(Event):
    """A round of a synthetic release was opened, or all of its rounds are answered."""

    document: str
    """Canonical JSON of the `common.model.rounds.RoundDocument`."""
    attached: str
    """What comes with it, in base 64: the addendum, or the sums of the answers to the round before."""
    numbers: int
    """How many numbers an answer has; 0 if nothing is left to ask."""
    signature: str
    """Over tessera/v1/round."""
    certificate: str
    """PEM chain of the aggregator."""
    rows: tuple[str, ...] = ()
    """Owners of different attributes that send others encrypted rows first."""
    sums: tuple[str, ...] = ()
    """Owners that send others sums of these."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Passed(OwnerEvent):
    """An owner sent others what they count with."""

    round: int
    statement: str
    """Canonical JSON of the `common.model.rounds.Parcel`."""
    signature: str
    """Over tessera/v1/parcel."""
    certificate: str
    """PEM chain of the owner."""

    @property
    def content(self) -> tuple[object, ...]:
        """The round, and the statement."""
        return (self.round, self.statement)


@dataclass(frozen=True, slots=True, kw_only=True)
class PassedRows(Passed):
    """Encrypted rows."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PassedSums(Passed):
    """Noisy sums of others' rows."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured(OwnerEvent):
    """An owner answered a round of a synthetic release; before the first answer it has spent."""

    round: int
    statement: str
    """Canonical JSON of the statement about all of its answers so far."""
    signature: str
    """Over tessera/v1/fragment."""
    certificate: str
    """PEM chain of the owner."""
    key_proof: str = ""
    """That it is the owner's, under the linkage key, hexadecimal; empty where the plan has no tokens."""

    @property
    def content(self) -> tuple[object, ...]:
        """The round, and the statement."""
        return (self.round, self.statement)


@dataclass(frozen=True, slots=True, kw_only=True)
class Received(OwnerEvent):
    """An owner's fragment arrived and was checked."""

    receipt: str
    """Canonical JSON."""
    signature: str
    """Over tessera/v1/receipt."""
    certificate: str = ""
    """PEM chain of the aggregator; empty in journals of the first version."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Published(Event):
    """The release folder appeared."""

    manifest_digest: str
    directory: str
    note: str = ""
    """What failed although the release was published, such as the requested copy."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Ending(Event):
    """The release ended without being published."""

    code: str
    """Code of the error catalogue."""
    message: str
    """The reason in one sentence."""
    hint: str = ""
    owner: str = ""
    """Owner whose answer ended it; empty if none did."""
    details: Mapping[str, Any] = field(default_factory=dict)
    """Ids, counts and digests of the error."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Conflicted(Ending):
    """Schemas, linkage keys or records of the owners do not fit."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Refused(Ending):
    """An owner refused."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Failed(Ending):
    """An owner or the aggregator could not continue."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Cancelled(Ending):
    """The operator cancelled."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Expired(Ending):
    """A step's deadline passed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Acknowledged(OwnerEvent):
    """An owner has acknowledged how the release ended."""

    keeps: bool = False
    """Whether it keeps what it sealed or answered, so that the release can go on. Older owners do not say."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Resumed(Event):
    """The operator resumed a release that ended after spending, with the fragments that are sealed."""

    allowed: Mapping[str, int] = field(default_factory=dict)
    """As in `Started`, when it was resumed; empty in older journals: as before."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Deleted(Event):
    """The operator had the data of a release that has ended removed; its history stays."""


EVENTS: Mapping[str, type[Event]] = {
    "started": Started,
    "described": Described,
    "planned": Planned,
    "confirmed": Confirmed,
    "waiting": Waiting,
    "consented": Consented,
    "linked": Linked,
    "addended": Addended,
    "sealed": Sealed,
    "opened": Opened,
    "passed_rows": PassedRows,
    "passed_sums": PassedSums,
    "measured": Measured,
    "received": Received,
    "published": Published,
    "conflicted": Conflicted,
    "refused": Refused,
    "failed": Failed,
    "cancelled": Cancelled,
    "expired": Expired,
    "resumed": Resumed,
    "acknowledged": Acknowledged,
    "deleted": Deleted,
}
"""Every event by its name."""
_NAMES = {kind: name for name, kind in EVENTS.items()}


def to_json(event: Event) -> str:
    """Return the text that the journal stores."""
    fields = asdict(event)
    if isinstance(event, Started):
        fields["request"] = event.request.to_document()
    return json.dumps({"event": event.name, **fields}, ensure_ascii=False, sort_keys=True)


def from_json(text: str) -> Event:
    """Read what `to_json` wrote."""
    fields = json.loads(text)
    kind = EVENTS.get(fields.pop("event", "")) if isinstance(fields, dict) else None
    if kind is None:
        raise ConfigurationError(
            "the journal holds an event unknown to this version",
            hint="run the version that wrote it; if it was this one, the database is damaged: restore it",
        )
    if kind is Started:
        fields["request"] = ReleaseArguments.from_document(fields["request"])
    if kind is Described:
        fields["software"] = Software.from_document(fields["software"])
    if kind is Opened:
        fields.update((name, tuple(fields.get(name, ()))) for name in ("rows", "sums"))
    return kind(**fields)
