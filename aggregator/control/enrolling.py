"""Certificates of owners as operators handle them: a request is read, compared, approved or refused."""

from dataclasses import asdict, dataclass
from typing import Any

from cryptography import x509
from cryptography.hazmat.primitives.serialization import Encoding

from aggregator.ca.authority import Authority
from aggregator.ca.enrolment import Enrolled, open_register
from aggregator.config import AggregatorConfig
from aggregator.control.documents import iso
from common.clock import utc_now
from common.errors import IntegrityError, UsageError
from common.trust import identity
from common.trust.bundle import Bundle
from common.trust.enrolment import CertificateRequest
from common.trust.identity import Party, PartyKind, parse_fingerprint
from common.trust.signing import load_chain

_SOON_SECONDS = 30 * 86400


@dataclass(frozen=True, slots=True)
class Issued:
    """A certificate that was issued."""

    party: Party
    certificate: x509.Certificate
    bundle: bytes
    """The file for the owner; it is not secret."""
    ca: str
    """Fingerprint of the CA, which is read to the owner on the telephone."""


def authority(settings: AggregatorConfig) -> Authority:
    """Return the CA of an aggregator that is one.

    Raises:
        UsageError: If it is malformed.
    """
    ca_key = settings.enrolment.ca_key
    if ca_key is None:
        raise UsageError(
            "this aggregator is no certificate authority",
            "name the CA's key: [enrolment] ca_key, aggregator.toml",
        )
    return Authority.load(load_chain(settings.tls.ca), ca_key)


def named_party(settings: AggregatorConfig, request: CertificateRequest, owner: str = "") -> Party:
    """Return the party to name: as the operator says, else as requested, within the own trust domain.

    Args:
        owner: The owner's id as the operator says; empty for the one of the request.

    Raises:
        UsageError: If that is no owner of this trust domain.
    """
    asked, domain = request.party, settings.aggregator.trust_domain
    if not owner:
        if asked is None or asked.kind is not PartyKind.OWNER or asked.trust_domain != domain:
            raise UsageError(
                f"the request asks for {asked.uri if asked else 'no name'}, not for an owner of {domain}",
                "name the owner's id with --id, or have the owner correct its owner.toml and ask again",
            )
        return asked
    try:
        return Party(PartyKind.OWNER, owner, domain)
    except ValueError as problem:
        raise UsageError(str(problem), "name the owner's id with --id") from None


def compare_fingerprint(request: CertificateRequest, heard: str) -> None:
    """Compare the fingerprint of a request's key with the one that the owner reads on the telephone.

    Raises:
        UsageError: If that is no fingerprint.
        IntegrityError: If it is another one.
    """
    key = identity.fingerprint(request.key)
    try:
        same = parse_fingerprint(heard) == key
    except ValueError as problem:
        raise UsageError(f"--fingerprint: {problem}", "type it as the owner reads it") from None
    if not same:
        raise IntegrityError(
            "the request is not for the key with that fingerprint",
            "the file was exchanged on its way, or is an older one: have the owner send it again",
            {"fingerprint": key},
        )


def approve(
    settings: AggregatorConfig, request: CertificateRequest, party: Party, actor: str, *, replace: bool
) -> Issued:
    """Issue an owner's certificate.

    Args:
        request: The request, its key compared.
        party: Whom the certificate names.
        actor: Who approves.
        replace: Whether the owner's other keys are revoked.

    Raises:
        UsageError: If this aggregator is no CA.
        ConflictError, IdentityError: As `Enrolment.approve`.
    """
    ca = authority(settings)
    with open_register(settings.aggregator.state_dir, utc_now) as register:
        issued = register.approve(ca, request, party, actor, replace=replace)
    own, root = (each.public_bytes(Encoding.PEM).decode() for each in (issued, ca.certificate))
    bundle = Bundle(party, own, root).to_bytes()
    return Issued(party, issued, bundle, identity.fingerprint(ca.certificate.public_key()))


def certificate_document(each: Enrolled) -> dict[str, Any]:
    """Return the document of a certificate."""
    times = {"since": iso(each.since), "expires": iso(each.expires)}
    return {**asdict(each), **times, "revoked": None if each.revoked is None else iso(each.revoked)}


def certificate_state(each: Enrolled, now: float) -> str:
    """Return the state of a certificate: revoked, expired, ends soon, or valid.

    Args:
        each: The certificate.
        now: Unix time.
    """
    if each.revoked is not None:
        return "revoked"
    if each.expires < now:
        return "expired"
    return "ends soon" if each.expires - now < _SOON_SECONDS else "valid"
