"""People are told by real daemons what needs them: at a webhook that is away at first, and by mail."""

import hmac
import json
from hashlib import sha256

import pytest
from aiosmtpd.controller import Controller
from aiosmtpd.handlers import Message

from common.errors import ExitCode
from deploy.local_cluster import LocalCluster
from deploy.local_setup import free_port, make_setup, section, share_linkage_key
from tests.fakes.web_hook import web_hook
from tests.system.small_owners import (
    answer_of,
    ask,
    declared,
    identifiers,
    people,
    policy,
    start_release,
    write,
)

OWNERS = ("a", "b")
PURPOSE = "quality of care Zq7Qz"


class Mails(Message):
    """Keeps every mail."""

    def __init__(self) -> None:
        super().__init__()
        self.kept: list[str] = []

    def handle_message(self, message) -> None:
        """Keep the subject, in one line."""
        self.kept.append(" ".join(str(message["Subject"]).split()))


@pytest.fixture
def mails():
    """A mail server of this machine."""
    kept = Mails()
    server = Controller(kept, "127.0.0.1", free_port())
    server.start()
    yield server.port, kept
    server.stop()


def test_everybody_is_told(tmp_path, mails):
    """The owner's people hear that a plan waits and was published, the operators that it was published.

    The owner's webhook is away at first: the release does not wait for it, and the message comes later.
    """
    port, kept = mails
    secret = tmp_path / "secret"
    secret.touch(0o600)
    secret.write_text("Geheim7\n")
    for position, owner in enumerate(OWNERS):
        write(tmp_path, owner, "patients", people(identifiers(60 * position, 60), seed=position))
    with web_hook([503]) as (to_owner, heard), web_hook() as (to_operators, operators):

        def hook(url: str) -> str:
            return section("[notify.webhook]", {"url": url, "secret_file": str(secret)})

        smtp = {
            "host": "127.0.0.1",
            "port": port,
            "starttls": False,
            "sender": "a@x.example",
            "to": ["d@x.example"],
        }
        tells = hook(to_owner) + section("[notify.smtp]", smtp)
        make_setup(
            tmp_path,
            {"a": policy(approval="manual") + tells + declared("patients"), "b": declared("patients")},
        )
        config = tmp_path / "aggregator" / "aggregator.toml"
        config.write_text(config.read_text() + hook(to_operators))
        share_linkage_key(tmp_path, OWNERS)
        with LocalCluster(tmp_path) as cluster:
            cluster.start()
            command = start_release(cluster, "told", k="5", purpose=PURPOSE)
            cluster.owner("a").wait_for("waiting for a person", release="told")
            cluster.owner("a").wait_for("audit sink fails")
            assert (
                ask(cluster, "owner-node", "approve", "told", "--yes", "--anyway", owner="a")[0]
                == ExitCode.DONE
            )
            assert answer_of(command)[0] == ExitCode.DONE
            messages = [heard.get(timeout=60) for _ in range(2)]
            (body, mark) = operators.get(timeout=60)
    for sent, signature in [*messages, (body, mark)]:
        assert signature == "sha256=" + hmac.new(b"Geheim7", sent, sha256).hexdigest()
        assert b"Zq7Qz" not in sent
    assert [json.loads(sent)["event"] for sent, _ in messages] == ["awaiting-approval", "published"]
    told = json.loads(body)
    assert (told["event"], told["release"], told["aggregator"]) == ("published", "told", "central")
    assert kept.kept[0].startswith("Tessera owner a: Plan told of aggregator central waits for a decision.")
