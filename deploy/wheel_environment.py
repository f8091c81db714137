"""Environments with the wheel of this checkout installed, as users have it; tests run its programs.

build/wheel/dependencies-DIGEST/    the dependencies in requirements.lock
build/wheel/programs-DIGEST/        the wheel, over those dependencies; the wheel itself is in dist/

Each environment is named by the digest of its content: a changed source makes a new environment, and programs
that run in the old one are not disturbed. Environments that no process uses are removed.
"""

import atexit
import fcntl
import hashlib
import os
import shutil
import subprocess
import sys
import sysconfig
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from common.errors import TesseraError

PROJECT = Path(__file__).resolve().parents[1]
KEPT = PROJECT / "build" / "wheel"
PACKAGES = ("aggregator", "common", "owner_node", "tessera")
"""Packages in the wheel."""
DATA_FOLDERS = ("deploy/samples", "deploy/systemd", "deploy/monitoring")
"""Folders whose files are installed into share/tessera."""
_COMPLETE = "complete"
_SOURCES = "sources"
_MOST_SAID = 2000
_FIRST_MOMENT = "315532800"
"""1980-01-01, the first time that an archive can state: that of every file in the wheel."""
_PIP = (sys.executable, "-m", "pip", "--quiet", "--disable-pip-version-check")


class WheelError(TesseraError):
    """The wheel cannot be built or installed."""

    code = "wheel"


def programs(kept: Path = KEPT) -> Path:
    """Return the folder of the programs that the wheel of the present sources installs, made if absent.

    Returns:
        The `bin` of an environment, which stays as it is until this process ends.

    Raises:
        WheelError: If the wheel cannot be built, or not be installed.
    """
    kept.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=kept, prefix="source-") as source, _lock(kept / "lock"):
        _copy_sources(Path(source))
        made = kept / f"programs-{_digest(Path(source))}"
        _use(made)
        if not (made / _COMPLETE).exists():
            _make_environment(made)
            _note_sources(Path(source), made)
            _install(_build(Path(source), made / "dist"), made, _dependencies(kept))
        _remove_unused(kept)
    return made / "bin"


def programs_of(wheel: Path, kept: Path = KEPT) -> Path:
    """Return the folder of the programs that a wheel of another version installs, made if absent.

    Args:
        wheel: The wheel; its dependencies are those of the present lock file, and of one beside the wheel,
            which has its name and the suffix `.lock`, where it needs more.
    """
    kept.mkdir(parents=True, exist_ok=True)
    with _lock(kept / "lock"):
        dependencies = _dependencies(kept)
        further = [lock for lock in [wheel.with_suffix(".lock")] if lock.is_file()]
        made = kept / f"programs-{_digest(wheel, PROJECT / 'requirements.lock', *further)}"
        _use(made)
        if not (made / _COMPLETE).exists():
            _make_environment(made)
            for lock in further:
                _install_locked(lock, made)
            _install(wheel, made, dependencies)
    return made / "bin"


def build_wheel(folder: Path) -> Path:
    """Build the wheel of the present sources, the same bytes on every machine with the same build tools."""
    with tempfile.TemporaryDirectory() as source:
        _copy_sources(Path(source))
        return _build(Path(source), folder.resolve())


def built_wheel(bin_folder: Path) -> tuple[Path, frozenset[str]]:
    """Return the wheel that an environment was made of, and the files of the packages that it was made of."""
    (wheel,) = (bin_folder.parent / "dist").glob("*.whl")
    return wheel, frozenset((bin_folder.parent / _SOURCES).read_text().splitlines())


@contextmanager
def _lock(path: Path) -> Iterator[None]:
    """Hold a lock, so that only one of several processes makes an environment."""
    with path.open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _copy_sources(folder: Path) -> None:
    """Copy the sources of the wheel to a fresh folder, without files of earlier builds."""
    ignored = shutil.ignore_patterns("__pycache__")
    for name in PACKAGES:
        shutil.copytree(PROJECT / name, folder / name, ignore=ignored)
    for name in DATA_FOLDERS:
        shutil.copytree(PROJECT / name, folder / name, ignore=ignored)
    for name in ("pyproject.toml", "README.md", "LICENSE", "requirements.lock"):
        shutil.copy(PROJECT / name, folder / name)
    # A wheel has the modes of its files, and those of a checkout depend on whose it is.
    for path in folder.rglob("*"):
        path.chmod(0o755 if path.is_dir() else 0o644)


