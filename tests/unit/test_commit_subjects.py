"""What `.ci/commit-subjects` says of the history of a repository."""

import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[2] / ".ci/commit-subjects"
SETTINGS = ("-c", "user.name=someone", "-c", "user.email=someone@test", "-c", "commit.gpgsign=false")


@pytest.fixture
def git(tmp_path: Path) -> Callable[..., object]:
    """Git in a new repository that has the script."""

    def run(*arguments: str) -> None:
        subprocess.run(["git", *SETTINGS, *arguments], cwd=tmp_path, check=True, capture_output=True)

    run("init")
    (tmp_path / ".ci").mkdir()
    shutil.copy(SCRIPT, tmp_path / ".ci")
    run("add", ".ci")
    return run


def commit(git: Callable[..., object], *subjects: str) -> None:
    """Make commits of these subjects."""
    for subject in subjects:
        git("commit", "--allow-empty", "-m", subject)


def refused(folder: Path) -> list[str]:
    """Return what each error says after the commit; the exit code says whether there are errors."""
    ended = subprocess.run([folder / ".ci/commit-subjects"], capture_output=True, text=True)
    errors = ended.stderr.splitlines()
    assert ended.returncode == bool(errors), ended
    return [error.split(": ", 2)[2] for error in errors]


def test_length_and_first_word(git: Callable[..., object], tmp_path: Path) -> None:
    """More than 72 characters, or a first word in another form, is an error; words that look so are not."""
    good = ["Add " + "ä" * 68, *(f"{word} a file" for word in ("Need", "Embed", "Bring", "Pass", "Focus"))]
    declined = [f"{word} a file" for word in ("Adds", "Added", "Adding", "tests")]
    long = "Add " + "ä" * 69
    commit(git, *good, *declined, long)
    assert refused(tmp_path) == [
        f"the subject has 73 characters, more than 72: {long}",
        *(f"the subject begins with no imperative: {each}" for each in reversed(declined)),
    ]


def test_which_commits(git: Callable[..., object], tmp_path: Path) -> None:
    """The last twenty are read, or all that origin/main lacks, also in a clone of one commit; or none."""
    commit(git, "Added long ago", *["Close a file"] * 20)
    assert refused(tmp_path) == []
    git("update-ref", "refs/remotes/origin/main", "HEAD~20")
    assert refused(tmp_path) == []
    commit(git, "Adding one more")
    assert len(refused(tmp_path)) == 1
    git("clone", "--depth=1", f"file://{tmp_path}", "shallow")
    assert len(refused(tmp_path / "shallow")) == 1
    git("update-ref", "refs/remotes/origin/main", "HEAD")
    assert refused(tmp_path) == []
    shutil.rmtree(tmp_path / ".git")
    assert refused(tmp_path) == []
