"""The aggregator's pages, and who may open them. Small until a page is opened."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from starlette.routing import BaseRoute
from starlette.types import ASGIApp

from aggregator import config
from aggregator.config import AggregatorConfig
from common.clock import utc_now
from common.web.address import Address
from common.web.doors import Doors
from common.web.oidc import SignedIn, SignIn
from common.web.server import Console
from common.web.site import AuditEntry, Link, Site

MENU = (
    Link("/", "Releases"),
    Link("/new", "New release"),
    Link("/owners", "Owners"),
    Link("/certificates", "Certificates"),
)


@dataclass(frozen=True, slots=True)
class Operator:
    """The person who opens the pages."""

    name: str
    """As the operators' log names the person."""


def application(
    load: Callable[[], AggregatorConfig],
    doors: Doors[Operator],
    address: Address,
    provider: SignIn[Operator] | None = None,
) -> ASGIApp:
    """Return the web application of an aggregator.

    Args:
        load: Reads the configuration; called once per request, so that pages show what commands show.
        provider: Who says who a person is; None for one-time links.
    """
    title, hint = f"Tessera aggregator {load().aggregator.name}", "aggregator console prints a new link."
    site = Site("aggregator.console", title, MENU, doors, hint, provider, lambda entry: _note(load, entry))

    def routes() -> Sequence[BaseRoute]:
        # Loads much that the pages compute with.
        from aggregator.console.pages import Pages

        return Pages(load, site, doors).routes()

    return site.application(routes, address)


def _note(load: Callable[[], AggregatorConfig], entry: AuditEntry) -> None:
    """Write who signed in or out to the operators' log."""
    from aggregator.store.database import FILE_NAME, AggregatorDatabase
    from aggregator.store.operator_log import DONE, Action, OperatorLog

    name = "" if entry.person is None else entry.person.name
    action = Action(
        int(utc_now().timestamp()), name, entry.event, "", {"address": entry.address}, entry.reason or DONE
    )
    with AggregatorDatabase(load().aggregator.state_dir / FILE_NAME) as db:
        OperatorLog(db).note(action)


def person_of(found: SignedIn) -> Operator:
    """Return a person whom an OpenID Connect provider names."""
    return Operator(found.name)


def console_of(settings: AggregatorConfig) -> Console[Operator]:
    """Return the pages of an aggregator; each request reads the configuration again."""
    return Console(
        f"aggregator {settings.aggregator.name}",
        settings.console,
        settings.aggregator.state_dir,
        lambda fields: Operator(**fields),
        person_of,
        lambda *about: application(lambda: config.load(settings.path), *about),
    )
