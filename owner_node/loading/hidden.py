"""Files that systemd hides from the daemon, while a person who checks the data sees them."""

import shlex
import subprocess
from collections.abc import Iterator, Mapping
from pathlib import Path

from owner_node.config import OwnerConfig

UNIT = "tessera-owner-node.service"
_HOMES, _TEMPORARY = ("/home", "/root", "/run/user"), ("/tmp", "/var/tmp")  # noqa: S108 - only compared
_FOLDERS_OF = {
    ("ProtectHome", "yes"): _HOMES,
    ("ProtectHome", "tmpfs"): _HOMES,
    ("PrivateTmp", "yes"): _TEMPORARY,
    ("PrivateTmp", "disconnected"): _TEMPORARY,
}
_BOUND = ("BindPaths", "BindReadOnlyPaths")
_PROPERTIES = ("ExecStart", "InaccessiblePaths", *_BOUND, *dict.fromkeys(name for name, _ in _FOLDERS_OF))
_CLOSED_HOMES = "ProtectHome=yes"
_SECONDS = 5.0


def hidden_files(owner: OwnerConfig) -> Iterator[str]:
    """Yield a warning for every data set whose file the daemon does not see; without systemd, none."""
    unit = _unit()
    if str(owner.path.absolute()) not in shlex.split(unit.get("ExecStart", ""), posix=False):
        return
    hidden = _hidden_folders(unit)
    bound = {
        Path(binding.split(":")[1 if ":" in binding else 0].lstrip("-"))
        for name in _BOUND
        for binding in unit.get(name, "").split()
    }
    for dataset in owner.datasets:
        # As it is declared, and where it leads.
        files = (*dataset.origin.files, *filter(None, [dataset.opt_out]))
        for path in (end for file in files for end in (file.absolute(), file.resolve())):
            setting = next((hidden[folder] for folder in path.parents if folder in hidden), None)
            # Nothing can be bound below what is inaccessible.
            visible = bound & {path, *path.parents} and setting != _CLOSED_HOMES
            if setting is not None and not visible:
                homes = "ProtectHome=tmpfs and " if setting == _CLOSED_HOMES else ""
                yield (
                    f"data set {dataset.name!r}: {UNIT} hides {path} from the daemon ({setting}); move it, "
                    f"or show its folder: systemctl edit {UNIT}, in [Service] "
                    f"{homes}BindReadOnlyPaths={path.parent}"
                )
                break


def _unit() -> Mapping[str, str]:
    """Return properties of the daemon's unit; empty if systemd does not know it."""
    command = ["systemctl", "show", UNIT, f"--property={','.join(_PROPERTIES)}"]
    try:
        shown = subprocess.run(
            command, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=_SECONDS, check=True
        )
    except (OSError, subprocess.SubprocessError):
        return {}
    return dict(line.split("=", 1) for line in shown.stdout.splitlines() if "=" in line)


def _hidden_folders(unit: Mapping[str, str]) -> dict[Path, str]:
    """Return folders that the daemon does not see as others do, each with the setting that says so."""
    folders = {
        Path(folder): f"{name}={value}"
        for (name, value), hidden in _FOLDERS_OF.items()
        if unit.get(name) == value
        for folder in hidden
    }
    inaccessible = unit.get("InaccessiblePaths", "").split()
    return folders | {Path(folder.lstrip("-+")): f"InaccessiblePaths={folder}" for folder in inaccessible}
