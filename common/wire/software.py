"""What a side runs, on the wire (`common.model.compatibility.Software`)."""

from common.errors import ProtocolError
from common.model.compatibility import HERE, Software
from common.wire.v1 import owner_pb2 as wire


def software_here() -> wire.Software:
    """Return what runs here."""
    return wire.Software(
        version=HERE.version,
        oldest_protocol=HERE.oldest,
        newest_protocol=HERE.newest,
        features=HERE.features,
    )


def read_software(message: wire.Software) -> Software:
    """Read what the other side states.

    Raises:
        ProtocolError: If it is malformed or absent.
    """
    try:
        return Software(
            message.version, message.oldest_protocol, message.newest_protocol, tuple(message.features)
        )
    except ValueError as error:
        raise ProtocolError(
            f"the other side does not say what it runs: {error}",
            "it may run a version from before the first release: upgrade it",
        ) from None