def _digest(*paths: Path) -> str:
    """Return a short digest of files, of the files of folders, and of the interpreter that runs this."""
    running = hashlib.sha256(f"{sys.version} {sys.base_prefix}".encode())
    for path in paths:
        for file in sorted(path.rglob("*")) if path.is_dir() else [path]:
            if file.is_file():
                running.update(f"{file.relative_to(path)}\0{file.stat().st_size}\0".encode())
                running.update(file.read_bytes())
    return running.hexdigest()[:16]


def _dependencies(kept: Path) -> Path:
    """Return an environment with everything that the lock file names and nothing else."""
    lock = PROJECT / "requirements.lock"
    made = kept / f"dependencies-{_digest(lock)}"
    if not (made / _COMPLETE).exists():
        _make_environment(made)
        _install_locked(lock, made)
        (made / _COMPLETE).touch()
    return made


def _install_locked(lock: Path, made: Path) -> None:
    # Modules are compiled on first import: compiling all of them takes longer than the rest.
    install = ("install", "--no-compile", "--require-hashes", "--requirement", lock)
    _run(*_PIP, "--python", made / "bin" / "python", *install)


def _note_sources(source: Path, made: Path) -> None:
    files = [path for package in PACKAGES for path in sorted((source / package).rglob("*")) if path.is_file()]
    (made / _SOURCES).write_text("\n".join(str(path.relative_to(source)) for path in files))


def _install(wheel: Path, made: Path, dependencies: Path) -> None:
    _run(*_PIP, "--python", made / "bin" / "python", "install", "--no-index", "--no-deps", wheel)
    # The path file makes the dependencies importable; the marker names them, so that unused ones are known.
    (_site_packages(made) / "dependencies.pth").write_text(f"{_site_packages(dependencies)}\n")
    (made / _COMPLETE).write_text(dependencies.name)


def _build(source: Path, folder: Path) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder) as fresh:
        _run(sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", fresh, source)
        (wheel,) = Path(fresh).glob("*.whl")
        return wheel.replace(folder / wheel.name)


def _make_environment(folder: Path) -> None:
    shutil.rmtree(folder, ignore_errors=True)
    _run(sys.executable, "-m", "venv", "--without-pip", folder)


def _site_packages(environment: Path) -> Path:
    base = str(environment)
    return Path(sysconfig.get_path("purelib", "venv", {"base": base, "platbase": base}))


def _use(environment: Path) -> None:
    """Keep an environment from being removed while this process runs."""
    lock = environment.with_suffix(".used").open("w")
    fcntl.flock(lock, fcntl.LOCK_SH)
    atexit.register(lock.close)


def _remove_unused(kept: Path) -> None:
    """Remove environments that no process uses, and dependencies that no environment uses."""
    for path in kept.glob("programs-*.used"):
        with path.open("w") as lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                continue
            shutil.rmtree(path.with_suffix(""), ignore_errors=True)
            path.unlink()
    needed = {path.read_text() for path in kept.glob(f"programs-*/{_COMPLETE}")}
    for path in kept.glob("dependencies-*"):
        if path.name not in needed:
            shutil.rmtree(path, ignore_errors=True)


def _run(*command: str | Path) -> None:
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    environment["SOURCE_DATE_EPOCH"] = _FIRST_MOMENT
    ended = subprocess.run(
        [str(argument) for argument in command],
        # Not in the checkout, where the folder `build` would shadow the module of that name.
        cwd=KEPT.anchor,
        env=environment,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
        umask=0o022,  # modes of generated files are in the wheel, too
    )
    if ended.returncode:
        words = " ".join(ended.args[1:4])
        said = ended.stderr[-_MOST_SAID:].strip()
        raise WheelError(f"{words} … ended with exit code {ended.returncode}:\n{said}", "make setup")


if __name__ == "__main__":
    print(build_wheel(Path(sys.argv[1])) if len(sys.argv) > 1 else programs())
