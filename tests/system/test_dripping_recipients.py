"""Recipients of messages that answer, but never to the end: neither releases nor stops wait for them."""

import json

from common.errors import ExitCode
from deploy.local_cluster import LocalCluster
from deploy.local_setup import make_setup, section, share_linkage_key
from tests.fakes.dripping_server import dripping_server
from tests.fakes.web_hook import web_hook
from tests.system.small_owners import answer_of, declared, identifiers, people, start_release, write

OWNERS = ("a", "b")


def test_neither_the_webhook_nor_the_stop_waits_for_a_dripping_mail_server(tmp_path):
    """Both daemons have the same mail server, which has begun to answer when they are stopped."""
    secret = tmp_path / "secret"
    secret.touch(0o600)
    secret.write_text("Geheim7\n")
    for position, owner in enumerate(OWNERS):
        write(tmp_path, owner, "patients", people(identifiers(60 * position, 60), seed=position))
    with dripping_server() as (port, reached), web_hook() as (url, told), web_hook() as (other, operators):
        smtp = {"host": "127.0.0.1", "port": port, "starttls": False, "sender": "a@x", "to": ["d@x"]}

        def tells(hook: str) -> str:
            webhook = section("[notify.webhook]", {"url": f"{hook}?Geheim7", "secret_file": str(secret)})
            return section("[notify.smtp]", smtp) + webhook

        make_setup(tmp_path, {"a": tells(url) + declared("patients"), "b": declared("patients")})
        config = tmp_path / "aggregator" / "aggregator.toml"
        config.write_text(config.read_text() + tells(other))
        share_linkage_key(tmp_path, OWNERS)
        with LocalCluster(tmp_path) as cluster:
            cluster.start()
            assert answer_of(start_release(cluster, "told", k="5"))[0] == ExitCode.DONE
            for heard in (told, operators):
                assert json.loads(heard.get(timeout=60)[0])["event"] == "published"
            assert reached.wait(60)
            for daemon in (cluster.owner("a"), cluster.aggregator):
                assert daemon.stop(8) == 0
    kept = [path for path in tmp_path.rglob("*") if path.suffix in (".db", ".db-wal", ".log")]
    assert len(kept) > 3
    assert not [path for path in kept if b"Geheim7" in path.read_bytes()]
