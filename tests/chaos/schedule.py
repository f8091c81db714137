"""What happens to a release while it is made: drawn from a seed alone, so that a run can be repeated."""

import random
from dataclasses import dataclass
from enum import StrEnum

from aggregator.protocol.states import State as ReleaseState
from common.model.products import Product
from owner_node.config.engine import EngineKind
from owner_node.state.session import SessionState
from tests.small_disk import ROOM_FOR_A_DATABASE

OWNERS = ("a", "b")
AGGREGATOR = "aggregator"
PARTIES = (*OWNERS, AGGREGATOR)
SQL_OWNER = "a"
"""The owner that has its records in a database, where there is one."""
LAYOUTS = ("horizontal", "vertical")
ENGINES = {EngineKind.MEMORY: 3, EngineKind.DISK: 3, EngineKind.SPARK: 1}
"""What owners hold their records in, and how often: a session of Spark takes long to start."""
_SPARK_PATIENCE = 3
"""How many times as long a step may take where Spark starts."""
_SEEDS_PER_ENGINES = 4
"""Seeds one after another with the same engines: another engine takes a restart of its owner."""
_SHARE_OF_SYNTHETIC = 0.4
"""Of the releases that can be synthetic."""
_SHARE_OF_ROUNDS = 0.6
"""Of the moments of a synthetic release."""
_SHARE_OF_WORK = 0.5
"""Of the moments at an owner whose work can be seen."""
_SESSION_STATES = (
    SessionState.INVITED, SessionState.RESERVED, SessionState.LINKED, SessionState.SPENT,
    SessionState.SEALED, SessionState.ACKNOWLEDGED, SessionState.PUBLISHED,
)  # fmt: skip
_RELEASE_STATES = (
    ReleaseState.INVITING, ReleaseState.PLANNED, ReleaseState.CONSENTING, ReleaseState.LINKING,
    ReleaseState.MASKING, ReleaseState.COLLECTING, ReleaseState.JOINING, ReleaseState.PUBLISHED,
)  # fmt: skip


class Work(StrEnum):
    """What an owner can be seen to do, beside the state of its session."""

    PINNING = "pinning"
    """Its records are in scratch, or on their way there."""
    SEALING = "sealing"
    """Its fragment is being written."""


class Round(StrEnum):
    """A round of a synthetic release: an owner reaches it by its answer, the aggregator by opening it."""

    ZEROS = "round 1"
    FIRST = "round 2"
    SECOND = "round 3"
    CLOSING = "round 4"

    @property
    def number(self) -> int:
        """From 1."""
        return [*Round].index(self) + 1


class Kind(StrEnum):
    """What is asked for."""

    PLAIN = "plain"
    """A release that every policy accepts."""
    ASKED = "asked"
    """One that a person at owner a has to decide about."""
    EXCESSIVE = "excessive"
    """One of more epsilon than the policies allow."""


class Linking(StrEnum):
    """What the plan lets linking find, and what there is to be found.

    In the horizontal layout persons at both owners, in the vertical one persons that only one owner has.
    """

    STRICT = "strict"
    """Nothing is allowed, and there is nothing."""
    ALLOWED = "allowed"
    """It is allowed, and there is nothing."""
    FOUND = "found"
    """It is allowed, and found."""


class Deed(StrEnum):
    """What is done."""

    KILL = "kill"
    """SIGKILL; the process is started again after a pause."""
    HALT = "halt"
    """SIGSTOP; the process goes on after a pause, as on a machine that was suspended."""
    CANCEL = "cancel"
    """The operator cancels the release."""
    FILL = "fill"
    """The disks of a party are full for a while."""
    SET_CLOCK = "set the clock"
    """The clock of a party is set to another time, and set right after a pause."""
    STOP = "stop the database"
    """The database in which an owner has its records is away for a while."""
    CUT = "cut the network"
    """An owner's connections to the aggregator end, and new ones are refused for a while."""
    START_AGAIN = "second daemon"
    """A second daemon is started on the state of one that runs, and has to refuse to."""
    PUT_BACK = "old state"
    """An owner's database is copied; after a pause its daemon is killed, and the copy put back."""


class Answer(StrEnum):
    """What the person at owner a does."""

    APPROVE = "approve"
    REFUSE = "refuse"
    NOTHING = "nothing"


@dataclass(frozen=True, slots=True)
class Moment:
    """When something happens."""

    party: str
    """Whose state is waited for; empty: nobody's."""
    state: str
    """The state or round that this party has to reach, or the work that it has to do; empty with no party."""
    after: float
    """Seconds after that, or after the release was asked for."""


