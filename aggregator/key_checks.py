"""Whether all owners have the same linkage key, told by what they sent with their consents."""

from collections.abc import Mapping
from dataclasses import dataclass

from common.errors import ConflictError


@dataclass(frozen=True, slots=True)
class KeyCheck:
    """What an owner tells about its linkage key."""

    value: str
    """Key-check value of the release, hexadecimal; equal for equal keys."""
    generation: int = 0
    """Generation of the key; 0 if an older version did not tell."""


def compare_key_checks(told: Mapping[str, KeyCheck]) -> None:
    """Check that all owners used the same linkage key.

    Args:
        told: What each owner tells, by owner id.

    Raises:
        ConflictError: Naming the owners that have each key, its generation, and who gives it to whom: the
            newest generation is taken on by the others, of equal ones that which most owners have.
    """
    keys = {each.value: each.generation for each in told.values()}
    if len(keys) <= 1:
        return
    camps = {key: sorted(owner for owner, each in told.items() if each.value == key) for key in keys}
    ranked = sorted(camps, key=lambda key: (-keys[key], -len(camps[key]), camps[key]))
    newest, older = camps[ranked[0]], sorted(owner for key in ranked[1:] for owner in camps[key])
    listed = " | ".join(_text(camps[key], keys[key]) for key in ranked)
    raise ConflictError(
        f"the owners have different linkage keys: {listed}",
        f"give all the same: owner-node linkage-key export at {newest[0]}, then linkage-key import --replace "
        f"at {', '.join(older)}; nothing was spent",
        {
            "different": older,
            "same": [camps[key] for key in ranked],
            "generations": {owner: each.generation for owner, each in told.items()},
        },
    )


def _text(owners: list[str], generation: int) -> str:
    names = ", ".join(owners)
    return f"{names} {'have' if len(owners) > 1 else 'has'} generation {generation}" if generation else names
