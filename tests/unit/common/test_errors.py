"""The catalogue of errors, across processes."""

from common.errors import CannotStoreError, ConfigurationError, from_document


def test_what_a_peer_sent_is_no_error_of_this_machine():
    """An error of a peer is never taken for a database here that is busy or cannot be written."""
    assert CannotStoreError.code == "configuration"
    received = from_document({"error": {"code": "configuration", "message": "m"}})
    assert type(received) is ConfigurationError
