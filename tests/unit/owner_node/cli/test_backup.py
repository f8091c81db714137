"""Backups: whole, private, checked before anything of them is used, and never over something newer."""

import contextlib
import io
import json
import os
import shutil
import socket
import stat
import sys
import tarfile
from pathlib import Path
from subprocess import PIPE, Popen

import pytest

from common.cli import console
from common.clock import utc_now
from common.daemon import backup as backups
from common.web.doors import put_key
from owner_node.cli import application
from owner_node.state.database import OwnerDatabase
from owner_node.state.outbox import Outbox
from owner_node.state.rounds import Rounds
from owner_node.state.sessions import Sessions
from tests.fakes.owner_folder import ask_mask, make_owner_folder, spends

_ROOT = Path(__file__).parents[4]
_WRITER = """
import sys
from decimal import Decimal
from owner_node.ledger.ledger import Ledger
from owner_node.state.database import OwnerDatabase
from tests.fakes.ledgers import clock, reserve

with OwnerDatabase(__import__("pathlib").Path(sys.argv[1])) as db:
    for number in range(10_000):
        reserve(db, Ledger(db, clock), f"r{number}", "0.00001")
        print(number, flush=True)
"""


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """An owner's folder, which is also where commands run."""
    monkeypatch.chdir(tmp_path)
    for name in ("ca.pem", "north.pem", "north.key"):
        (tmp_path / name).write_text(f"the file {name}")
    return make_owner_folder(tmp_path)


@pytest.fixture(scope="module")
def kept(tmp_path_factory):
    """A place for what `masked` makes once."""
    return tmp_path_factory.mktemp("kept")


@pytest.fixture
def masked(folder, kept, capsys):
    """The folder after a first masking: masked once, and copied for every test."""
    if any(kept.iterdir()):
        shutil.copytree(kept, folder, dirs_exist_ok=True)
    else:
        assert ask_mask(capsys, "--out", "first.csv")[0] == 0
        shutil.copytree(folder, kept, dirs_exist_ok=True)
    assert len(spends(folder)) == 1
    return folder


def call(capsys, *words: str) -> tuple[int, dict]:
    """Run a command with --json."""
    code = console.run(application(), "owner-node", [*words, "--json"])
    return code, json.loads(capsys.readouterr().out)


def lose(folder: Path, *names: str) -> None:
    """Remove files and folders."""
    for name in names:
        path = folder / name
        shutil.rmtree(path) if path.is_dir() else path.unlink()


def test_a_lost_machine(folder, capsys):
    """Everything comes back but what was done since, and nothing is done until that is stated."""
    assert ask_mask(capsys, "--out", "first.csv")[0] == 0
    code, made = call(capsys, "backup", "copy.tar")
    assert code == 0
    assert made["party"] == "owner north"
    assert stat.S_IMODE(Path("copy.tar").stat().st_mode) == 0o600
    assert ask_mask(capsys, "--out", "second.csv")[0] == 0
    key = Path("north.key").read_bytes()
    lose(folder, "state", "owner.toml", "ca.pem", "north.pem", "north.key")

    code, restored = call(capsys, "restore", "copy.tar", "--config", "owner.toml")
    assert code == 0, restored
    assert restored["kept"] == []
    assert restored["files"] == made["files"]
    assert Path("north.key").read_bytes() == key
    assert all(stat.S_IMODE(path.stat().st_mode) == 0o600 for path in Path("state").rglob("*.db"))
    assert len(spends(folder)) == 1

    code, refused = ask_mask(capsys, "--out", "third.csv")
    assert code == 7
    assert "restored from a backup" in refused["error"]["message"]
    code, asked = call(capsys, "ledger", "recover", "--yes")
    assert code == 2
    assert "--charge" in asked["error"]["hint"]
    assert call(capsys, "ledger", "recover", "--yes", "--charge", "people=1")[0] == 0
    assert round(sum(charge for _, charge in spends(folder)), 9) == 2
    code, refused = ask_mask(capsys, "--out", "third.csv")
    assert code == 5  # 0.5 of 2.5 are left


