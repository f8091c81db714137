"""What an owner signed for its releases, told to that owner again when it has lost its ledger."""

from aggregator.protocol.release import Release
from common.wire.v1 import owner_pb2 as wire


def recalled(release: Release, owner: str, newest_at: int) -> wire.RecalledRelease | None:
    """Return what an owner signed for a release, or None if it never accepted its plan.

    Args:
        release: The release.
        owner: Owner id, from the certificate of the call.
        newest_at: When the owner's newest ledger head came, in Unix seconds.
    """
    progress = release.progress.get(owner)
    if progress is None or progress.consented is None or release.planned is None:
        return None
    consented, sealed, acknowledged = progress.consented, progress.sealed, progress.acknowledged
    message = wire.RecalledRelease(
        release=release.id,
        plan=release.planned.plan.encode(),
        key_check=consented.key_check,
        consent_signature=bytes.fromhex(consented.signature),
        consent_certificate=consented.certificate.encode(),
        masking_asked=release.addended is not None,
        key_generation=consented.key_generation,
        settled=acknowledged is not None and acknowledged.at < newest_at,
    )
    if sealed is not None:
        message.fragment = sealed.statement.encode()
        message.fragment_signature = bytes.fromhex(sealed.signature)
        message.fragment_certificate = sealed.certificate.encode()
    return message
