"""`owner-node enroll`: request a certificate, and install the one that the CA sends."""

import asyncio
from pathlib import Path
from typing import Annotated

import typer

from common.cli import console
from common.cli.console import ConfigOption, JsonOption
from common.clock import utc_now
from common.errors import UsageError
from common.files import write_atomic
from common.trust.identity import fingerprint, spoken
from owner_node import config as configuration
from owner_node.connection.credentials import own_party
from owner_node.connection.enrolment import install as put_in_place
from owner_node.connection.enrolment import renew as renew_certificate
from owner_node.connection.enrolment import request as make_request

_MOST_READ = 1 << 20
_PUBLIC_FILE = 0o644

app = typer.Typer(help="Request, install and renew this owner's certificate.", no_args_is_help=True)

OutOption = Annotated[
    Path, typer.Option("--out", help="File to write the request to.", metavar="FILE", show_default=False)
]
NewKeyOption = Annotated[
    bool,
    typer.Option("--new-key", help="Make a new key even if another one still waits for its certificate."),
]
RenewalOption = Annotated[
    Path | None,
    typer.Option(
        "--out", help="File for the request after expiry; default: ID.csr.", metavar="FILE",
        show_default=False,
    ),
]  # fmt: skip
BundleArgument = Annotated[
    Path, typer.Argument(metavar="FILE", help="The bundle from the CA.", show_default=False)
]
CaFingerprintOption = Annotated[
    str,
    typer.Option(
        "--ca-fingerprint", help="Fingerprint of the CA, compared by telephone.", show_default=False
    ),
]
AddCaOption = Annotated[bool, typer.Option("--add-ca", help="Keep the CAs that are trusted already.")]


@app.command()
def request(
    out: OutOption,
    new_key: NewKeyOption = False,
    config: ConfigOption = None,
    json: JsonOption = False,
) -> None:
    """Make a key, which stays here, and a request for its certificate."""
    _request(configuration.load_identity(config), out, anew=new_key, json=json)


def _request(settings: configuration.OwnerConfig, out: Path, *, anew: bool, json: bool) -> None:
    fingerprint = write_request(settings, out, anew=anew)
    if json:
        party = own_party(settings).uri
        console.print_json({"file": out.absolute(), "party": party, "fingerprint": fingerprint})
        return
    print_request(out, fingerprint)


def write_request(settings: configuration.OwnerConfig, out: Path, *, anew: bool = False) -> str:
    """Make a key and write the request for its certificate; returns the key's fingerprint."""
    data, fingerprint = make_request(settings, anew=anew)
    try:
        write_atomic(out, data, _PUBLIC_FILE)
    except OSError as error:
        raise UsageError(
            f"{out} cannot be written: {error.strerror}", "name a file in a folder that is there"
        ) from None
    return fingerprint


def print_request(out: Path, fingerprint: str) -> None:
    """Say what to do with a request."""
    console.print_line(f"send {out} to the aggregator's operator; it is not secret")
    console.print_line(f"fingerprint of the key, to read on the telephone: {spoken(fingerprint)}")


@app.command()
def renew(
    out: RenewalOption = None,
    config: ConfigOption = None,
    json: JsonOption = False,
) -> None:
    """Renew the certificate with a new key: over the connection or, after expiry, by a new request.

    A running daemon renews in time by itself. No aggregator accepts an expired certificate, so people have to
    compare fingerprints again after expiry: the request is approved and installed as at the first enrolment.
    """
    settings = configuration.load_identity(config)
    renewed = asyncio.run(renew_certificate(settings))
    if renewed is None:
        console.note("the certificate has expired: the CA has to approve a new request")
        _request(settings, out or Path(f"{settings.owner.id}.csr"), anew=False, json=json)
        return
    key, ends = fingerprint(renewed.public_key()), renewed.not_valid_after_utc
    if json:
        document = {"party": own_party(settings).uri, "fingerprint": key, "expires": ends.isoformat()}
        console.print_json(document)
        return
    console.print_line(f"{own_party(settings).uri}: certificate renewed, until {ends:%Y-%m-%d}")
    console.print_line(f"fingerprint of its key: {spoken(key)}")


@app.command()
def install(
    file: BundleArgument,
    ca_fingerprint: CaFingerprintOption,
    add_ca: AddCaOption = False,
    config: ConfigOption = None,
    json: JsonOption = False,
) -> None:
    """Check the CA's answer and install certificate, key and CA; a running daemon loads them."""
    settings = configuration.load_identity(config)
    try:
        with file.open("rb") as stream:
            data = stream.read(_MOST_READ)
    except OSError as error:
        raise UsageError(f"{file} cannot be read: {error.strerror}", "name the bundle from the CA") from None
    done = put_in_place(settings, data, ca_fingerprint, utc_now(), add_ca=add_ca)
    key, ends = fingerprint(done.certificate.public_key()), done.certificate.not_valid_after_utc
    trusted = [fingerprint(authority.public_key()) for authority in done.authorities]
    if json:
        document = {"party": own_party(settings).uri, "fingerprint": key, "expires": ends.isoformat()}
        console.print_json({**document, "ca_fingerprints": trusted})
        return
    console.print_line(f"{own_party(settings).uri}: certificate in place, until {ends:%Y-%m-%d}")
    for ca in trusted:
        console.print_line(f"trusted CA: {spoken(ca)}")
