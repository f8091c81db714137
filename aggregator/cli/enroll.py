"""`aggregator enroll`: owners' certificates approved, revoked and listed, with or without the daemon."""

from contextlib import AbstractContextManager
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from cryptography.hazmat.primitives.serialization import Encoding

from aggregator.ca.authority import Authority
from aggregator.ca.enrolment import open_register, parse_serial
from aggregator.cli.connection import os_user
from aggregator.config import load
from common.cli import console
from common.clock import utc_now
from common.errors import ExitCode, IntegrityError, UsageError
from common.files import write_atomic
from common.trust import identity
from common.trust.enrolment import Bundle, read_request
from common.trust.identity import Party, PartyKind, parse_fingerprint, spoken
from common.trust.signing import load_chain

if TYPE_CHECKING:
    from aggregator.ca.enrolment import Enrolled, Enrolment
    from aggregator.config import AggregatorConfig
    from common.trust.enrolment import CertificateRequest


_MOST_READ = 1 << 20
_PUBLIC_FILE = 0o644
_SOON_SECONDS = 30 * 86400

app = typer.Typer(help="Approve, revoke and list the certificates of owners.", no_args_is_help=True)

RequestArgument = Annotated[
    Path, typer.Argument(metavar="FILE", help="Request file of the owner.", show_default=False)
]
OutOption = Annotated[
    Path, typer.Option("--out", help="File to write the bundle for the owner to.", metavar="FILE")
]
IdOption = Annotated[
    str | None,
    typer.Option("--id", help="The owner's id; default: as in the request.", show_default=False),
]
FingerprintOption = Annotated[
    str | None,
    typer.Option(
        "--fingerprint", help="Fingerprint of the owner's key, compared by telephone.", show_default=False
    ),
]
ReplaceOption = Annotated[bool, typer.Option("--replace", help="Revoke the owner's other certificates.")]
OwnerArgument = Annotated[
    str | None,
    typer.Argument(metavar="[ID]", help="Owner id; revokes all its certificates.", show_default=False),
]
SerialOption = Annotated[
    str | None,
    typer.Option(
        "--serial",
        help="Serial number of one certificate, hexadecimal; also revokes those renewed from it.",
        show_default=False,
    ),
]


@app.command()
def approve(
    file: RequestArgument,
    out: OutOption,
    owner: IdOption = None,
    fingerprint: FingerprintOption = None,
    replace: ReplaceOption = False,
    yes: console.YesOption = False,
    config: console.ConfigOption = None,
    as_json: console.JsonOption = False,
) -> None:
    """Issue the certificate that an owner requests. Enrolling alone does not admit an owner to a release."""
    settings = load(config)
    ca_key = settings.enrolment.ca_key
    if ca_key is None:
        raise UsageError(
            "this aggregator is no certificate authority",
            "name the CA's key: [enrolment] ca_key, aggregator.toml",
        )
    authority = Authority.load(load_chain(settings.tls.ca), ca_key)
    request = _request(file)
    party, key = _party(settings, request, owner), identity.fingerprint(request.key)
    _compare(key, party, fingerprint, yes=yes)
    with _register(settings) as register:
        issued = register.approve(authority, request, party, os_user(), replace=replace)
    _write_bundle(out, party, issued, authority.certificate)
    ca, expires = identity.fingerprint(authority.certificate.public_key()), issued.not_valid_after_utc
    if as_json:
        document = {"owner": party.name, "fingerprint": key, "serial": f"{issued.serial_number:x}"}
        console.print_json(
            {**document, "expires": expires.isoformat(), "bundle": out.absolute(), "ca_fingerprint": ca}
        )
        return
    console.print_line(f"{party.uri}: certificate {issued.serial_number:x}, until {expires:%Y-%m-%d}")
    console.print_line(f"send {out} to the owner; it is not secret")
    console.print_line(f"fingerprint of the CA, to read to the owner on the telephone: {identity.spoken(ca)}")


