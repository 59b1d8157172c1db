"""Shared fixtures, and the environment of torch and scikit-learn: one thread per test process, array-API checks switched on."""

import os

import pytest

# before numpy and torch are imported
os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("SCIPY_ARRAY_API", "1")

pytest.register_assert_rewrite("searches")


@pytest.fixture
def batches(monkeypatch):
    """Return the list of the numbers of fits in each batch that is run."""
    from sklearn_sgmcmc.model_selection import _fits

    sizes = []

    def counted(jobs, original=_fits.run_together):
        sizes.append(len(jobs))
        return original(jobs)

    monkeypatch.setattr(_fits, "run_together", counted)
    return sizes
