"""`aggregator enroll`: owners' certificates approved, revoked and listed, with or without the daemon."""

from contextlib import AbstractContextManager
from dataclasses import asdict
from datetime import UTC, datetime
from itertools import zip_longest
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from aggregator.ca.enrolment import open_register, parse_serial, serial_number
from aggregator.config import load
from aggregator.control import enrolling
from aggregator.control.connection import os_user
from aggregator.control.documents import iso
from aggregator.control.enrolling import (
    authority,
    certificate_document,
    certificate_state,
    compare_fingerprint,
    named_party,
)
from common.cli import console
from common.clock import utc_now
from common.errors import ExitCode, UsageError
from common.files import write_atomic
from common.trust import identity
from common.trust.enrolment import read_request
from common.trust.identity import Party, spoken

if TYPE_CHECKING:
    from aggregator.ca.enrolment import Enrolment
    from aggregator.config import AggregatorConfig
    from common.trust.enrolment import CertificateRequest


_MOST_READ = 1 << 20
_PUBLIC_FILE = 0o644

app = typer.Typer(help="Approve, revoke and list the certificates of owners.", no_args_is_help=True)

RequestsArgument = Annotated[
    list[Path], typer.Argument(metavar="FILE...", help="Request files of owners.", show_default=False)
]
OutOption = Annotated[
    Path | None,
    typer.Option(
        "--out", help="File to write the bundle for the owner to; default: beside the request, as .bundle.",
        metavar="FILE", show_default=False,
    ),
]  # fmt: skip
IdOption = Annotated[
    str | None,
    typer.Option("--id", help="The owner's id; default: as in the request.", show_default=False),
]
FingerprintOption = Annotated[
    list[str] | None,
    typer.Option(
        "--fingerprint", help="Fingerprint of the owner's key, compared by telephone; one for each request.",
        show_default=False,
    ),
]  # fmt: skip
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
    files: RequestsArgument,
    out: OutOption = None,
    owner: IdOption = None,
    fingerprint: FingerprintOption = None,
    replace: ReplaceOption = False,
    yes: console.YesOption = False,
    config: console.ConfigOption = None,
    as_json: console.JsonOption = False,
) -> None:
    """Issue the certificates that owners request. Enrolling alone does not admit an owner to a release."""
    heard = fingerprint or []
    if len(files) > 1 and (out or owner):
        raise UsageError("--out and --id go with one request", "leave them out, or approve one at a time")
    if heard and len(heard) != len(files):
        raise UsageError(
            f"{len(heard)} fingerprints for {len(files)} requests",
            "give --fingerprint once for each, in order",
        )
    settings = load(config)
    authority(settings)
    wanted = []
    for file, said in zip_longest(files, heard):
        request = _request(file)
        party = named_party(settings, request, owner or "")
        _compare(request, party, said, yes=yes)
        wanted.append((request, party, out or file.with_suffix(".bundle")))
    documents: list[dict[str, Any]] = []
    for request, party, bundle in wanted:
        issued = enrolling.approve(settings, request, party, os_user(), replace=replace)
        _write_bundle(bundle, issued.bundle)
        expires = issued.certificate.not_valid_after_utc
        serial = serial_number(issued.certificate)
        document = {
            "owner": party.name, "fingerprint": identity.fingerprint(request.key), "serial": serial,
            "expires": expires.isoformat(), "bundle": bundle.absolute(), "ca_fingerprint": issued.ca,
        }  # fmt: skip
        documents.append(document)
        if not as_json:
            console.print_line(f"{party.uri}: certificate {serial}, until {expires:%Y-%m-%d}")
            console.print_line(f"send {bundle} to the owner; it is not secret")
    if as_json:
        console.print_json(documents[0] if len(documents) == 1 else {"approved": documents})
        return
    ca = identity.spoken(documents[0]["ca_fingerprint"])
    console.print_line(f"fingerprint of the CA, to read to owners on the telephone: {ca}")


@app.command()
def revoke(
    owner: OwnerArgument = None,
    serial: SerialOption = None,
    yes: console.YesOption = False,
    config: console.ConfigOption = None,
    as_json: console.JsonOption = False,
) -> None:
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
    hint = "add --yes to revoke without being asked"
    console.require_yes(question, yes=yes, otherwise="nothing was revoked", hint=hint)
    with _register(settings) as register:
        revoked = register.revoke(os_user(), owner or "", parse_serial(serial) if serial else "")
    if as_json:
        console.print_json({"revoked": [certificate_document(cert) for cert in revoked]})
        return
    for cert in revoked:
        console.print_line(f"revoked: owner {cert.owner}, serial {cert.serial}, key {cert.fingerprint[:16]}")
    if not revoked:
        console.print_line("all of these certificates were revoked before")


@app.command(name="list")
def list_(config: console.ConfigOption = None, as_json: console.JsonOption = False) -> None:
    """List every certificate that was approved, renewed or seen, and the operators' actions."""
    with _register(load(config)) as register:
        certificates, log = register.certificates(), register.log()
    now = utc_now().timestamp()
    if as_json:
        acts = [{**asdict(entry), "time": iso(entry.time)} for entry in log]
        known = [certificate_document(cert) for cert in certificates]
        console.print_json({"certificates": known, "log": acts})
        return
    console.table(
        "",
        ("owner", "serial", "key", "origin", "since", "expires", "state"),
        [
            (
                *(cert.owner, cert.serial, cert.fingerprint[:16], cert.origin, _day(cert.since)),
                *(_day(cert.expires), certificate_state(cert, now)),
            )
            for cert in certificates
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


def _compare(request: "CertificateRequest", party: "Party", heard: str | None, *, yes: bool) -> None:
    """Compare the key's fingerprint with the one that the owner reads on the telephone."""
    if heard is not None:
        compare_fingerprint(request, heard)
        return
    console.note(f"request for {party.uri}")
    console.note(f"fingerprint of its key: {spoken(identity.fingerprint(request.key))}")
    question = "Does the owner read the same fingerprint on the telephone?"
    hint = "compare it on the telephone, and give what the owner reads: --fingerprint F"
    if not yes and not console.confirm(question, hint):
        raise typer.Exit(int(ExitCode.REFUSED))


def _write_bundle(out: Path, bundle: bytes) -> None:
    try:
        write_atomic(out, bundle, _PUBLIC_FILE)
    except OSError as error:
        raise UsageError(
            f"{out} cannot be written: {error.strerror}", "name a file in a folder that is there; ask again"
        ) from None


def _day(seconds: int) -> str:
    return f"{datetime.fromtimestamp(seconds, UTC):%Y-%m-%d}"
