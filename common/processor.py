"""How numpy sorts on this processor, decided before numpy is imported.

numpy sorts with AVX-512 where it can, and writes with the instruction `vpcompressq` to memory. AMD's Zen 4
and Zen 5 execute it in microcode: sorting int64 takes 51 ns a value with it and 10 without.
"""

import os
import sys

_VARIABLE = "NPY_DISABLE_CPU_FEATURES"
_SLOW = "AVX512_ICL X86_V4"
"""numpy's names of the code that uses the instruction; AVX2 remains."""
_AMD_FAMILIES = {"25", "26"}
"""Zen 3 and 4; Zen 5."""
_CPUINFO = "/proc/cpuinfo"
_READ_BYTES = 4096


def choose_sorting() -> None:
    """Keep numpy from AVX-512 where this is slow; a setting of the user's stays."""
    if "numpy" not in sys.modules and _VARIABLE not in os.environ and _compresses_slowly(_first_processor()):
        os.environ[_VARIABLE] = _SLOW


def sorting() -> str:
    """Return how numpy sorts in this process, in words."""
    chosen = os.environ.get(_VARIABLE)
    if not chosen:
        return "numpy uses all instructions of this processor"
    reason = ", slow on this processor" if chosen == _SLOW else f" ({_VARIABLE})"
    return f"numpy leaves out {chosen}{reason}"


def _first_processor() -> dict[str, str]:
    try:
        with open(_CPUINFO, "rb") as stream:  # noqa: PTH123 - pathlib is not imported for this
            text = stream.read(_READ_BYTES).decode("ascii", "replace")
    except OSError:
        return {}
    lines = (line.partition(":") for line in text.partition("\n\n")[0].splitlines())
    return {name.strip(): value.strip() for name, _, value in lines}


def _compresses_slowly(processor: dict[str, str]) -> bool:
    return (
        processor.get("vendor_id") == "AuthenticAMD"
        and processor.get("cpu family") in _AMD_FAMILIES
        and "avx512f" in processor.get("flags", "").split()
    )
