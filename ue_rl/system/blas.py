"""NumPy with one thread for products of matrices, where this module is imported before NumPy.

The learner's products are small. On several threads they are hardly faster, and beside other busy processes four times
as slow, since OpenBLAS waits for its threads by spinning. OpenBLAS reads the variable as it is loaded; it is taken back
then, so that engines which are started see nothing of it. Who has set a number of threads keeps it.
"""

from __future__ import annotations

import os
import sys

_NAME = "OPENBLAS_NUM_THREADS"

if "numpy" not in sys.modules and not any(os.environ.get(name) for name in (_NAME, "OMP_NUM_THREADS")):
    os.environ[_NAME] = "1"
    try:
        import numpy  # noqa: F401
    finally:
        del os.environ[_NAME]