def test_nothing_newer_is_replaced(masked, capsys):
    """A database stops a restore; another certificate or key is kept, and said."""
    assert call(capsys, "backup", "copy.tar")[0] == 0
    code, again = call(capsys, "backup", "copy.tar")
    assert (code, "exists" in again["error"]["message"]) == (2, True)
    assert ask_mask(capsys, "--out", "second.csv")[0] == 0
    code, refused = call(capsys, "restore", "copy.tar")
    assert (code, "never replaces" in refused["error"]["message"]) == (2, True)
    assert len(spends(masked)) == 2
    lose(masked, "state")
    Path("north.pem").write_text("renewed")
    code, restored = call(capsys, "restore", "copy.tar")
    assert code == 0
    assert [Path(each).name for each in restored["kept"]] == ["north.pem"]
    assert Path("north.pem").read_text() == "renewed"


@pytest.mark.parametrize("suffix", ["-wal", "-shm", "-journal"])
def test_nothing_is_put_beside_the_log_of_another_database(masked, capsys, suffix):
    """SQLite would play what a crash left there into the restored database, and undo the halt."""
    assert call(capsys, "backup", "copy.tar")[0] == 0
    Path("state/owner.db").unlink()
    left = Path(f"state/owner.db{suffix}")
    left.write_text("left by a crash")
    code, refused = call(capsys, "restore", "copy.tar")
    assert (code, left.name in refused["error"]["message"]) == (2, True)
    assert "move all its files away" in refused["error"]["hint"]
    assert left.read_text() == "left by a crash"
    left.unlink()
    assert call(capsys, "restore", "copy.tar")[0] == 0


def test_one_time_links_are_not_in_it(masked, capsys):
    """Put back, a link that was used would sign in again; those of older backups are not put back."""
    put_key(Path("state") / backups.LINKS, {"name": "vera"})
    assert call(capsys, "backup", "copy.tar")[0] == 0
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(backups, "LINKS", "none")
        assert call(capsys, "backup", "old.tar")[0] == 0
    for name, held in (("copy.tar", False), ("old.tar", True)):
        with tarfile.open(name) as archive:
            assert any(each.startswith("state/links/") for each in archive.getnames()) is held
        lose(masked, "state")
        assert call(capsys, "restore", name)[0] == 0
        assert not Path("state/links").exists()


def test_seeds_of_noise_are_not_in_it(masked, capsys):
    """With an old backup and published sums, an owner's noise could be taken off. Nor are messages in it."""
    with OwnerDatabase(Path("state")) as db:
        with db.transaction() as tx:
            secrets = Rounds(db).make_secrets(tx, "hub", "r1")
            Sessions(db, utc_now).open(tx, "hub", "r1", "patients")
            of_tokens = b"key of tokens, kept for an audit"
            tx.execute("UPDATE sessions SET state = 'published', release_key = ?", (of_tokens,))
        parcel = Outbox(Path("state")).parcel("hub", "r1", "rows-0123")
        parcel.write_bytes(b"encrypted")
        assert call(capsys, "backup", "copy.tar")[0] == 0
        assert Rounds(db).secrets("hub", "r1") == secrets
    copy = Path("copy.tar").read_bytes()
    assert b"CREATE TABLE sum_keys" in copy
    assert secrets.seed not in copy
    assert secrets.private_key not in copy
    assert of_tokens not in copy
    assert parcel.name.encode() not in copy
    lose(masked, "state")
    assert call(capsys, "restore", "copy.tar")[0] == 0
    with OwnerDatabase(Path("state")) as db:
        assert Rounds(db).held() == ()


