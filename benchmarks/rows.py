"""Measure the time of a step and the memory of ``fit`` against the number of training rows: 50 features, (50,), batches of 64.

python -m benchmarks.rows [n_rows ...]

Each fit runs in a process of its own, in turns. "above MB" is the peak of resident memory above that with the imports, X and y in
place. Linux.
"""

from __future__ import annotations

import statistics
import subprocess
import sys
import time
import warnings
from typing import Any

import numpy as np

from benchmarks.memory import forget_peak, resident
from sklearn_sgmcmc import BayesianMLPClassifier, BayesianMLPRegressor, chains

N_FEATURES, REPEATS, N_STEPS = 50, 3, 2000
ESTIMATORS = {"classifier": (BayesianMLPClassifier, "msgld"), "regressor": (BayesianMLPRegressor, "sghmc")}


def data(n_rows: int, kind: str, dtype: str) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    X = np.empty((n_rows, N_FEATURES), dtype=dtype)
    for start in range(0, n_rows, 10_000):
        X[start : start + 10_000] = rng.standard_normal((min(10_000, n_rows - start), N_FEATURES))
    signal = (X[:, 0] - X[:, 1] ** 2).astype(np.float64)
    return X, np.digitize(signal, [-3, -1, 0, 1]) if kind == "classifier" else signal


def timed(run: Any, seconds: list[float]) -> Any:
    """Return ``run`` with the seconds per step of each call noted."""

    def wrapped(*arguments: Any, **settings: Any) -> Any:
        start = time.process_time()
        result = run(*arguments, **settings)
        seconds.append((time.process_time() - start) / result.n_steps)
        return result

    return wrapped


def one(n_rows: int, kind: str, dtype: str) -> None:
    """Print microseconds per step, megabytes above the input, and those of the input and of the draws."""
    warnings.simplefilter("ignore")
    make, sampler = ESTIMATORS[kind]
    settings: dict[str, Any] = {"sampler": sampler, "warm_up": 0, "batch_size": 64, "random_state": 0}
    make((50,), max_iter=2, **settings).fit(*data(2500, kind, dtype))
    X, y = data(n_rows, kind, dtype)
    seconds: list[float] = []
    chains.run = timed(chains.run, seconds)
    forget_peak()
    before = resident("VmRSS")
    model = make((50,), max_iter=max(1, N_STEPS * 64 // n_rows), **settings).fit(X, y)
    print(seconds[0] * 1e6, (resident("VmHWM") - before) / 1e6, (X.nbytes + y.nbytes) / 1e6, model.draws_.nbytes / 1e6)


def main() -> None:
    if len(sys.argv) == 5 and sys.argv[1] == "one":
        one(int(sys.argv[2]), sys.argv[3], sys.argv[4])
        return
    sizes = [int(float(text)) for text in sys.argv[1:]] or [10_000, 100_000, 1_000_000]
    print("| estimator, X | rows | us per step | above MB | input MB | draws MB |\n|---|---|---|---|---|---|")
    for kind, dtype in (("classifier", "float32"), ("regressor", "float64")):
        found: dict[int, list[list[float]]] = {size: [] for size in sizes}
        for _ in range(REPEATS):
            for size in sizes:
                command = [sys.executable, "-m", "benchmarks.rows", "one", str(size), kind, dtype]
                found[size].append([float(number) for number in subprocess.check_output(command).split()])
        for size in sizes:
            middle = [statistics.median(column) for column in zip(*found[size], strict=True)]
            print(f"| {kind}, {dtype} | {size} | " + " | ".join(f"{number:.0f}" for number in middle) + " |", flush=True)


if __name__ == "__main__":
    main()
