"""Set before numpy and torch are imported: one thread per test process, and scikit-learn's array-API checks switched on."""

import os

os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("SCIPY_ARRAY_API", "1")
