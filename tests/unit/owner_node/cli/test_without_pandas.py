"""What an owner's daemon has no use for is not loaded by it."""

import subprocess
import sys

_ARROW = """
import io, sys
from owner_node.cli.run import leave_out_pandas
leave_out_pandas()
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
texts = pa.array(["1", "2", None], pa.string())
found = pc.fill_null(pc.cast(texts, pa.int64()), 0).to_numpy()
with pa.ipc.new_stream(io.BytesIO(), pa.schema([("a", pa.int64())])) as writer:
    writer.write_batch(pa.record_batch([pa.array(np.arange(3))], names=["a"]))
print(found.tolist(), "pandas" in sys.modules)
"""
_MASKING = """
import sys
from decimal import Decimal
import numpy as np
from common.model.schema import Attribute, AttributeType
from owner_node.masking.forecast import forecast
from owner_node.masking.engine import MemoryEngine
from owner_node.masking.mask import mask_table
from owner_node.masking.tasks import AttributeTask
columns = {"age": np.arange(1000) % 90}
tasks = [AttributeTask(Attribute("age", AttributeType.INTEGER, 0, 120), Decimal(1), 20, "idp-joint")]
forecast(columns, tasks)
print(mask_table(MemoryEngine(columns), tasks)["age"].size, "scipy.optimize" in sys.modules)
"""


def _printed(program: str) -> str:
    ended = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    return ended.stdout.strip()


def test_arrow_works_without_loading_pandas() -> None:
    """An owner's first release does not wait for a library that the daemon has no use for."""
    assert _printed(_ARROW) == "[1, 2, 0] False"


def test_masking_does_not_load_the_optimisation_of_scipy() -> None:
    """Nor for one of which it would need a single function."""
    assert _printed(_MASKING) == "1000 False"
