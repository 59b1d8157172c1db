"""Test an installed sklearn-sgmcmc from outside the source tree: a fit, a smoke subset of the tests, a typed script under mypy.

Usage::

    python tools/smoke.py             # needs pytest, and mypy for the last part
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
TESTS = ("test_datasets.py", "test_recipe.py", "test_schedules.py")

FIT = """
from pathlib import Path
import sklearn_sgmcmc
from sklearn_sgmcmc import BayesianMLPClassifier, kernels
from sklearn_sgmcmc.datasets import load_landsat

folder = Path(sklearn_sgmcmc.__file__).parent
assert not folder.is_relative_to({root!r}), f"{{folder}} is the source tree, not an installation"
for needed in ("py.typed", "kernels/network.c", "kernels/normals.c", "kernels/vectors.h", "kernels/products.h"):
    assert (folder / needed).exists(), f"{{needed}} is not in the wheel"
X, y = load_landsat(return_X_y=True)
model = BayesianMLPClassifier((5,), sampler="sgld", warm_up=2, max_iter=2, n_draws=1, random_state=0)
assert model.fit(X[:300], y[:300]).score(X[:300], y[:300]) > 0.3
print(sklearn_sgmcmc.__version__, folder, kernels.status())
"""

TYPED = """
import numpy as np
import torch
from numpy.typing import NDArray

from sklearn_sgmcmc import BatchedGridSearchCV, BayesianMLPClassifier, BayesianMLPRegressor
from sklearn_sgmcmc.datasets import load_landsat
from sklearn_sgmcmc.metrics import interval_coverage, mixture_crps
from sklearn_sgmcmc.priors import Normal
from sklearn_sgmcmc.samplers import SGHMC, Sampler
from sklearn_sgmcmc.sampling import sample
from sklearn_sgmcmc.schedules import Cyclical


def intervals(X: NDArray[np.float64], y: NDArray[np.float64]) -> tuple[NDArray[np.floating], NDArray[np.floating]]:
    sampler: Sampler = SGHMC(friction=0.1)
    model = BayesianMLPRegressor((10,), sampler=sampler, prior=Normal(0.5), schedule=Cyclical(), random_state=0).fit(X, y)
    lower, upper = model.predict_interval(X, coverage=0.9)
    mean, std = model.predict_mixture(X)
    print(interval_coverage(y, lower, upper), mixture_crps(y, mean, std), model.summary())
    return lower, upper


def searched(X: NDArray[np.float64], y: NDArray[np.int64]) -> NDArray[np.float32]:
    search = BatchedGridSearchCV(BayesianMLPClassifier((10,)), {"temperature": [0.1, 1.0]}, cv=3)
    search.fit(X, y)
    model = BayesianMLPClassifier(hidden_layer_sizes=(10,), temperature=1.0).fit(X, y)
    return model.draws_


def potential(theta: torch.Tensor) -> torch.Tensor:
    return 0.5 * theta.square().sum(1)


draws = sample(potential, torch.zeros(4, 2), sampler="sgld", step_size=0.1, n_steps=100)
values: torch.Tensor = draws.values
data, target = load_landsat(return_X_y=True)
searched(data, target)
"""


def run(*command: str, cwd: Path) -> None:
    """Run a command with the interpreter of this script, away from the source tree."""
    print("$ python", *("..." if "\n" in part else part for part in command), flush=True)
    path = [part for part in os.environ.get("PYTHONPATH", "").split(os.pathsep) if part and Path(part).resolve() != ROOT]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(path)}
    subprocess.run([sys.executable, *command], cwd=cwd, check=True, env=environment)


def main() -> None:
    """Run all three parts; a failure ends the script with an error."""
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder)
        run("-c", FIT.format(root=str(ROOT)), cwd=place)
        shutil.copytree(ROOT / "tests", place / "tests", ignore=shutil.ignore_patterns("__pycache__"))
        run("-m", "pytest", "-q", "-p", "no:cacheprovider", *(f"tests/{name}" for name in TESTS), cwd=place)
        (place / "typed.py").write_text(TYPED)
        run("-m", "mypy", "--strict", "typed.py", cwd=place)


if __name__ == "__main__":
    main()
