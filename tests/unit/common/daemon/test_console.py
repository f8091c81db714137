"""The table `[console]`: what may listen where."""

import pytest

from common.daemon.console import ConsoleSection
from common.errors import ConfigurationError
from common.settings import validate

TLS = {"certificate": "console.pem", "key": "console.key"}
OIDC = {
    "issuer": "https://login.example", "client_id": "tessera", "client_secret_file": "secret",
    "approvers": ["dpo@north.example"],
}  # fmt: skip


def problems(folder, **keys) -> list[str]:
    """Return what is wrong with a table."""
    try:
        validate(ConsoleSection, keys, folder / "owner.toml")
    except ConfigurationError as error:
        return list(error.problems)
    return []


@pytest.mark.parametrize("address", ["127.0.0.1:8441", "[::1]:0", "localhost:8441"])
def test_this_machine_needs_nothing_more(tmp_path, address):
    """Pages on the loopback interface are opened by a one-time link, with or without TLS or a provider."""
    for more in ({}, TLS, {"oidc": OIDC}, TLS | {"oidc": OIDC}):
        assert problems(tmp_path, listen=address, **more) == []


@pytest.mark.parametrize("address", ["10.0.0.7:8441", "console.example:8441", "[2001:db8::1]:8441"])
def test_other_machines_need_tls_and_a_provider(tmp_path, address):
    """No cookie goes over a network unencrypted, and no one-time link lets a network in."""
    assert len(problems(tmp_path, listen=address)) == 2
    (tls,) = problems(tmp_path, listen=address, oidc=OIDC)
    assert "needs TLS" in tls
    (people,) = problems(tmp_path, listen=address, **TLS)
    assert "[console.oidc]" in people
    assert problems(tmp_path, listen=address, **TLS, oidc=OIDC) == []


def test_every_interface_needs_the_address_that_browsers_use(tmp_path):
    """The Host header is compared with a name; "0.0.0.0" is none."""
    everywhere = {"listen": "0.0.0.0:8441", **TLS, "oidc": OIDC}
    assert "url" in problems(tmp_path, **everywhere)[0]
    assert problems(tmp_path, **everywhere, url="https://console.example") == []


@pytest.mark.parametrize(
    "url",
    ["http://console.example", "https://console.example/x", "https://a@console.example", "console.example"],
)
def test_addresses_of_browsers(tmp_path, url):
    """An address is scheme, host and port: what else it had would not be compared."""
    assert problems(tmp_path, listen="0.0.0.0:8441", **TLS, oidc=OIDC, url=url)


@pytest.mark.parametrize(
    "wrong",
    [
        {"issuer": "http://login.example"},
        {"client_id": ""},
        {"approvers": "dpo@north.example"},
        {"viewers": ["dpo@north.example"]},
        {"approvers": ["a@x.example", "a@x.example"]},
        {"approvers": ["a@x.example=anna"]},
    ],
)
def test_providers_and_people(tmp_path, wrong):
    """A provider without TLS could name anybody; nobody is both approver and viewer."""
    assert problems(tmp_path, listen="127.0.0.1:8441", oidc=OIDC | wrong)


def test_a_key_without_its_certificate(tmp_path):
    """Half of TLS is none."""
    assert problems(tmp_path, listen="127.0.0.1:8441", key="console.key")


PROXIED = {"listen": "unix:/run/tessera/console.sock", "url": "https://console.example/north", "oidc": OIDC}


@pytest.mark.parametrize(
    ("changes", "key"),
    [
        ({}, ""),
        ({"listen": "127.0.0.1:8441", "proxies": ["127.0.0.1", "10.0.0.0/24", "fd00::/8"]}, ""),
        ({"listen": "0.0.0.0:8441", "proxies": ["10.0.0.5"], **TLS}, ""),
        ({"listen": "127.0.0.1:8441"}, "url"),
        ({"listen": "0.0.0.0:8441", "proxies": ["10.0.0.5"]}, "listen"),
        ({"listen": "unix:console.sock"}, "listen"),
        ({"listen": f"unix:/{'x' * 100}"}, "listen"),
        ({"oidc": None}, "listen"),
        ({"url": ""}, "url"),
        ({"url": "http://console.example/north"}, "url"),
        ({"url": "https://console.example/a/../b"}, "url"),
        ({"url": "https://console.example/a?b"}, "url"),
        ({"url": "https://console.example//a"}, "url"),
        ({"url": 'https://console.example/a"b'}, "url"),
        ({"proxies": ["proxy.example"]}, "proxies"),
        ({"proxies": ["10.0.0.1/24"]}, "proxies"),
    ],
    ids=str,
)
def test_behind_a_proxy(tmp_path, changes, key):
    """Plain HTTP for a proxy of this machine; its address, its path and people who sign in are declared."""
    settings = {name: each for name, each in (PROXIED | changes).items() if each}
    found = problems(tmp_path, **settings)
    assert (key in found[0]) if key else found == [], found
