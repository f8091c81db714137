"""Requests for certificates that were pasted into a page: a decision is about the party that was shown."""

import json

import pytest
from starlette.requests import Request
from starlette.responses import JSONResponse

from aggregator.config import AggregatorConfig, AggregatorSection, EnrolmentSection
from aggregator.console.certificates import Certificates
from aggregator.console.serving import Operator
from common.errors import UsageError
from common.settings import TlsSection
from common.trust.enrolment import make_request, new_key
from common.trust.identity import Party, PartyKind, fingerprint
from common.web.doors import Visit
from deploy.development_ca import DevelopmentCa

TRUST_DOMAIN = "release.test"
NAMES = ["north", "south", "harbour"]


@pytest.fixture
def certificates(tmp_path):
    """The pages of an aggregator that is a CA."""
    ca = DevelopmentCa(TRUST_DOMAIN)
    ca_pem, ca_key = ca.issued.write(tmp_path, "ca")
    pem, key = ca.aggregator("hub", ["localhost"]).write(tmp_path, "hub")
    section = AggregatorSection(
        name="hub", trust_domain=TRUST_DOMAIN, listen="localhost:0", state_dir=tmp_path / "state",
        release_dir=tmp_path / "releases",
    )  # fmt: skip
    settings = AggregatorConfig(
        path=tmp_path / "aggregator.toml", aggregator=section, tls=TlsSection(ca_pem, pem, key),
        enrolment=EnrolmentSection(ca_key=ca_key),
    )  # fmt: skip

    def page(request, template, values, status=200):
        waiting = [(each.party.name, each.digest) for each in values["waiting"]]
        return JSONResponse(waiting, status)

    return Certificates(lambda: settings, page)


def asked(digest: str = "", **form: str) -> Request:
    """Return a request of an operator."""
    state = {"visit": Visit(Operator("vera")), "form": form}
    scope = {
        "type": "http",
        "headers": [],
        "query_string": b"",
        "path_params": {"digest": digest},
        "state": state,
    }
    return Request(scope)


def waiting(certificates: Certificates) -> dict[str, str]:
    """Return what a decision about each party names."""
    return dict(json.loads(bytes(certificates.show(asked()).body)))


def test_one_key_for_several_parties(certificates):
    """Each request waits by itself, and the one that is decided is the one that was shown."""
    key = new_key()
    heard = fingerprint(key.public_key())
    texts = [make_request(key, Party(PartyKind.OWNER, name, TRUST_DOMAIN)).decode() for name in NAMES]
    for text in texts * 2:
        certificates.receive(asked(request=text))
    shown = waiting(certificates)
    assert list(shown) == NAMES
    # Somebody else pastes the same key for another party between the look and the decision.
    certificates.receive(asked(request=texts[0], owner="east"))
    serial = certificates.approve(asked(shown["south"], heard=heard)).headers["location"].rpartition("/")[2]
    assert certificates._issued[serial].party.name == "south"
    assert list(waiting(certificates)) == ["north", "harbour", "east"]
    with pytest.raises(UsageError):
        certificates.approve(asked(shown["south"], heard=heard))
    certificates.refuse(asked(shown["north"]))
    assert list(waiting(certificates)) == ["harbour", "east"]
