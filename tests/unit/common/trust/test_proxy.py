"""Which proxy gRPC takes, and that its password appears nowhere."""

import pytest

from common.cli.doctor_network import proxy
from common.errors import ConfigurationError
from common.trust.proxy import proxy_to

HOST = "aggregator.hospitals.example"


@pytest.mark.parametrize(
    ("environment", "place"),
    [
        ({}, None),
        ({"https_proxy": "http://me:hunter2@proxy.example:3128"}, "proxy.example:3128"),
        ({"http_proxy": "http://proxy.example:80/"}, "proxy.example:80"),
        ({"grpc_proxy": "http://[::1]:3128", "https_proxy": "http://other:1"}, "::1:3128"),
        ({"HTTPS_PROXY": "http://proxy.example:3128"}, None),
        ({"https_proxy": "http://p:1", "no_proxy": "other, hospitals.EXAMPLE"}, None),
        ({"https_proxy": "http://p:1", "no_proxy": "other.example"}, "p:1"),
        ({"https_proxy": "http://p:1", "no_grpc_proxy": "other", "no_proxy": HOST}, "p:1"),
    ],
)
def test_the_variables_that_grpc_obeys(environment, place):
    """`doctor` names the proxy that gRPC takes, without its password."""
    found = proxy_to(HOST, environment)
    assert (found.place if found else None) == place
    shown = proxy("proxy", HOST, found)
    assert "hunter2" not in f"{found}{shown}"
    assert place is None or place in shown.text


@pytest.mark.parametrize("network", ["10.1.0.0/16", "10.1.2.3", ".2.3"])
def test_addresses_are_excepted_by_their_network(network):
    """An aggregator that is dialled by its address is excepted by its network, or by the end of the text."""
    environment = {"https_proxy": "http://p:1", "no_proxy": f"hospitals.example,{network}"}
    assert proxy_to("10.1.2.3", environment) is None
    assert proxy_to("10.2.3.4", environment) is not None


@pytest.mark.parametrize(
    ("entry", "direct"),
    [
        ("*", True), ("*.example", True), (".example", True), ("hub.example:8443", True), ("*:8443", True),
        ("x, *", True), ("hub.example:443", False), ("*.other", False), ("example:8443", True), ("", False),
    ],
)  # fmt: skip
def test_exceptions_of_other_programs(entry, direct):
    """What curl and others take is no silent way through the proxy; a port is that of the aggregator."""
    environment = {"https_proxy": "http://p:1", "no_proxy": entry}
    assert (proxy_to("hub.example", environment, port=8443) is None) is direct


@pytest.mark.parametrize("entry", ["[2001:db8::1]:8443", "2001:db8::1", "2001:db8::/32"])
def test_an_ipv6_address_is_excepted(entry):
    """With its port it stands in brackets."""
    environment = {"https_proxy": "http://p:1", "no_proxy": entry}
    assert proxy_to("2001:db8::1", environment, port=8443) is None
    assert proxy_to("2001:db9::1", environment, port=8443) is not None


def test_user_and_password_are_unquoted():
    """Signs that a URL cannot hold are written with percent signs."""
    found = proxy_to(HOST, {"https_proxy": "http://me:p%40ss%3A@proxy.example:3128"})
    assert found is not None
    assert found.credentials == "me:p@ss:"


@pytest.mark.parametrize(
    "value",
    ["me:hunter2@p:3128", "https://me:hunter2@p:3128", "http://me:hunter2@p", "http://[", "http://p:x"],
)
def test_a_proxy_that_cannot_be_used_is_refused(value):
    """GRPC would dial directly instead, and log what the variable says."""
    with pytest.raises(ConfigurationError) as refusal:
        proxy_to(HOST, {"https_proxy": value})
    assert "https_proxy" in refusal.value.message
    assert "hunter2" not in str(refusal.value.to_document())
