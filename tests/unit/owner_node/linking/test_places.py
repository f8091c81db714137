"""Places of an owner's persons among everybody, as the aggregator sends them."""

import numpy as np
import pytest

from common.errors import IntegrityError
from owner_node.linking.places import read_places


def sent(*places: int) -> bytes:
    """Return places as they are sent."""
    return np.array(places, dtype=">u4").tobytes()


def test_places_are_read_in_the_order_of_tokens():
    """Any distinct places are as good as any others; nobody and everybody are possible."""
    assert read_places(sent(4, 0, 2), 5).tolist() == [4, 0, 2]
    assert read_places(b"", 5).tolist() == []
    assert read_places(sent(1, 0), 2).tolist() == [1, 0]


@pytest.mark.parametrize("places", [(0, 0), (1, 5), (2**32 - 1,)])
def test_places_that_collide_or_do_not_exist_are_refused(places):
    """Two persons of one place would be counted as one, and a place beyond all would be nobody's."""
    with pytest.raises(IntegrityError, match="places that are not different"):
        read_places(sent(*places), 5)
