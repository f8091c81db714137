"""The files that this owner proves its identity with, checked before anything leans on them."""

from collections.abc import Callable, Sequence
from datetime import datetime

from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec

from common.credentials import Credentials, Identity
from common.errors import ConfigurationError, IdentityError
from common.identity import (
    Party,
    PartyKind,
    fingerprint,
    host_names,
    load_certificates,
    party_of_certificate,
    verify_chain,
)
from owner_node.config import OwnerConfig


def own_party(config: OwnerConfig) -> Party:
    """Return whom the owner's certificate must name."""
    return Party(PartyKind.OWNER, config.owner.id, config.owner.trust_domain)


def own_credentials(config: OwnerConfig, clock: Callable[[], datetime]) -> Credentials:
    """Load the owner's key and certificate, which are followed from then on.

    Args:
        config: The owner's configuration.
        clock: Tells the time.

    Raises:
        ConfigurationError: If a file cannot be used, or the certificate is another party's.
        IdentityError: If the certificate is not valid now.
    """
    if not config.tls.cert.exists():
        raise ConfigurationError(
            f"{config.tls.cert} is not there: this owner has no certificate yet",
            hint="get one: owner-node enroll request --out FILE, then owner-node enroll install",
        )
    return Credentials(config.tls, own_party(config), clock)


def check_issued(
    key: ec.EllipticCurvePublicKey,
    chain_pem: bytes,
    party: Party,
    authorities: Sequence[x509.Certificate],
    now: datetime,
) -> x509.Certificate:
    """Check a certificate that was issued to this owner, before it is put to use.

    Args:
        key: The key it was asked for.
        chain_pem: What came.
        party: Whom it must name.
        authorities: The CAs that it must lead to.
        now: The present moment.

    Returns:
        The certificate.

    Raises:
        IdentityError: If it is for another key or party, not valid now, or not of these CAs.
    """
    leaf, *intermediates = load_certificates(chain_pem)
    if fingerprint(leaf.public_key()) != fingerprint(key):
        raise IdentityError(
            "the certificate is for another key than it was asked for",
            "install the bundle that answers the newest request of this owner",
        )
    named = party_of_certificate(leaf)
    if named != party:
        raise IdentityError(
            f"the certificate names {named.uri}", f"this owner is {party.uri}: compare with owner.toml"
        )
    verify_chain(leaf, intermediates, authorities, now, "client")
    if hosts := host_names(leaf):
        raise IdentityError(
            f"the certificate also names hosts ({', '.join(hosts)})",
            "have it issued without host names: no owner may pose as an aggregator",
        )
    return leaf


def check_renewed(
    key: ec.EllipticCurvePublicKey, chain_pem: bytes, party: Party, present: Identity, now: datetime
) -> None:
    """Check a certificate that is to take the place of the present one.

    It must be as good at every aggregator of this owner: under a CA that the present one leads to, and valid
    for longer.

    Args:
        key: The key it was asked for.
        chain_pem: What came.
        party: Whom it must name.
        present: What is in use.
        now: The present moment.

    Raises:
        IdentityError: If it is not.
    """
    first, *intermediates = present.signer.chain
    same = [each for each in present.authorities if _leads_to(first, intermediates, each, now)]
    issued = check_issued(key, chain_pem, party, same or present.authorities, now)
    if issued.not_valid_after_utc <= first.not_valid_after_utc:
        raise IdentityError(
            "the new certificate does not end later than the present one",
            "ask the operator of the aggregator that issued it; the present one stays in use",
        )


def _leads_to(
    leaf: x509.Certificate,
    intermediates: Sequence[x509.Certificate],
    authority: x509.Certificate,
    now: datetime,
) -> bool:
    try:
        verify_chain(leaf, intermediates, (authority,), now, "client")
    except IdentityError:
        return False
    return True
