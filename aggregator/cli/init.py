"""`aggregator init`: the first files of an aggregator."""

from pathlib import Path
from typing import Annotated

import typer

from aggregator.ca.founding import make_first_files
from common.cli import console
from common.clock import utc_now
from common.daemon.settings import parse_address
from common.errors import UsageError
from common.trust.identity import Party, PartyKind, spoken

NameOption = Annotated[
    str, typer.Option("--name", help="The aggregator's name in its certificate.", show_default=False)
]
TrustDomainOption = Annotated[
    str,
    typer.Option("--trust-domain", help="Trust domain, the same for all parties.", show_default=False),
]
HostOption = Annotated[
    list[str],
    typer.Option(
        "--host", help="Host name or address that owners connect to; repeatable.", show_default=False
    ),
]
DirOption = Annotated[Path, typer.Option("--dir", help="Folder for the new files.", metavar="DIR")]
ListenOption = Annotated[
    str, typer.Option("--listen", help="Address and port to listen on.", metavar="HOST:PORT")
]
CaCertOption = Annotated[
    Path | None,
    typer.Option(
        "--ca-cert", help="Certificate of an existing CA (PEM).", metavar="FILE", show_default=False
    ),
]
CaKeyOption = Annotated[
    Path | None,
    typer.Option(
        "--ca-key", help="Private key of that CA (PEM); it is not copied.", metavar="FILE", show_default=False
    ),
]


def init(
    name: NameOption,
    trust_domain: TrustDomainOption,
    host: HostOption,
    folder: DirOption = Path(),
    listen: ListenOption = "0.0.0.0:8443",
    ca_cert: CaCertOption = None,
    ca_key: CaKeyOption = None,
    as_json: console.JsonOption = False,
) -> None:
    """Make a CA (or use one), the aggregator's key and certificate, and a commented aggregator.toml."""
    if (ca_cert is None) != (ca_key is None):
        raise UsageError("--ca-cert and --ca-key go together", "name both, or neither to make a CA")
    try:
        party = Party(PartyKind.AGGREGATOR, name, trust_domain)
    except ValueError as problem:
        raise UsageError(str(problem), "see --name and --trust-domain") from None
    try:
        parse_address(listen)
    except ValueError as problem:
        raise UsageError(f"--listen {listen!r}: {problem}", "nothing was written") from None
    own_ca = (ca_cert, ca_key) if ca_cert is not None and ca_key is not None else None
    made = make_first_files(folder, party, tuple(host), listen, utc_now(), own_ca)
    fingerprint, expires = made.ca_fingerprint, made.certificate.not_valid_after_utc
    if as_json:
        console.print_json(
            {
                "config": made.config.absolute(),
                "party": made.party.uri,
                "ca_fingerprint": fingerprint,
                "ca_key": made.ca_key.absolute(),
                "certificate_expires": expires.isoformat(),
            }
        )
        return
    console.print_line(f"configuration: {made.config}; certificate of {made.party.uri}")
    console.print_line(f"it is valid until {expires:%Y-%m-%d} and renewed in time by aggregator serve")
    console.print_line(f"the CA's private key: {made.ca_key}; keep a copy where nobody else can get it")
    console.print_line(f"fingerprint of the CA, to read to owners on the telephone: {spoken(fingerprint)}")
