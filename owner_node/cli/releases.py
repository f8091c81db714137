"""`owner-node download` and `verify`: fetch and check published releases."""

import asyncio
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from common.cli import console
from common.cli.progress_bar import shown_progress
from common.cli.release_options import KeyPins, Published, ReleaseId, parse_pins
from common.clock import utc_now
from common.errors import UsageError
from common.files import explaining_disk
from common.model.plan import is_trial
from common.progress import Progress
from common.release.synthetic_table import verify_table
from common.release.verification import verify_release
from common.trust.identity import Party
from owner_node import config
from owner_node.config import OwnerConfig
from owner_node.connection.credentials import own_credentials
from owner_node.connection.download import download as fetch
from owner_node.release.own_fragment import check_announced, verify_answered, verify_own
from owner_node.release.records import Records
from owner_node.release.trial import trial_folder
from owner_node.release.work import Owner
from owner_node.state.database import OwnerDatabase
from owner_node.state.outbox import Outbox
from owner_node.state.rounds import Rounds
from owner_node.state.sessions import Sessions
from owner_node.trust import Trust

if TYPE_CHECKING:
    from collections.abc import Iterator

    from common.release.verification import Verified
    from owner_node.release.own_fragment import OwnVerified
    from owner_node.release.recomputed import Message


CaOption = Annotated[
    Path | None,
    typer.Option(
        "--ca", help="CA certificates that all identities must chain to (PEM); default: as in owner.toml.",
        metavar="FILE", show_default=False,
    ),
]  # fmt: skip


OutOption = Annotated[
    Path,
    typer.Option("--out", help="Empty or absent folder for the release.", metavar="DIR", show_default=False),
]
AggregatorOption = Annotated[
    str | None,
    typer.Option(
        "--aggregator",
        help="Aggregator that made the release, if several have one of this id.",
        show_default=False,
    ),
]


def download(
    release: ReleaseId,
    out: OutOption,
    aggregator: AggregatorOption = None,
    config_file: console.ConfigOption = None,
    as_json: console.JsonOption = False,
) -> None:
    """Fetch a published release that this owner took part in; the folder appears only once it is verified."""
    own = config.load(config_file)
    with shown_progress(silent=as_json) as progress:
        verified = asyncio.run(fetch(own, release, out, aggregator, progress))
    if as_json:
        console.print_json({**verified.to_document(), "directory": str(out.absolute())})
        return
    for line in verified.to_lines():
        console.print_line(line)
    console.print_line(f"release folder: {out.absolute()}")


MessagesOption = Annotated[
    bool,
    typer.Option(
        "--messages", help="Of a synthetic release: also compute again what this owner sent, for its auditor."
    ),
]


def verify(
    path: Published,
    ca: CaOption = None,
    owner: KeyPins = None,
    messages: MessagesOption = False,
    config_file: console.ConfigOption = None,
    as_json: console.JsonOption = False,
) -> None:
    """Re-check a release folder, and that this owner's own masked values are in it unchanged.

    Of a synthetic table of one owner, the records are drawn again from its noisy counts.
    """
    pins = parse_pins(owner or [])
    if path.is_file():
        if messages:
            raise UsageError("a table of one owner is made of no messages", "leave --messages out")
        table = verify_table(path, ca, pins)
        if as_json:
            console.print_json(table.to_document())
            return
        for line in table.to_lines():
            console.print_line(line)
        return
    own = config.load(config_file)
    with shown_progress(silent=as_json) as progress:
        verified = verify_release(path, ca or own.tls.ca, pins, workspace=own.workspace, progress=progress)
        with explaining_disk():
            contribution = _verify_own(own, path, verified, progress)
            sent = list(_messages(own, verified, progress)) if messages else None
    if as_json:
        mine = {
            "id": own.owner.id,
            "records": contribution.n_records,
            "attributes": list(contribution.attributes),
            **({} if sent is None else {"messages": [asdict(each) for each in sent]}),
        }
        console.print_json({**verified.to_document(), "own": mine})
        return
    for line in verified.to_lines():
        console.print_line(line)
    if verified.plan.product.rules.in_rounds:
        console.print_line(
            f"{own.owner.id} added up what all owners answered, its own counts of {contribution.n_records:,} "
            "records among them, and signed that this makes these noisy counts"
        )
        if sent is not None:
            console.print_line(
                f"all {len(sent)} messages of {own.owner.id} follow from its records, its seed and its keys; "
                "compare the digests with the history of those who received them:"
            )
            for each in sent:
                console.print_line(f"round {each.round}: {each.kind} {each.digest}")
        return
    console.print_line(
        f"all {contribution.n_records:,} masked records of {own.owner.id} are in the release, "
        "as this owner sealed them"
    )


def _messages(own: OwnerConfig, verified: "Verified", progress: Progress) -> "Iterator[Message]":
    """Compute again what this owner sent in the rounds of a release that it took part in."""
    plan = verified.plan
    if not plan.product.rules.in_rounds or is_trial(plan.release):
        raise UsageError(
            "masked records are made of fresh random bits, and of a trial nothing is kept",
            "--messages is for synthetic releases",
        )
    from owner_node.release.recomputed import recompute

    aggregator, credentials = Party.parse(plan.aggregator).name, own_credentials(own, utc_now)
    trust = Trust(credentials.authorities, own.owner.trust_domain, own.owner.id, aggregator, utc_now)
    records = Records.open(own.owner.state_dir, utc_now)
    with records.db:
        party = Owner(own, aggregator, records, credentials, trust, utc_now)
        work = party.work(plan.release)
        assert work is not None  # noqa: S101 - `_verify_own` found its session
        yield from recompute(party, work, progress)


def _verify_own(
    own: OwnerConfig, folder: Path, verified: "Verified", progress: Progress | None = None
) -> "OwnVerified":
    aggregator, release = Party.parse(verified.plan.aggregator).name, verified.plan.release
    state_dir = trial_folder(own.owner.state_dir) if is_trial(release) else own.owner.state_dir
    with OwnerDatabase(state_dir, make=False) as db:
        session = Sessions(db, utc_now).get(aggregator, release)
        rounds = Rounds(db).answered(aggregator, release)
    if session is None or own.owner.id not in verified.plan.owners:
        raise UsageError(
            f"{own.owner.id} took no part in release {release} of {aggregator}",
            "check a release of others without an owner's records: aggregator verify",
        )
    check_announced(session, verified)
    fragment = Outbox(state_dir).path(aggregator, release)
    signature = session.fragment_signature or b""
    if verified.plan.product.rules.in_rounds:
        return verify_answered(verified, own.owner.id, rounds, session.fragment_digest, signature)
    return verify_own(
        folder, verified, own.owner.id, fragment, session.fragment_digest, signature, own.workspace,
        session.kept_digest, progress,
    )  # fmt: skip
