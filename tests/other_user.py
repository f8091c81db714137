"""Other users than that of a test, and a folder that it may not enter."""

import os
import pwd
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def closed(folder: Path) -> Iterator[None]:
    """Close a folder to this process; root, who may enter any, is another user meanwhile."""
    is_root = os.geteuid() == 0
    folder.chmod(0)
    if is_root:
        os.seteuid(pwd.getpwnam("nobody").pw_uid)
    try:
        yield
    finally:
        if is_root:
            os.seteuid(0)
        folder.chmod(0o700)


@contextmanager
def as_user(user: int, group: int) -> Iterator[None]:
    """Be another user meanwhile; only root can."""
    groups = os.getgroups()
    os.setgroups([group])
    os.setresgid(group, group, 0)
    os.setresuid(user, user, 0)
    try:
        yield
    finally:
        os.setresuid(0, 0, 0)
        os.setresgid(0, 0, 0)
        os.setgroups(groups)
