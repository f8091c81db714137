"""How much rank noise is asked for: everywhere, or attribute by attribute (MECHANISMS §8)."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal, InvalidOperation
from typing import Any

from common.errors import UsageError
from common.model.plan import RELEASE_ID
from common.model.privacy import (
    AUTO,
    DEFAULT_MECHANISM,
    EVALUATION_ONLY,
    EXPONENTIAL,
    MECHANISMS,
    NO_RANK_NOISE,
    REQUESTABLE,
    SMALLEST_K,
    is_listed,
    is_rank_noise,
    plain,
    round_down,
)

DEFAULT = Decimal("0.03")
"""What is taken where nothing is said: protection is not lost by naming a mechanism."""
_HINT = (
    "write a share of the ranks from 0 to 1 for all attributes, or for some by name: --rank-noise 0.03, "
    "--rank-noise age=0.1,ward=0"
)


@dataclass(frozen=True, slots=True)
class RankNoise:
    """What is asked for."""

    everywhere: Decimal = DEFAULT
    """w of all attributes that are not named."""
    by_attribute: tuple[tuple[str, Decimal], ...] = ()
    """Attributes and their own w."""

    def of(self, attribute: str, mechanism: str) -> Decimal:
        """Return w of an attribute: 0 where its mechanism releases no list."""
        if not is_listed(mechanism):
            return NO_RANK_NOISE
        return dict(self.by_attribute).get(attribute, self.everywhere)

    def check_names(self, attributes: Iterable[str]) -> None:
        """Check that only attributes are named that are there.

        Raises:
            UsageError: Naming those that are not.
        """
        known = list(attributes)
        unknown = [name for name, _ in self.by_attribute if name not in known]
        if unknown:
            raise UsageError(
                f"rank noise is asked for attributes that are not released: {', '.join(unknown)}",
                f"released are {', '.join(known)}",
                {"unknown": unknown},
            )

    def to_texts(self) -> list[str]:
        """Return it as `parse_rank_noise` reads it."""
        named = [f"{name}={value:f}" for name, value in self.by_attribute]
        return [f"{self.everywhere:f}", *named]


NONE = RankNoise(NO_RANK_NOISE)
"""No rank noise, as in the papers."""


def parse_rank_noise(texts: Sequence[str], mechanism: str = DEFAULT_MECHANISM) -> RankNoise:
    """Read rank noise as an operator wrote it.

    Args:
        texts: `w` for all attributes and `name=w` for single ones; empty for the default.
        mechanism: The mechanism that is asked for with it.

    Raises:
        UsageError: If one is no rank noise, an attribute is named twice, or the mechanism takes none.
    """
    everywhere, named = None, dict[str, Decimal]()
    for text in texts:
        name, _, value = text.strip().rpartition("=")
        name, share = name.strip(), _share(text, value)
        if name in named or (not name and everywhere is not None):
            raise UsageError(f"rank noise of {name or 'all attributes'} is given twice", _HINT)
        if name:
            named[name] = share
        elif "=" in text:
            raise UsageError(f"{text!r} names no attribute", _HINT)
        else:
            everywhere = share
    if not is_listed(mechanism) and any([everywhere, *named.values()]):
        raise UsageError(
            f"mechanism {mechanism} releases no list in rank order and takes no rank noise",
            "leave --rank-noise out, or choose another mechanism",
        )
    return RankNoise(DEFAULT if everywhere is None else everywhere, tuple(named.items()))


def _share(text: str, value: str) -> Decimal:
    try:
        share = Decimal(value.strip())
    except InvalidOperation:
        raise UsageError(f"{text!r} is no rank noise", _HINT) from None
    if not share.is_finite() or not is_rank_noise(share):
        raise UsageError(f"{text!r} is no rank noise", _HINT)
    return plain(share)


def parse_id(text: str) -> str:
    """Check the id of a release.

    Raises:
        UsageError: If it cannot be one.
    """
    if not RELEASE_ID.fullmatch(text):
        raise UsageError(
            f"{text!r} cannot be the id of a release",
            "use a-z, 0-9, '.', '_' and '-', 64 characters at most, a letter or digit at both ends",
        )
    return text


def parse_mechanism(text: str, k: int | None = None) -> str:
    """Read a mechanism that may be asked for.

    Args:
        text: A mechanism id; empty for the default.
        k: The minimum cluster size that was asked for with it.

    Raises:
        UsageError: If there is none of that id, it makes no release, or it takes no k.
    """
    if text == EXPONENTIAL:
        raise UsageError(
            f"mechanism {text} cannot be asked for: it goes with attributes that their owners declare so",
            'owners declare a taxonomy and method = "exponential"',
        )
    if text in EVALUATION_ONLY:
        raise UsageError(
            f"mechanism {text} is for evaluation only and makes no release: {EVALUATION_ONLY[text]}",
            f"accepted: {', '.join((AUTO, *REQUESTABLE))}",
        )
    chosen = one_of("mechanism", text or DEFAULT_MECHANISM, (AUTO, *REQUESTABLE))
    if k is not None and chosen != AUTO and not MECHANISMS[chosen].clustered:
        raise UsageError(
            f"mechanism {chosen} makes no clusters and takes no k",
            "leave --k out, or choose a mechanism that makes clusters",
        )
    return chosen


def parse_k(text: str) -> int | None:
    """Read a minimum cluster size; None for an empty text or "auto".

    Raises:
        UsageError: If it is not a number that any mechanism takes.
    """
    if text.strip() in ("", "auto"):
        return None
    try:
        k = int(text)
    except ValueError:
        raise UsageError(
            f"k must be a whole number or auto, not {text!r}", f"{SMALLEST_K} is the smallest"
        ) from None
    if k < SMALLEST_K:
        raise UsageError(f"k must be at least {SMALLEST_K}, not {k}", "a larger k means less noise")
    if k >= 2**31:
        raise UsageError("k is larger than any data set", "k is the smallest number of records of a cluster")
    return k


def parse_weights(texts: Sequence[str]) -> tuple[tuple[str, Decimal], ...]:
    """Read the weights of attributes, `name=weight` each.

    Raises:
        UsageError: If one is no weight, or an attribute has two.
    """
    pairs = [text.rpartition("=")[::2] for text in texts]
    distinct("weight of attribute", [name for name, _ in pairs])
    return tuple((name.strip(), _weight(name.strip(), weight)) for name, weight in pairs)


def _weight(name: str, text: str) -> Decimal:
    hint = "write weights as name=weight, each a positive decimal number: --weights age=2,income=0.5"
    try:
        weight = Decimal(text.strip())
    except InvalidOperation:
        weight = Decimal(0)
    if not name or not weight.is_finite() or not 0 < weight <= 10**6 or round_down(weight) != weight:
        raise UsageError(f"{name}={text} is no weight of an attribute", hint)
    return plain(weight)


def one_of(what: str, text: str, accepted: Sequence[str] | Mapping[str, Any]) -> str:
    """Return a text that is one of those that are accepted.

    Raises:
        UsageError: If it is another.
    """
    if text not in accepted:
        raise UsageError(f"{what} {text!r} is not known", f"accepted: {', '.join(accepted)}")
    return text


def distinct(what: str, names: Sequence[str]) -> tuple[str, ...]:
    """Return names each of which is there once.

    Raises:
        UsageError: If one is there twice.
    """
    twice = sorted({name for name in names if list(names).count(name) > 1})
    if twice:
        raise UsageError(f"{what} {', '.join(twice)} is named twice", "name each once")
    return tuple(names)
