"""`aggregator doctor`: its checks, in the order of their dependencies."""

import os
import socket
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from aggregator import config
from aggregator.config import AggregatorConfig
from aggregator.control.connection import daemon
from aggregator.store.database import FILE_NAME
from common.cli import console
from common.cli.doctor import (
    Check,
    Finding,
    database,
    examine,
    failed,
    free_disk,
    identity,
    kept_clock,
    load_configuration,
    passed,
    private_file,
    private_folder,
    processor,
    recipients,
    report,
    scratch_folder,
    skipped,
    warned,
)
from common.cli.doctor_network import name, reach
from common.clock import utc_now
from common.errors import ExitCode, NotConnectedError
from common.trust.credentials import Identity
from common.trust.identity import (
    Party,
    PartyKind,
    check_validity,
    describe,
    fingerprint,
    host_names,
    party_of_certificate,
)
from common.wire.v1.control_pb2 import StatusRequest
from common.words.numbers import size_text
from common.workspace import Workspace, machine_memory

_LOCAL_HOSTS = {"0.0.0.0": "127.0.0.1", "[::]": "::1", "::": "::1"}


def examination(path: Path | None) -> Iterator[Finding]:
    """Check everything that an aggregator needs, whether its daemon runs or not."""
    findings, configuration = load_configuration("aggregator", lambda: config.load(path))
    yield from findings
    if configuration is None:
        return
    yield passed("configuration", f"{configuration.path}: aggregator {configuration.aggregator.name!r}")
    yield from examine(_local(configuration))
    party = Party(PartyKind.AGGREGATOR, configuration.aggregator.name, configuration.aggregator.trust_domain)
    findings, own = identity("identity", configuration.tls, party, "server", utc_now())
    yield from findings
    if own is not None:
        yield from examine([("host names", lambda: _host_names(own)), ("CA", lambda: _authorities(own))])
    if configuration.enrolment.ca_key is not None:
        key = configuration.enrolment.ca_key
        yield from examine([("CA key", lambda: private_file("CA key", key))])
    yield from examine([("port", lambda: _port(configuration, party))])


def _local(configuration: AggregatorConfig) -> Iterator[tuple[str, Check]]:
    section = configuration.aggregator
    yield "state", lambda: private_folder("state", section.state_dir)
    yield "releases", lambda: _release_folder(section.release_dir)
    yield "disk", lambda: free_disk("disk, state", section.state_dir)
    yield "disk", lambda: free_disk("disk, releases", section.release_dir)
    workspace = configuration.engine.workspace(section.state_dir)
    scratch = private_folder if configuration.engine.scratch is None else scratch_folder
    yield "scratch", lambda: scratch("scratch", workspace.scratch)
    yield "disk", lambda: free_disk("disk, scratch", workspace.scratch)
    yield "memory", lambda: _memory(workspace)
    yield from recipients(configuration.audit, configuration.notify)
    yield "clock", kept_clock
    yield "processor", processor
    yield "database", lambda: database("database", section.state_dir / FILE_NAME)


def _memory(workspace: Workspace) -> Iterator[Finding]:
    """Check that the steps of a release may not take more memory than there is."""
    limit, memory = workspace.memory, machine_memory()
    text = f"steps may take {size_text(limit)} ([engine] memory_limit), this machine has {size_text(memory)}"
    if limit > memory:
        yield warned("memory", text, "lower it: the system ends a daemon that takes more than there is")
    else:
        yield passed("memory", text)


def _release_folder(path: Path) -> Iterator[Finding]:
    if not path.exists():
        yield skipped("releases", f"{path} is not there yet; it is made when it is needed")
    elif path.is_dir() and os.access(path, os.R_OK | os.W_OK | os.X_OK):
        yield passed("releases", f"{path}")
    else:
        yield failed("releases", f"{path} is no folder that this user may write", "name another release_dir")


def _host_names(own: Identity) -> Iterator[Finding]:
    """Look up the names that owners may dial."""
    hosts = host_names(own.signer.certificate)
    if not hosts:
        yield failed("host names", "the certificate names no host", "have it issued for the names to dial")
    for host in hosts:
        for finding in name("host names", host):
            # Owners may know names that this machine does not.
            known = finding.exit_code is ExitCode.DONE
            yield (
                finding if known else warned("host names", f"{finding.text} from here", "owners must find it")
            )


def _authorities(own: Identity) -> Iterator[Finding]:
    for certificate in own.authorities:
        ends = certificate.not_valid_after_utc
        text = f"until {ends:%Y-%m-%d}, fingerprint {fingerprint(certificate.public_key())}"
        if ends < utc_now():
            yield failed("CA", text, "owners need certificates of another CA", ExitCode.NOT_CONNECTED)
        else:
            yield passed("CA", text)


def _port(configuration: AggregatorConfig, party: Party) -> Iterator[Finding]:
    """Shake hands with the running daemon, or see whether it could listen."""
    host, _, number = configuration.aggregator.listen.rpartition(":")
    running = _listens(configuration)
    if running is not None:
        port = int(running.rpartition(":")[2])
        yield passed("daemon", f"it runs and listens on {running}")
        yield from _own_handshake(_LOCAL_HOSTS.get(host, host.strip("[]")), port, party)
        return
    yield warned("daemon", "it does not run", "start it: aggregator serve")
    family = socket.AF_INET6 if host.startswith("[") else socket.AF_INET
    with socket.socket(family, socket.SOCK_STREAM) as probe:
        # What a daemon that was just stopped leaves behind does not keep the port.
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host.strip("[]"), int(number)))
        except OSError as error:
            text = f"{configuration.aggregator.listen} cannot be listened on: {error.strerror}"
            yield failed("port", text, "is another process using it? Ports below 1024 need a privilege")
        else:
            yield passed("port", f"{configuration.aggregator.listen} is free")


def _listens(configuration: AggregatorConfig) -> str | None:
    """Return the address that the running daemon reports; None if no daemon runs."""
    with suppress(NotConnectedError), daemon(configuration.path) as calls:
        return str(calls.Status(StatusRequest()).listen)
    return None


def _own_handshake(host: str, port: int, party: Party) -> Iterator[Finding]:
    finding, seen = reach("port", host, port)
    yield finding
    if seen is not None:
        check_validity(seen.certificate, utc_now())
        text = f"it shows the certificate of {describe(seen.certificate)}"
        if party_of_certificate(seen.certificate) == party:
            yield passed("port", text)
        else:
            hint = "is another aggregator listening there?"
            yield failed("port", text, hint, ExitCode.NOT_CONNECTED)


def doctor(config: console.ConfigOption = None, as_json: console.JsonOption = False) -> int:
    """Check configuration, files, clock, disk, databases, certificates and the port."""
    return int(report(examination(config), as_json=as_json))
