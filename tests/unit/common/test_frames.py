"""Programs do without pandas until they ask for it."""

import subprocess
import sys

PROGRAM = """
import sys
from common import frames

frames.keep_out()
import pyarrow as pa

pa.array([1, 2]), pa.table({"text": ["a", None]}).column("text").fill_null("b")
print("pandas" in sys.modules)
frames.let_in()
import pandas as pd

texts = pd.Series(["a", "b"], dtype="string")
print(pa.table({"text": pa.array(texts.array)}).column("text").to_pylist())
"""


def test_arrays_load_no_frames_and_a_frame_becomes_a_table_all_the_same():
    """Arrow looks for pandas once, with its first array; CSV files are read by pandas afterwards."""
    done = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines() == ["False", "['a', 'b']"]
