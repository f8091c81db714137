"""The places of an owner's persons among everybody whom any owner of a release holds.

The aggregator, which sees tokens, gives each owner the places of its own persons in a random order of all,
and how many there are. An owner learns nothing about who else holds them: its places have the same
distribution in any case. Every other place is a person whom it counts as absent.
"""

from typing import TYPE_CHECKING

from common.errors import IntegrityError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from common.arrays import Int64Array
    from common.synthesis.schedule import Design


def read_places(sent: bytes, n_places: int) -> "Int64Array":
    """Read places, which are untrusted input.

    Args:
        sent: Four big-endian bytes for each person, in the order of tokens.
        n_places: How many persons there are.

    Returns:
        The place of each person, `(n_persons,)`.

    Raises:
        IntegrityError: If two persons have one place, or one is beyond the number of places.
    """
    import numpy as np

    places = np.frombuffer(sent, dtype=">u4").astype(np.int64)
    if (places >= n_places).any() or np.unique(places).size < places.size:
        raise IntegrityError(
            f"the aggregator gives this owner's persons places that are not different ones of {n_places:,}",
            "nothing was spent; ask the aggregator's operator",
        )
    return places


def placed_columns(
    held: "Mapping[int, Int64Array]", design: "Design", group: int, places: "Int64Array"
) -> "dict[int, Int64Array]":
    """Return codes of everybody: of an owner's persons at their places, of all others that they are absent.

    Args:
        held: Codes of its persons by attribute, `(n_persons,)`, in the order of their tokens.
        group: The owner's.

    Returns:
        Codes by attribute, with the one that says who is present, `(n_records,)` each.
    """
    import numpy as np

    columns = {}
    for place, codes in held.items():
        absent = design.attributes[place].n_values - 1
        columns[place] = np.full(design.n_records, absent, dtype=np.int64)
        columns[place][places] = codes
    present = np.zeros(design.n_records, dtype=np.int64)
    present[places] = 1
    return columns | {design.presence[group]: present}
