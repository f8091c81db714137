"""Arguments about masking as both command lines take them, checked as far as they can be without data."""

from collections.abc import Mapping, Sequence
from decimal import Decimal, InvalidOperation
from typing import Any

from common.errors import UsageError
from common.plan import RELEASE_ID
from common.privacy import (
    AUTO,
    DEFAULT_MECHANISM,
    EVALUATION_ONLY,
    EXPONENTIAL,
    MECHANISMS,
    REQUESTABLE,
    SMALLEST_K,
    plain,
    round_down,
)


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
