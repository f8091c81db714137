"""Puts a program under the restrictions of a unit file that need no service manager, then becomes it.

    python confined.py UNIT PROGRAM [ARGUMENT...]

What systemd enforces with seccomp and prctl is enforced here by the same means, from lines of the same file:
SystemCallFilter, RestrictAddressFamilies, MemoryDenyWriteExecute, LimitCORE, NoNewPrivileges.
"""

import ctypes
import errno
import os
import resource
import socket
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

_ALLOW = 0x7FFF0000
_REFUSE = 0x00050000 | errno.EPERM
_NO_NEW_PRIVILEGES, _NO_WRITABLE_CODE = 38, 65
_EQUAL = 4


class _Comparison(ctypes.Structure):
    _fields_ = (
        ("argument", ctypes.c_uint),
        ("operator", ctypes.c_int),
        ("value", ctypes.c_uint64),
        ("mask", ctypes.c_uint64),
    )


def settings(unit: Path) -> Mapping[str, list[str]]:
    """Return the values of every setting of a unit file, in their order."""
    found: dict[str, list[str]] = {}
    for line in unit.read_text(encoding="utf-8").splitlines():
        name, separator, value = line.partition("=")
        if separator and not line.startswith("#"):
            found.setdefault(name, []).append(value)
    return found


def system_calls(lines: list[str]) -> frozenset[str]:
    """Return the names of the system calls that filters allow."""
    allowed: set[str] = set()
    for line in lines:
        named = {name for group in line.removeprefix("~").split() for name in _expanded(group)}
        allowed = allowed - named if line.startswith("~") else allowed | named
    return frozenset(allowed)


def _expanded(name: str) -> set[str]:
    if not name.startswith("@"):
        return {name}
    listed = subprocess.run(
        ["systemd-analyze", "syscall-filter", name], capture_output=True, text=True, check=True
    ).stdout.splitlines()
    return {
        each for line in listed[1:] if (word := line.strip()) and word[0] != "#" for each in _expanded(word)
    }


def confine(unit: Path) -> None:
    """Restrict this process, and what it becomes, as the unit file says."""
    says = settings(unit)
    libc, seccomp = ctypes.CDLL(None, use_errno=True), ctypes.CDLL("libseccomp.so.2")
    seccomp.seccomp_init.restype = ctypes.c_void_p
    context = ctypes.c_void_p(seccomp.seccomp_init(ctypes.c_uint32(_REFUSE)))
    for name in system_calls(says["SystemCallFilter"]):
        number = seccomp.seccomp_syscall_resolve_name(name.encode())
        if number < 0:
            continue
        families = says["RestrictAddressFamilies"][0].split() if name == "socket" else [None]
        for family in families:
            compared = _Comparison(0, _EQUAL, int(getattr(socket, family)) if family else 0, 0)
            assert not seccomp.seccomp_rule_add_array(
                context, ctypes.c_uint32(_ALLOW), number, 1 if family else 0, ctypes.byref(compared)
            ), name
    if says["LimitCORE"] == ["0"]:
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    if says["NoNewPrivileges"] == ["yes"]:
        assert libc.prctl(_NO_NEW_PRIVILEGES, 1, 0, 0, 0) == 0
    if says["MemoryDenyWriteExecute"] == ["yes"]:
        assert libc.prctl(_NO_WRITABLE_CODE, 1, 0, 0, 0) == 0, os.strerror(ctypes.get_errno())
    assert seccomp.seccomp_load(context) == 0


if __name__ == "__main__":
    confine(Path(sys.argv[1]))
    os.execv(sys.argv[2], sys.argv[2:])
