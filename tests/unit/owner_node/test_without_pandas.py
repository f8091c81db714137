"""A daemon's process without pandas."""

import subprocess
import sys

_MASKS = """
import sys
from owner_node.without_pandas import leave_out_pandas
leave_out_pandas()
import io
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
texts = pa.array(["1", "2", None], pa.string())
found = pc.fill_null(pc.cast(texts, pa.int64()), 0).to_numpy()
pa.scalar(1)
with pa.ipc.new_stream(io.BytesIO(), pa.schema([("a", pa.int64())])) as writer:
    writer.write_batch(pa.record_batch([pa.array(np.arange(3))], names=["a"]))
print(found.tolist(), "pandas" in sys.modules)
"""


def test_arrow_works_without_loading_pandas() -> None:
    """An owner's first release does not wait for a library that the daemon has no use for."""
    ended = subprocess.run([sys.executable, "-c", _MASKS], capture_output=True, text=True, check=True)
    assert ended.stdout.split() == ["[1,", "2,", "0]", "False"]
