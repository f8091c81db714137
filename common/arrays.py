"""The names of the array types that both sides hand to each other."""

import numpy as np
from numpy.typing import NDArray

Int64Array = NDArray[np.int64]
"""Values of one attribute in resolution units, or positions of records; shape (n_records,)."""
TokenArray = NDArray[np.uint8]
"""Linkage tokens; shape (n_records, 16)."""
