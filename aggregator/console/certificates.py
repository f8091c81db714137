"""The pages about owners' certificates: those that are known, and requests that people decide about.

Requests arrive as files, by whatever way owner and operator agree on. Those that were pasted here are kept in
memory until they are decided, and end with the process.
"""

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from hashlib import sha256
from typing import Any, Protocol

from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from aggregator.ca.enrolment import open_register, parse_serial, serial_number
from aggregator.config import AggregatorConfig
from aggregator.control import enrolling
from aggregator.control.enrolling import Issued, certificate_document, certificate_state
from common.clock import utc_now
from common.errors import UsageError
from common.trust.enrolment import CertificateRequest, read_request
from common.trust.identity import Party, fingerprint, spoken
from common.web.guard import form_of, number_of, visit_of

LINES_PER_PAGE = 50
"""Certificates on one page."""
_MOST_REQUESTS = 50


class ShowsPages(Protocol):
    """Makes a page of a template."""

    def __call__(
        self, request: Request, template: str, values: dict[str, Any], status: int = 200
    ) -> Response:
        """Return the page."""


@dataclass(frozen=True, slots=True)
class WaitingRequest:
    """A request that waits for a decision."""

    request: CertificateRequest
    party: Party
    """The owner that the request is from, as it says."""
    received: datetime

    @property
    def digest(self) -> str:
        """Names what is decided: this key for this party. One key can be asked for several parties."""
        return sha256(f"{fingerprint(self.request.key)} {self.party.uri}".encode()).hexdigest()

    @property
    def spoken(self) -> str:
        """The fingerprint of its key as people read it on the telephone."""
        return spoken(fingerprint(self.request.key))


class Certificates:
    """The pages about certificates. They work with and without the daemon, as `aggregator enroll` does."""

    def __init__(self, load: Callable[[], AggregatorConfig], page: ShowsPages) -> None:
        self._load, self._page = load, page
        self._waiting: dict[str, WaitingRequest] = {}
        self._issued: dict[str, Issued] = {}

    def show(self, request: Request) -> Response:
        """Show certificates a page at a time, and the requests that wait."""
        settings, first = self._load(), number_of(request, "first")
        with open_register(settings.aggregator.state_dir, utc_now) as register:
            known = register.certificates()
        now = utc_now().timestamp()
        values = {
            "is_authority": settings.enrolment.ca_key is not None,
            "waiting": list(self._waiting.values()),
            "issued": list(self._issued.items()),
            "certificates": [
                certificate_document(certificate) | {"state": certificate_state(certificate, now)}
                for certificate in known[first : first + LINES_PER_PAGE]
            ],
            "first": first,
            "next": first + LINES_PER_PAGE if len(known) > first + LINES_PER_PAGE else None,
            "previous": max(first - LINES_PER_PAGE, 0) if first else None,
        }
        return self._page(request, "certificates.html", values)

    def certificate(self, request: Request) -> Response:
        """Show one certificate, and the bundle for its owner if it was issued here."""
        serial, settings = parse_serial(request.path_params["serial"]), self._load()
        with open_register(settings.aggregator.state_dir, utc_now) as register:
            matching = [cert for cert in register.certificates() if cert.serial == serial]
        if not matching:
            raise UsageError(
                f"no certificate has serial number {serial}", "the list has those that are known"
            )
        issued = self._issued.get(serial)
        values = {
            "certificate": certificate_document(matching[0])
            | {"state": certificate_state(matching[0], utc_now().timestamp())},
            "key": spoken(matching[0].fingerprint),
            "ca": None if issued is None else spoken(issued.ca),
        }
        return self._page(request, "certificate.html", values)

    def bundle(self, request: Request) -> Response:
        """Download the bundle for an owner whose request was approved here."""
        issued = self._issued.get(request.path_params["serial"])
        if issued is None:
            raise UsageError("this console did not issue that certificate", "approve the request again")
        name = f"{issued.party.name}.bundle"
        return Response(
            issued.bundle, media_type="application/octet-stream",
            headers={"content-disposition": f'attachment; filename="{name}"'},
        )  # fmt: skip

    # --- changes -------------------------------------------------------------------------------------

    def receive(self, request: Request) -> Response:
        """Take a request that was pasted, so that it can be compared and decided."""
        settings = self._load()
        enrolling.authority(settings)
        form = form_of(request)
        received = read_request(form.get("request", "").strip().encode())
        waiting = WaitingRequest(
            received, enrolling.named_party(settings, received, form.get("owner", "").strip()), utc_now()
        )
        while len(self._waiting) >= _MOST_REQUESTS:
            del self._waiting[next(iter(self._waiting))]
        self._waiting[waiting.digest] = waiting
        return RedirectResponse("/certificates", 303)

    def approve(self, request: Request) -> Response:
        """Issue the certificate of a request whose fingerprint was compared on the telephone."""
        waiting, form = self._waiting_request(request), form_of(request)
        enrolling.compare_fingerprint(waiting.request, form.get("heard", ""))
        operator = visit_of(request).person.name
        issued = enrolling.approve(
            self._load(), waiting.request, waiting.party, operator, replace="replace" in form
        )
        serial = serial_number(issued.certificate)
        self._issued[serial] = issued
        self._waiting.pop(waiting.digest, None)
        return RedirectResponse(f"/certificates/{serial}", 303)

    def refuse(self, request: Request) -> Response:
        """Drop a request, and note that in the operators' log."""
        waiting = self._waiting_request(request)
        with open_register(self._load().aggregator.state_dir, utc_now) as register:
            register.refuse(waiting.request, waiting.party, visit_of(request).person.name)
        self._waiting.pop(waiting.digest, None)
        return RedirectResponse("/certificates", 303)

    def revoke(self, request: Request) -> Response:
        """Revoke a certificate, its key, and those renewed from it."""
        serial, owner = (
            parse_serial(request.path_params["serial"]),
            form_of(request).get("confirm", "").strip(),
        )
        with open_register(self._load().aggregator.state_dir, utc_now) as register:
            if owner not in {cert.owner for cert in register.certificates() if cert.serial == serial}:
                raise UsageError("the owner's id that was typed is another one", "type the id of its owner")
            register.revoke(visit_of(request).person.name, serial=serial)
        return RedirectResponse(f"/certificates/{serial}", 303)

    def _waiting_request(self, request: Request) -> WaitingRequest:
        waiting = self._waiting.get(request.path_params["digest"])
        if waiting is None:
            raise UsageError("that request does not wait any more", "paste it again to decide about it")
        return waiting