@dataclass(frozen=True, slots=True)
class Blow:
    """Something that happens to a release."""

    moment: Moment
    """When."""
    deed: Deed
    """What."""
    parties: tuple[str, ...]
    """Whose processes are killed or halted, or what they stand on fails."""
    pause: float
    """Seconds until they are started again, or go on, or stand on firm ground, or lose what is new."""
    room: int = 0
    """Bytes left on a disk that is filled."""
    wrong_by: float = 0.0
    """Seconds by which a clock that is set is wrong."""


@dataclass(frozen=True, slots=True)
class Schedule:
    """One run."""

    seed: int
    """What it was drawn from."""
    layout: str
    """Horizontal or vertical."""
    product: Product
    """Masked or synthetic records."""
    linking: Linking
    """What linking may find, and finds."""
    kind: Kind
    """What is asked for."""
    answer: Answer
    """What the person does, where one is asked."""
    hesitates: float
    """Seconds that the person takes."""
    blows: tuple[Blow, ...]
    """What happens, one after another; processes come back by themselves."""
    by_keys: bool
    """Whether match keys link the persons, or an identifier."""
    engines: dict[str, EngineKind]
    """What each owner holds its records in."""
    patience: int
    """How many times as long as usual everything may take."""


def draw(seed: int) -> Schedule:
    """Return the schedule of a seed."""
    draws, of_engines = random.Random(seed), random.Random(f"engines {seed // _SEEDS_PER_ENGINES}")
    engines = dict(zip(OWNERS, of_engines.choices(tuple(ENGINES), tuple(ENGINES.values()), k=2), strict=True))
    kind = draws.choices(tuple(Kind), (16, 4, 1))[0]
    layout, of_product = draws.choice(LAYOUTS), random.Random(f"product {seed}")
    synthetic = of_product.random() < _SHARE_OF_SYNTHETIC
    product = Product.SYNTHETIC if synthetic else Product.MASKED
    linking = draws.choices(tuple(Linking), (3, 1, 3))[0]
    # Owners count together what one identifier links, if they have the same persons.
    across = synthetic and layout == "vertical"
    return Schedule(
        seed=seed,
        layout=layout,
        product=product,
        linking=Linking.STRICT if across else linking,
        kind=kind,
        answer=draws.choices(tuple(Answer), (9, 3, 1))[0],
        hesitates=draws.uniform(0, 1.5),
        blows=tuple(_blow(draws, kind, product, engines) for _ in range(draws.choice((1, 1, 2, 2, 3, 4)))),
        by_keys=draws.random() < 0.4 and not across,
        engines=engines,
        patience=_SPARK_PATIENCE if EngineKind.SPARK in engines.values() else 1,
    )


def _blow(draws: random.Random, kind: Kind, product: Product, engines: dict[str, EngineKind]) -> Blow:
    deed = draws.choices(tuple(Deed), (6, 1, 1, 2, 2, 1, 2, 1, 2))[0]
    victims: tuple[str, ...] = draws.choice((("a",), ("b",), (AGGREGATOR,), (AGGREGATOR,), OWNERS, PARTIES))
    # Some stay away for longer than a step may take. A process that lives has to meet what fails.
    usual = 1 if deed in (Deed.KILL, Deed.HALT) else 3
    pause = draws.uniform(15, 25) if draws.random() < 0.02 else draws.uniform(0, usual)
    victims = {Deed.CANCEL: (), Deed.STOP: (SQL_OWNER,)}.get(deed, victims)
    if deed in (Deed.CUT, Deed.PUT_BACK) and AGGREGATOR in victims:
        victims = OWNERS
    room = draws.choice((0, ROOM_FOR_A_DATABASE)) if deed is Deed.FILL else 0
    wrong_by = draws.choice((-1, 1)) * 10 ** draws.uniform(0, 6) if deed is Deed.SET_CLOCK else 0.0
    return Blow(_moment(draws, kind, product, engines), deed, victims, pause, room, wrong_by)


def _moment(draws: random.Random, kind: Kind, product: Product, engines: dict[str, EngineKind]) -> Moment:
    if draws.random() < 0.25:
        return Moment("", "", draws.uniform(0, 2.5))
    # Mostly at once, since states are short; sometimes a little into the state.
    after = draws.choice((0.0, draws.uniform(0, 0.1)))
    party = draws.choice((*OWNERS, AGGREGATOR, AGGREGATOR))
    if product is Product.SYNTHETIC and draws.random() < _SHARE_OF_ROUNDS:
        return Moment(party, str(draws.choice(tuple(Round))), after)
    if party == AGGREGATOR:
        return Moment(party, str(draws.choice(_RELEASE_STATES)), after)
    asked = (SessionState.AWAITING_APPROVAL,) if kind is Kind.ASKED and party == "a" else ()
    # Records in memory are nowhere to be seen.
    if engines[party] is not EngineKind.MEMORY and draws.random() < _SHARE_OF_WORK:
        return Moment(party, str(draws.choice(tuple(Work))), after)
    return Moment(party, str(draws.choice((*_SESSION_STATES, *asked))), after)
