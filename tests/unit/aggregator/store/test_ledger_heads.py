"""Owners' ledger heads: the newest is shown, and two of one place are a copy of somebody's state at work."""

import pytest

from aggregator.store.journal import Journal
from aggregator.store.ledger_heads import StoredHead
from common.errors import IntegrityError
from common.model.fragment import LedgerHead


@pytest.fixture
def journal(tmp_path):
    """A new journal."""
    made = Journal(tmp_path / "aggregator.db")
    yield made
    made.close()


def head(sequence: int, letter: str = "a", owner: str = "a") -> StoredHead:
    """Return a head whose signature is not looked at here."""
    return StoredHead(LedgerHead(owner, sequence, letter * 64), b"signature", b"certificate")


def test_the_newest_is_shown(journal):
    """Whatever order heads come in, the one furthest on is the newest; a repeat changes nothing."""
    assert journal.heads.newest("a") is None
    assert journal.heads.newest_at("a") == 0
    for at, each in enumerate((head(3), head(5), head(5), head(4), head(9, owner="b")), start=10):
        journal.heads.keep(each, at)
    assert journal.heads.newest("a") == head(5)
    assert journal.heads.newest_at("a") == 11
    assert journal.heads.newest("b") == head(9, owner="b")
    assert journal.operators.actions() == []


@pytest.mark.parametrize("sequence", [3, 5])
def test_two_heads_of_one_place(journal, sequence):
    """The newer claimant is refused, the first head stays, and the operators are told once."""
    for number in (3, 5):
        journal.heads.keep(head(number), 10)
    for at in (11, 12):
        with pytest.raises(IntegrityError, match="another copy of this state directory") as caught:
            journal.heads.keep(head(sequence, "b"), at, "r1")
        assert caught.value.details == {"owner": "a", "sequence": sequence}
    assert journal.heads.newest("a") == head(5)
    ((_, told),) = journal.operators.actions()
    assert (told.name, told.release, told.at) == ("fork", "r1", 11)
    assert told.arguments == {"owner": "a", "sequence": sequence, "hash": "b" * 64}
    assert "state directory of a" in told.outcome


def test_what_is_kept_is_bounded(journal, monkeypatch):
    """An owner's heads are no more than are ever shown, the newest; other forks of a place are told once."""
    monkeypatch.setattr("aggregator.store.ledger_heads._MOST_PLACES", 3)
    for number in range(1, 9):
        journal.heads.keep(head(number), number)
        journal.heads.keep(head(number, owner="b"), number)
    assert [place for place, _ in journal.heads.places("a")] == [8, 7, 6]
    assert journal.heads.newest_at("b") == 8
    for letter in "bcd":
        with pytest.raises(IntegrityError):
            journal.heads.keep(head(8, letter), 9)
    assert len(journal.operators.actions()) == 1
