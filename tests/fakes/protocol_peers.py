"""A release with simulated owners and a simulated aggregator: answers made from the work that is told."""

from dataclasses import replace
from decimal import Decimal
from typing import Any

from aggregator.protocol.events import (
    Acknowledged,
    Addended,
    Confirmed,
    Consented,
    Described,
    Event,
    Linked,
    Measured,
    Opened,
    Planned,
    Published,
    Received,
    Sealed,
    Started,
)
from aggregator.protocol.release import Release, begin
from aggregator.protocol.states import State
from aggregator.protocol.work import Work
from common.canonical import canonical, digest
from common.model.compatibility import HERE
from common.model.fragment import Addendum, FragmentStatement, Receipt
from common.model.plan import Layout
from common.model.products import Product
from common.model.rounds import RoundDocument, SignedKey, chained
from common.model.schema import Attribute, AttributeType, CategoryOrder, IdentifierRules, Schema
from common.planning.arguments import ReleaseArguments
from common.planning.planner import make_plan

RECORDS = 40
N_ROUNDS = 4
"""Of a synthetic release: zeros, two that count, and a closing one."""


def request(*owners: str, **changes: Any) -> ReleaseArguments:
    """Return a horizontal request."""
    base = ReleaseArguments(
        release="r1",
        dataset="cohort",
        layout=Layout.HORIZONTAL,
        groups=(owners,),
        epsilon=Decimal(1),
        k=5,
        anyway=True,
    )
    return replace(base, **changes) if changes else base


def schema(
    *names: str, identifier: bool = True, records: int = RECORDS, attributes: tuple[Attribute, ...] = ()
) -> Schema:
    """Return a schema of integer attributes, or of the given ones."""
    made = attributes or tuple(Attribute(name, AttributeType.INTEGER, 0, 100) for name in names)
    return Schema(made, IdentifierRules(1, ("trim",)) if identifier else None, 1, records)


def vertical(*owners: str, **changes) -> ReleaseArguments:
    """Return a vertical request."""
    return request(layout=Layout.VERTICAL, groups=tuple((owner,) for owner in owners), **changes)


def category(*labels: str, order: CategoryOrder = CategoryOrder.DECLARED) -> Attribute:
    """Return a category attribute named c."""
    return Attribute("c", AttributeType.CATEGORY, 0, len(labels) - 1, categories=tuple(labels), order=order)


def started(*owners: str, confirmed: bool = True, **changes: Any) -> Started:
    """Return the first event of a release."""
    return Started(at=1, request=request(*owners, **changes), confirmed=confirmed, allowed={"inviting": 30})


def synthetic(*owners: str) -> Release:
    """Return a synthetic release that has just been started."""
    return new_release(*owners, product=Product.SYNTHETIC, k=None)


def new_release(*owners: str, **changes: Any) -> Release:
    """Return a release that has just been started."""
    return begin(started(*owners, **changes))


def answer(release: Release, owner: str, step: str) -> Event:
    """Return an honest owner's answer to a step; for a fragment, the aggregator's receipt."""
    if step == "describe":
        return Described(
            at=2, owner=owner, schema=canonical(schema("x").to_document()).decode(), software=HERE
        )
    if step == "consent":
        return Consented(at=3, owner=owner, key_check="ab", signature="00", certificate="PEM")
    if step == "link":
        return Linked(at=4, owner=owner, records=RECORDS, tokens_digest=digest(owner.encode()))
    if step == "mask":
        addendum = release.addendum
        assert addendum is not None
        fragment = digest(f"fragment of {owner}".encode())
        stated = FragmentStatement(
            release.id, owner, release.plan_digest, addendum.digest, fragment, 10, RECORDS
        )
        text = stated.to_bytes().decode()
        return Sealed(at=6, owner=owner, statement=text, signature="00", certificate="PEM")
    if step == "measure":
        opened = release.rounds[-1].document.encode()
        answers = chained(release.progress[owner].counted, f"answer of {owner}".encode())
        stated = FragmentStatement(
            release.id, owner, release.plan_digest, digest(opened), answers, 10, RECORDS
        )
        text = stated.to_bytes().decode()
        return Measured(
            at=6, owner=owner, round=release.round, statement=text, signature="00", certificate="PEM"
        )
    if step == "collect":
        statement = release.statement(owner)
        assert statement is not None
        receipt = Receipt(
            release.id, owner, release.plan_digest, statement.fragment_digest, "2026-01-01T00:00:00+00:00"
        )
        return Received(at=7, owner=owner, receipt=receipt.to_bytes().decode(), signature="00")
    return Acknowledged(at=9, owner=owner)


def answer_to(release: Release, owner: str, work: Work) -> Event:
    """Return an honest owner's answer to work."""
    return answer(release, owner, work.step)


def opened(release: Release) -> Opened:
    """Return what opens the next round of a release that has `N_ROUNDS`."""
    number, before = len(release.rounds) + 1, release.rounds
    keys = tuple(SignedKey(owner, "ab" * 32, "00", "PEM") for owner in release.request.owners)
    document = RoundDocument(
        release.id,
        release.plan_digest,
        release.addendum.digest if release.addendum else "",
        number,
        digest(before[-1].document.encode()) if before else "",
        digest(b"sums"),
        () if before else keys,
        digest(b"answers") if before else "",
    ).to_bytes()
    numbers = 4 if number < N_ROUNDS else 0
    return Opened(
        at=5, document=document.decode(), attached="c3Vtcw==", numbers=numbers, signature="00",
        certificate="PEM",
    )  # fmt: skip


def aggregator_step(release: Release) -> Event | None:
    """Return what the aggregator does next by itself, or None if it waits for owners."""
    if release.state is State.INVITING and not release.missing("described"):
        schemas = {owner: schema("x") for owner in release.request.owners}
        created = "2026-01-01T00:00:00+00:00"
        plan = make_plan(
            release.request, schemas, aggregator="spiffe://d/aggregator/a", created=created, version="0.1.0"
        )
        return Planned(at=2, plan=plan.to_bytes().decode(), signature="00", certificate="PEM")
    if release.state is State.PLANNED and release.confirmed and not release.ended:
        return Confirmed(at=3)
    if release.state is State.LINKING and not release.missing("linked"):
        records = dict.fromkeys(release.request.owners, RECORDS)
        addendum = Addendum(release.id, release.plan_digest, "disjoint", records)
        return Addended(at=5, addendum=addendum.to_bytes().decode(), signature="00", certificate="PEM")
    if release.state is State.MEASURING and (not release.rounds or not release.missing("measured")):
        return opened(release)
    if release.state is State.JOINING:
        return Published(at=8, manifest_digest="0" * 64, directory="/releases/r1")
    return None
