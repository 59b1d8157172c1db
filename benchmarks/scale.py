"""Measure time and memory of every prediction: 20 features, 50 hidden units, 200 draws, float64.

python -m benchmarks.scale [n_rows] [method ...]

Each method runs in a process of its own, without warm-up. "MB" is its peak of resident memory above that with the model and X in
place, "result MB" what it returns; the share of the whole draws x rows x outputs array stands beside them. Linux.
"""

import os
import pickle
import subprocess
import sys
import tempfile
import time
import warnings
from pathlib import Path

import numpy as np
from sklearn.exceptions import ConvergenceWarning

from benchmarks.memory import forget_peak, resident
from sklearn_sgmcmc import BayesianMLPClassifier, BayesianMLPRegressor

N_FEATURES, N_CLASSES, N_DRAWS = 20, 5, 200
METHODS = {
    "classifier": {
        "predict": {},
        "predict_proba": {},
        "predict_proba, std": {"return_std": True},
        "predict_log_proba": {},
        "predict_uncertainty": {},
    },
    "regressor": {
        "predict": {},
        "predict, std": {"return_std": True},
        "predict_noise": {},
        "predict_uncertainty": {},
        "predict_quantiles": {"quantiles": [0.05, 0.5, 0.95]},
        "predict_interval": {},
        "sample_y": {"n_samples": 10},
        "log_predictive_density": {"y": None},
    },
}
"""Arguments of each method; y of None is a target for every row."""


def rows(n_rows: int) -> np.ndarray:
    return np.random.default_rng(1).standard_normal((n_rows, N_FEATURES))


def fitted(kind: str) -> BayesianMLPClassifier | BayesianMLPRegressor:
    x = rows(2000)
    signal = x[:, 0] - x[:, 1] ** 2 + 0.3 * x[:, 2]
    settings = {"n_draws": N_DRAWS // 4, "n_chains": 4, "max_iter": 60, "random_state": 0}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)  # only the size of the model matters here
        if kind == "classifier":
            return BayesianMLPClassifier((50,), **settings).fit(x, np.digitize(signal, [-3, -1, 0, 1]))
        return BayesianMLPRegressor((50,), **settings).fit(x, signal)


def size(result: object) -> float:
    """Return the bytes of the arrays of a result, in MB."""
    arrays = result.values() if isinstance(result, dict) else result if isinstance(result, tuple) else (result,)
    return sum(array.nbytes for array in arrays) / 2**20


def measure(path: str, kind: str, name: str, n_rows: int) -> None:
    model = pickle.loads(Path(path).read_bytes())
    x = rows(n_rows)
    arguments = {key: x[:, 0] if value is None else value for key, value in METHODS[kind][name].items()}
    forget_peak()
    before, start = resident("VmRSS"), time.perf_counter()
    result = getattr(model, name.split(",")[0])(x, **arguments)
    seconds, peak = time.perf_counter() - start, (resident("VmHWM") - before) / 2**20
    whole = N_DRAWS * n_rows * (N_CLASSES if kind == "classifier" else 1) * 8 / 2**20
    print(f"{kind:<11}{name:<23}{n_rows:>10,}{seconds:>9.1f}{peak:>8.0f}{size(result):>11.1f}{whole:>13.0f}", flush=True)


def main(n_rows: int, wanted: list[str]) -> None:
    print(f"{'':<34}{'rows':>10}{'seconds':>9}{'MB':>8}{'result MB':>11}{'all draws MB':>13}", flush=True)
    with tempfile.TemporaryDirectory() as folder:
        for kind, methods in METHODS.items():
            path = Path(folder) / kind
            path.write_bytes(pickle.dumps(fitted(kind)))
            for name in methods:
                if not wanted or name in wanted:
                    command = [sys.executable, "-m", "benchmarks.scale", "--measure", str(path), kind, name, str(n_rows)]
                    subprocess.run(command, check=True, env={**os.environ, "OMP_NUM_THREADS": "1"})


if __name__ == "__main__":
    if sys.argv[1:2] == ["--measure"]:
        measure(*sys.argv[2:5], int(sys.argv[5]))
    else:
        main(int(sys.argv[1]) if len(sys.argv) > 1 else 100_000, sys.argv[2:])
