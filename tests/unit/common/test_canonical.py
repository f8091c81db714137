"""JSON from elsewhere is read within bounds."""

import pytest

from common.canonical import parse_json


@pytest.mark.parametrize("opening", [b"[", b'{"a":', b'[{"a":'])
def test_deep_nesting_is_refused(opening):
    """Long before the end of the stack."""
    with pytest.raises(ValueError, match="recursion limit"):
        parse_json(opening * 200_000)


def test_what_documents_need_is_read():
    """Nesting up to 200, and numbers and texts as they are."""
    assert parse_json(b"[" * 200 + b"]" * 200)
    number = "123456789012345678901234567890"
    assert parse_json(f'{{"é": [null, true, {number}]}}'.encode()) == {"é": [None, True, int(number)]}
