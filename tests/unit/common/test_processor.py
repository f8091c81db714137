import os
import subprocess
import sys

import pytest

from common import processor

FLAGS = "fpu sse2 avx2"


@pytest.mark.parametrize(
    ("vendor", "family", "flags", "chosen"),
    [
        ("AuthenticAMD", "25", f"{FLAGS} avx512f avx512dq", True),
        ("AuthenticAMD", "26", f"{FLAGS} avx512f", True),
        ("AuthenticAMD", "25", FLAGS, False),
        ("AuthenticAMD", "23", FLAGS, False),
        ("GenuineIntel", "6", f"{FLAGS} avx512f", False),
        (None, None, None, False),
    ],
)
def test_the_processor_decides(tmp_path, monkeypatch, vendor, family, flags, chosen):
    """Sorting avoids the slow instruction where a processor has it, and only there."""
    cpuinfo = tmp_path / "cpuinfo"
    if vendor is not None:
        one = f"processor\t: 0\nvendor_id\t: {vendor}\ncpu family\t: {family}\nflags\t\t: {flags}\n\n"
        cpuinfo.write_text(one * 100)
    monkeypatch.setattr(processor, "_CPUINFO", str(cpuinfo))
    monkeypatch.delitem(sys.modules, "numpy", raising=False)
    monkeypatch.setenv("NPY_DISABLE_CPU_FEATURES", "")
    processor.choose_sorting()
    assert os.environ["NPY_DISABLE_CPU_FEATURES"] == ""  # a user's setting stays
    monkeypatch.delenv("NPY_DISABLE_CPU_FEATURES")
    processor.choose_sorting()
    assert os.environ.pop("NPY_DISABLE_CPU_FEATURES", None) == ("AVX512_ICL X86_V4" if chosen else None)


@pytest.mark.parametrize(
    "module",
    ["tessera", "owner_node.notebook", "owner_node.daemon", "owner_node.engines.spark", "aggregator.daemon"],
)
def test_it_is_decided_before_numpy_is_imported(module):
    """Numpy reads the setting once: programs, notebooks and executors have it by then."""
    command = [sys.executable, "-X", "importtime", "-c", f"import {module}, numpy"]
    imported = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True).stderr
    names = [line.rpartition("|")[2].strip() for line in imported.splitlines()]
    assert names.index("common.processor") < names.index("numpy")


def test_what_numpy_is_told_is_known_to_it():
    """A name that numpy does not have would be a warning, and change nothing."""
    command = [sys.executable, "-W", "error", "-c", "import numpy"]
    known = subprocess.run(
        command,
        env=os.environ | {"NPY_DISABLE_CPU_FEATURES": processor._SLOW},
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert "not part of the dispatched optimizations" not in known.stderr
