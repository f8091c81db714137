"""The catalogue of errors, across processes."""

from common.errors import UsageError, from_document
from owner_node.state.database import BusyError, CannotStoreError


def test_what_a_peer_sent_is_no_error_of_this_machine():
    """A refusal that arrives is never taken for a database here that is busy or cannot be written."""
    for code, kept in (("usage", BusyError), ("configuration", CannotStoreError)):
        assert kept.code == code
        received = from_document({"error": {"code": code, "message": "m"}})
        assert received.code == code
        assert not isinstance(received, kept)
    assert type(from_document({"error": {"code": "usage", "message": "m"}})) is UsageError
