"""How much rank noise is asked for: everywhere, or attribute by attribute (MECHANISMS §8)."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from decimal import Decimal, InvalidOperation

from common.errors import UsageError
from common.privacy import DEFAULT_MECHANISM, NO_RANK_NOISE, is_listed, is_rank_noise, plain

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
