"""From texts to a question about a data set, as a person writes them on the command line or on a page."""

from collections.abc import Sequence
from decimal import Decimal

from common.errors import UsageError
from common.model.privacy import NO_RANK_NOISE, parse_epsilon
from common.planning.arguments import distinct, one_of, parse_k, parse_mechanism, parse_rank_noise
from common.planning.names import split_names
from owner_node.explore.assessment import ALL_MEASURES, Grid, GridSetting
from owner_node.explore.models import is_installed
from owner_node.explore.sweep import ExploreRequest
from owner_node.risk.attacks import ATTACKS
from owner_node.risk.trials import DRAWS
from owner_node.risk.utility import MEASURES

EPSILONS, KS, RANK_NOISES, REPETITIONS = "0.1,0.5,2", "auto", "0,0.03,0.1,0.3", 5
"""What is asked by default."""
NONE = "none"
MOST_REPETITIONS = 1000


def grid_of(epsilon: str, k: str, mechanism: str | None, rank_noise: str) -> Grid:
    """Return all settings of a question.

    Args:
        epsilon: Budgets for all attributes together, separated by commas.
        k: Minimum cluster sizes, or auto.
        mechanism: Mechanism ids; None for auto.
        rank_noise: Noise on ranks, as shares of them; A=W: another one of attribute A.

    Raises:
        UsageError: If a text is none of these, or names something twice.
    """
    epsilons = tuple(parse_epsilon(text) for text in split_names(epsilon))
    ks = tuple(parse_k(text) for text in split_names(k))
    mechanisms = tuple(
        parse_mechanism(name) for name in distinct("mechanism", split_names(mechanism) or [""])
    )
    noises, own = _rank_noises(split_names(rank_noise))
    if not epsilons or not ks or not noises:
        raise UsageError("there is no setting to try", "name at least one epsilon, k and rank noise")
    distinct("epsilon", [f"{value:f}" for value in epsilons])
    distinct("k", ["auto" if size is None else str(size) for size in ks])
    distinct("rank noise", [f"{noise:f}" for noise in noises])
    return Grid(epsilons, ks, mechanisms, noises, own)


def one_setting(epsilon: str, k: str, mechanism: str | None) -> GridSetting:
    """Return the only setting of a question, as in `grid_of`, without rank noise.

    Raises:
        UsageError: As `grid_of`, and if there are several.
    """
    settings = grid_of(epsilon, k, mechanism, "0").settings()
    if len(settings) > 1:
        raise UsageError("--max-reidentified tries one epsilon, k and mechanism", "name one of each")
    return settings[0]


def _rank_noises(texts: Sequence[str]) -> tuple[tuple[Decimal, ...], tuple[tuple[str, Decimal], ...]]:
    """Return the rank noises that are tried, and those of single attributes, the same in every setting."""
    own = [text for text in texts if "=" in text]
    tried = [text for text in texts if "=" not in text] or (split_names(RANK_NOISES) if own else [])
    noises = tuple(parse_rank_noise([text]).everywhere or NO_RANK_NOISE for text in tried)
    return noises, parse_rank_noise(own).by_attribute


def question_of(
    grid: Grid,
    repetitions: int,
    class_attribute: str | None = None,
    *,
    known: str | None = None,
    measures: str | None = None,
    attacks: str | None = None,
) -> ExploreRequest:
    """Return a question about all settings of a grid.

    Args:
        known: Attributes that an intruder knows about everybody, separated by commas; None for all.
        measures: Beside the mean SSE, or "none"; None for all that are installed.
        attacks: Tried on all settings, or "none"; None for all attacks on useful settings.

    Raises:
        UsageError: If something is named that does not exist, or the repetitions are too many.
    """
    if not 1 <= repetitions <= MOST_REPETITIONS:
        raise UsageError(
            f"--repetitions is a number from 1 to {MOST_REPETITIONS}, not {repetitions}",
            "more draws make confidence intervals narrower",
        )
    return ExploreRequest(
        grid,
        repetitions,
        # With two repetitions, confidence intervals would be as wide as the scale.
        DRAWS if repetitions > 1 else 1,
        _measures(measures, class_attribute),
        _some("attack", attacks, ATTACKS),
        distinct("attribute", split_names(known)),
        class_attribute,
        thorough=attacks is not None,
    )


def _measures(text: str | None, class_attribute: str | None) -> tuple[str, ...]:
    """Return the requested measures; default: the installed ones, and with a class also its models."""
    if text is not None or class_attribute is not None or is_installed():
        return _some("measure", text, ALL_MEASURES)
    return tuple(MEASURES)


def _some(what: str, text: str | None, accepted: Sequence[str]) -> tuple[str, ...]:
    if text is None:
        return tuple(accepted)
    if text.strip() == NONE:
        return ()
    return tuple(
        one_of(what, name, [*accepted, NONE]) for name in distinct(what, split_names(text)) if name != NONE
    )