def test_what_is_not_in_it(folder, capsys):
    """Original values in scratch stay out, wherever it is; secrets that the configuration names are in it."""
    text = Path("owner.toml").read_text()
    Path("mail").write_text("password")
    Path("owner.toml").write_text(
        text
        + '[engine]\nscratch = "state/spill"\n[notify.smtp]\nhost = "mail.example"\nsender = "a@b.example"\n'
        'to = ["c@b.example"]\nuser = "a"\npassword_file = "mail"\n'
    )
    assert ask_mask(capsys, "--out", "first.csv")[0] == 0
    spilled = Path("state/spill")
    spilled.mkdir(mode=0o700)
    (spilled / "column.parquet").write_text("original")
    code, refused = call(capsys, "backup", "state/copy.tar")
    assert (code, "state folder" in refused["error"]["message"]) == (2, True)
    assert call(capsys, "backup", "copy.tar")[0] == 0
    with tarfile.open("copy.tar") as archive:
        names = archive.getnames()
    assert not [name for name in names if "spill" in name]
    assert "keys/notify.smtp.password_file" in names
    lose(folder, "state", "mail")
    assert call(capsys, "restore", "copy.tar")[0] == 0
    assert Path("mail").read_text() == "password"


def test_a_log_that_grows(masked, capsys, monkeypatch):
    """What is appended while the file is copied is not in the backup, which is whole."""
    log = Path("state/audit.jsonl")
    log.write_bytes(b"x" * 100_000)
    read = backups._Hashed.read

    def growing(self, size=-1):
        with log.open("ab") as stream:
            stream.write(b"y" * 10_000)
        return read(self, size)

    monkeypatch.setattr(backups._Hashed, "read", growing)
    assert call(capsys, "backup", "copy.tar")[0] == 0
    lose(masked, "state")
    assert call(capsys, "restore", "copy.tar")[0] == 0
    assert Path("state/audit.jsonl").read_bytes().startswith(b"x" * 100_000)


def _rewritten(source: Path, change) -> None:
    """Write a tar file anew, with every member as `change(name, content)` returns it, or without it."""
    with tarfile.open(source) as archive:
        files = [(each.name, archive.extractfile(each)) for each in archive.getmembers()]
        members = [(name, file.read()) for name, file in files if file is not None]
    with tarfile.open(source, "w") as archive:
        for name, content in members:
            changed = change(name, content)
            if changed is not None:
                member = tarfile.TarInfo(changed[0])
                member.size = len(changed[1])
                archive.addfile(member, io.BytesIO(changed[1]))


@pytest.mark.parametrize(
    "change",
    [
        lambda name, content: (name, content + b"x") if name.endswith(".db") else (name, content),
        lambda name, content: None if name.startswith("keys/") else (name, content),
        lambda name, content: None if name == "backup.json" else (name, content),
        lambda name, content: (name.replace("keys/tls.key", "state/../../out"), content),
        lambda name, content: (name, content[:-1]) if name == "backup.json" else (name, content),
        lambda name, content: (name, b"[" * 50_000 if name == "backup.json" else content),
        lambda name, content: (name, content.replace(b"tessera-backup-1", b"tessera-backup-9")),
    ],
    ids=["changed", "incomplete", "no list", "outside", "cut list", "nested list", "unknown form"],
)
def test_a_damaged_backup(masked, capsys, change):
    """It is refused before anything of it is used."""
    assert call(capsys, "backup", "copy.tar")[0] == 0
    _rewritten(Path("copy.tar"), change)
    lose(masked, "state", "owner.toml")
    code, refused = call(capsys, "restore", "copy.tar", "--config", "owner.toml")
    assert code == 7, refused
    assert not Path("state").exists()
    assert not Path("owner.toml").exists()
    assert not (masked.parent / "out").exists()