@app.command()
def revoke(
    owner: OwnerArgument = None,
    serial: SerialOption = None,
    yes: console.YesOption = False,
    config: console.ConfigOption = None,
    as_json: console.JsonOption = False,
) -> int:
    """Revoke certificates and their keys, from the owner's next call on."""
    if (owner is None) == (serial is None):
        raise UsageError(
            "name an owner's id or --serial, one of the two", "aggregator enroll list shows both"
        )
    settings = load(config)
    whose = (
        f"all certificates of owner {owner}" if serial is None else f"certificate {serial} and its renewals"
    )
    question = (
        f"Revoke {whose}? Its keys are never accepted again; to come back, the owner enrols with a new key."
    )
    if not (yes or console.confirm(question, "add --yes to revoke without being asked")):
        console.note("nothing was revoked")
        return ExitCode.REFUSED
    with _register(settings) as register:
        revoked = register.revoke(os_user(), owner or "", parse_serial(serial) if serial else "")
    if as_json:
        console.print_json({"revoked": [_document(each) for each in revoked]})
        return ExitCode.DONE
    for each in revoked:
        console.print_line(f"revoked: owner {each.owner}, serial {each.serial}, key {each.fingerprint[:16]}")
    if not revoked:
        console.print_line("all of these certificates were revoked before")
    return ExitCode.DONE


@app.command(name="list")
def list_(config: console.ConfigOption = None, as_json: console.JsonOption = False) -> None:
    """List every certificate that was approved, renewed or seen, and the operators' actions."""
    with _register(load(config)) as register:
        certificates, log = register.certificates(), register.log()
    now = utc_now().timestamp()
    if as_json:
        acts = [{**_fields(each), "time": _iso(each.time)} for each in log]
        console.print_json({"certificates": [_document(each) for each in certificates], "log": acts})
        return
    console.table(
        "",
        ("owner", "serial", "key", "origin", "since", "expires", "state"),
        [
            (
                *(each.owner, each.serial, each.fingerprint[:16], each.origin, _day(each.since)),
                *(_day(each.expires), _state(each, now)),
            )
            for each in certificates
        ],
    )


def _register(settings: "AggregatorConfig") -> AbstractContextManager["Enrolment"]:
    return open_register(settings.aggregator.state_dir, utc_now)


def _request(file: Path) -> "CertificateRequest":
    try:
        with file.open("rb") as stream:
            return read_request(stream.read(_MOST_READ))
    except OSError as error:
        raise UsageError(f"{file} cannot be read: {error.strerror}", "name the owner's request") from None


def _party(settings: "AggregatorConfig", request: "CertificateRequest", owner: str | None) -> "Party":
    """Return the party to name: as the operator says, else as requested, within the own trust domain."""
    asked, domain = request.party, settings.aggregator.trust_domain
    if owner is None:
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


def _compare(key: str, party: "Party", heard: str | None, *, yes: bool) -> None:
    """Compare the key's fingerprint with the one that the owner reads on the telephone."""
    if heard is not None:
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
        return
    console.note(f"request for {party.uri}")
    console.note(f"fingerprint of its key: {spoken(key)}")
    question = "Does the owner read the same fingerprint on the telephone?"
    hint = "compare it on the telephone, and give what the owner reads: --fingerprint F"
    if not yes and not console.confirm(question, hint):
        raise typer.Exit(int(ExitCode.REFUSED))


def _write_bundle(out: Path, party: "Party", issued: Any, ca: Any) -> None:
    bundle = Bundle(party, issued.public_bytes(Encoding.PEM).decode(), ca.public_bytes(Encoding.PEM).decode())
    try:
        write_atomic(out, bundle.to_bytes(), _PUBLIC_FILE)
    except OSError as error:
        raise UsageError(
            f"{out} cannot be written: {error.strerror}", "name a file in a folder that is there; ask again"
        ) from None


def _document(each: "Enrolled") -> dict[str, Any]:
    times = {"since": _iso(each.since), "expires": _iso(each.expires)}
    return {**_fields(each), **times, "revoked": None if each.revoked is None else _iso(each.revoked)}


def _fields(each: Any) -> dict[str, Any]:
    return asdict(each)


def _state(each: "Enrolled", now: float) -> str:
    if each.revoked is not None:
        return "revoked"
    if each.expires < now:
        return "expired"
    return "ends soon" if each.expires - now < _SOON_SECONDS else "valid"


def _iso(seconds: int) -> str:
    return datetime.fromtimestamp(seconds, UTC).isoformat()


def _day(seconds: int) -> str:
    return f"{datetime.fromtimestamp(seconds, UTC):%Y-%m-%d}"
