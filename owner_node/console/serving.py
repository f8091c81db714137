"""The owner's pages, and who may open them. Small until somebody opens a page."""

from collections.abc import Callable, Sequence

from starlette.routing import BaseRoute
from starlette.types import ASGIApp

from common.clock import utc_now
from common.web.address import Address
from common.web.doors import Doors
from common.web.oidc import SignedIn, SignIn
from common.web.server import Console
from common.web.site import AuditEntry, Link, Site
from owner_node import config
from owner_node.config import OwnerConfig
from owner_node.release.approvals import Person

MENU = (
    Link("/", "Inbox"),
    Link("/ledger", "Ledger"),
    Link("/history", "History"),
    Link("/data", "Data"),
    Link("/explore", "Explore"),
    Link("/connections", "Connections"),
)


def application(
    load: Callable[[], OwnerConfig],
    doors: Doors[Person],
    address: Address,
    provider: SignIn[Person] | None = None,
) -> ASGIApp:
    """Return the web application of an owner node.

    Args:
        load: Reads the configuration; called once per request, so that pages show what commands show.
        provider: Who says who a person is; None for one-time links.
    """
    title, hint = f"Tessera owner {load().owner.id}", "owner-node console prints a new link."
    site = Site("owner_node.console", title, MENU, doors, hint, provider, lambda entry: _note(load, entry))

    def routes() -> Sequence[BaseRoute]:
        # Loads numpy and much else that the pages compute with.
        from owner_node.console.application import OwnerPages

        return OwnerPages(load, site).routes()

    return site.application(routes, address)


def _note(load: Callable[[], OwnerConfig], entry: AuditEntry) -> None:
    """Write who signed in or out to the history."""
    from owner_node.state.database import OwnerDatabase
    from owner_node.state.history import History
    from owner_node.state.notification_pipe import notify_daemon

    state_dir = load().owner.state_dir
    person = {} if entry.person is None else entry.person.to_document()
    details = {"address": entry.address, "reason": entry.reason} | person
    with OwnerDatabase(state_dir, make=False) as db, db.transaction() as tx:
        history = History(db, utc_now)
        history.record(tx, aggregator="", release="", event=entry.event, details=details)
    notify_daemon(state_dir)


def person_of(signed_in: SignedIn) -> Person:
    """Return a person whom an OpenID Connect provider names."""
    return Person(signed_in.name, signed_in.subject)


def console_of(owner: OwnerConfig) -> Console[Person]:
    """Return the pages of an owner; each request reads the configuration again."""
    return Console(
        f"owner {owner.owner.id}",
        owner.console,
        owner.owner.state_dir,
        lambda fields: Person(**fields),
        person_of,
        lambda *about: application(lambda: config.load(owner.path), *about),
    )
