"""What happens to a release while it is made: drawn from a seed alone, so that a run can be repeated."""

import random
from dataclasses import dataclass
from enum import StrEnum

from aggregator.protocol.states import State as ReleaseState
from owner_node.state.session import SessionState

OWNERS = ("a", "b")
AGGREGATOR = "aggregator"
PARTIES = (*OWNERS, AGGREGATOR)
LAYOUTS = ("horizontal", "vertical")
_SESSION_STATES = (
    SessionState.INVITED, SessionState.RESERVED, SessionState.LINKED, SessionState.SPENT,
    SessionState.SEALED, SessionState.ACKNOWLEDGED, SessionState.PUBLISHED,
)  # fmt: skip
_RELEASE_STATES = (
    ReleaseState.INVITING, ReleaseState.PLANNED, ReleaseState.CONSENTING, ReleaseState.LINKING,
    ReleaseState.MASKING, ReleaseState.COLLECTING, ReleaseState.JOINING, ReleaseState.PUBLISHED,
)  # fmt: skip


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
    """The state that this party has to reach; empty with no party."""
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
    """Whose processes are killed or halted."""
    pause: float
    """Seconds until they are started again, or go on."""


@dataclass(frozen=True, slots=True)
class Schedule:
    """One run."""

    seed: int
    """What it was drawn from."""
    layout: str
    """Horizontal or vertical."""
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


def draw(seed: int) -> Schedule:
    """Return the schedule of a seed."""
    draws = random.Random(seed)
    kind = draws.choices(tuple(Kind), (16, 4, 1))[0]
    return Schedule(
        seed=seed,
        layout=draws.choice(LAYOUTS),
        linking=draws.choices(tuple(Linking), (3, 1, 3))[0],
        kind=kind,
        answer=draws.choices(tuple(Answer), (9, 3, 1))[0],
        hesitates=draws.uniform(0, 1.5),
        blows=tuple(_blow(draws, kind) for _ in range(draws.choice((1, 1, 2, 2, 3, 4)))),
    )


def _blow(draws: random.Random, kind: Kind) -> Blow:
    deed = draws.choices(tuple(Deed), (6, 1, 1))[0]
    victims = draws.choice((("a",), ("b",), (AGGREGATOR,), (AGGREGATOR,), OWNERS, PARTIES))
    # Some stay away for longer than a step may take.
    pause = draws.uniform(15, 25) if draws.random() < 0.02 else draws.uniform(0, 1)
    return Blow(_moment(draws, kind), deed, () if deed is Deed.CANCEL else victims, pause)


def _moment(draws: random.Random, kind: Kind) -> Moment:
    if draws.random() < 0.25:
        return Moment("", "", draws.uniform(0, 2.5))
    # Mostly at once, since states are short; sometimes a little into the state.
    after = draws.choice((0.0, draws.uniform(0, 0.1)))
    party = draws.choice((*OWNERS, AGGREGATOR, AGGREGATOR))
    if party == AGGREGATOR:
        return Moment(party, str(draws.choice(_RELEASE_STATES)), after)
    asked = (SessionState.AWAITING_APPROVAL,) if kind is Kind.ASKED and party == "a" else ()
    return Moment(party, str(draws.choice((*_SESSION_STATES, *asked))), after)