@pytest.mark.parametrize(
    ("name", "replaced"), [("state/more", False), ("configuration", True), ("backup.json", False)]
)
@pytest.mark.parametrize(
    ("kind", "target"),
    [
        (tarfile.SYMTYPE, "/etc/passwd"), (tarfile.SYMTYPE, "configuration"), (tarfile.SYMTYPE, "absent"),
        (tarfile.SYMTYPE, "more"), (tarfile.LNKTYPE, "configuration"), (tarfile.LNKTYPE, "absent"),
        (tarfile.FIFOTYPE, ""), (tarfile.CHRTYPE, ""), (tarfile.BLKTYPE, ""), (tarfile.DIRTYPE, ""),
        (tarfile.CONTTYPE, ""), (tarfile.GNUTYPE_SPARSE, ""), (b"Z", ""), (tarfile.REGTYPE, ""),
    ],
)  # fmt: skip
def test_members_that_are_no_files(folder, capsys, kind, target, name, replaced):
    """Neither a link nor a pipe nor a second member of a name is followed, opened or put anywhere."""
    assert call(capsys, "backup", "copy.tar")[0] == 0
    if replaced:
        _rewritten(Path("copy.tar"), lambda each, content: None if each == name else (each, content))
    with tarfile.open("copy.tar", "a") as archive:
        member = tarfile.TarInfo(name)
        member.type, member.linkname = kind, target
        archive.addfile(member)
    lose(folder, "state", "owner.toml")
    code, refused = call(capsys, "restore", "copy.tar", "--config", "owner.toml")
    assert code == 7, refused
    assert not Path("state").exists()
    assert not Path("owner.toml").exists()


@pytest.mark.parametrize("kind", ["pipe", "folder", "socket", "device"])
def test_what_is_no_file_is_no_backup(folder, capsys, kind):
    """A pipe that nobody writes into is refused, and nothing waits."""
    path = Path("copy.tar")
    with contextlib.ExitStack() as stack:
        if kind == "pipe":
            os.mkfifo(path)
        elif kind == "folder":
            path.mkdir()
        elif kind == "socket":
            stack.enter_context(socket.socket(socket.AF_UNIX)).bind(str(path))
        else:
            path = Path("/dev/null")
        code, refused = call(capsys, "restore", str(path))
    assert (code, refused["error"]["message"]) == (2, f"{path} is not a regular file")


def test_a_file_that_is_no_backup(masked, capsys):
    """Cut off, empty, another party's: each has its sentence."""
    assert call(capsys, "backup", "copy.tar")[0] == 0
    whole = Path("copy.tar").read_bytes()
    lose(masked, "state")
    for content in (b"", b"no archive", whole[: len(whole) // 2], whole[:-9000]):
        Path("copy.tar").write_bytes(content)
        assert call(capsys, "restore", "copy.tar")[0] == 7
    Path("copy.tar").write_bytes(whole)
    text = Path("owner.toml").read_text()
    Path("owner.toml").write_text(text.replace('id = "north"', 'id = "south"'))
    code, refused = call(capsys, "restore", "copy.tar")
    assert (code, "owner north" in refused["error"]["message"]) == (2, True)
    assert call(capsys, "restore", "absent.tar")[0] == 2
    Path("owner.toml").write_text(text)
    assert call(capsys, "restore", "copy.tar")[0] == 0


def test_while_another_process_writes(folder, capsys):
    """Every copy is a whole ledger of one moment: its chain holds, and none goes back."""
    found = []
    with Popen([sys.executable, "-c", _WRITER, str(folder / "state")], cwd=_ROOT, stdout=PIPE) as writer:
        for number in range(5):
            for _ in range(10):
                assert writer.stdout is not None
                assert writer.stdout.readline()
            assert call(capsys, "backup", f"copy-{number}.tar")[0] == 0
        writer.kill()
    for number in range(5):
        shutil.rmtree(folder / "state")
        assert call(capsys, "restore", f"copy-{number}.tar")[0] == 0
        code, ledger = call(capsys, "ledger", "--verify")
        assert code == 0, ledger
        found.append(len(ledger["entries"]))
    assert found == sorted(found)
    assert found[0] >= 10
