"""Compare the regressor with sklearn-contrib-bde 1.0.2: same rows, network, chains and gradient evaluations, then our defaults.

python -m benchmarks.bde [--data DIR] [--warm-up 50000] [--repeats 3]

Needs an environment of its own (``pip install -e . sklearn-contrib-bde==1.0.2``): bde asks for a blackjax older than ours. Both
work on the cores that the process may use; ``taskset -c 0`` gives one. DIR holds airfoil.npz; without it only the tiny fit runs.
Core seconds are those of the processor, of all threads.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import os
import time
import warnings
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

os.environ["XLA_FLAGS"] = f"--xla_force_host_platform_device_count={len(os.sched_getaffinity(0))}"  # before jax is imported

import numpy as np
from bde import BdeRegressor
from bde.loss import GaussianNLL
from sklearn.datasets import load_diabetes

from sklearn_sgmcmc import BayesianMLPRegressor
from sklearn_sgmcmc.metrics import gaussian_log_loss
from sklearn_sgmcmc.samplers import MCLMC

GRADIENTS = 2
"""Gradients of a step of bde's integrator (isokinetic McLachlan); ours takes one."""
THINNING = 2


def standardised(train: Any, *others: Any) -> list[Any]:
    mean, std = train.mean(axis=0), train.std(axis=0)
    return [((part - mean) / std).astype(np.float32) for part in (train, *others)]


def timed(fit: Callable[[], Any]) -> tuple[Any, float, float]:
    """Return what ``fit`` returns, its seconds and its core seconds; nothing is printed meanwhile."""
    wall, core = time.perf_counter(), time.process_time()
    with warnings.catch_warnings(), contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
        warnings.simplefilter("ignore")
        result = fit()
    return result, time.perf_counter() - wall, time.process_time() - core


def rival(hidden: list[int], members: int, epochs: int, warm_up: int, steps: int, seed: int) -> Any:
    return BdeRegressor(
        n_members=members,
        hidden_layers=hidden,
        seed=seed,
        loss=GaussianNLL(),
        epochs=epochs,
        validation_split=0.15,
        lr=1e-3,
        weight_decay=1e-4,
        patience=10,
        warmup_steps=warm_up,
        n_samples=steps,
        n_thinning=THINNING,
    )


def ours(hidden: list[int], members: int, epochs: int, warm_up: int, steps: int, seed: int) -> BayesianMLPRegressor:
    """Return our model with as many chains, gradients and draws; the warm-up takes as many epochs."""
    return BayesianMLPRegressor(
        hidden,
        sampler=MCLMC(energy_error=0.3, memory=200.0),
        n_chains=members,
        n_draws=steps // THINNING,
        warm_up=epochs,
        max_iter=GRADIENTS * (warm_up + steps),
        burn_in=warm_up / (warm_up + steps),
        batch_size="auto",
        random_state=seed,
    )


def rival_scores(model: Any, X: Any, y: Any) -> str:
    mean, std = (np.asarray(part, dtype=np.float64).ravel() for part in model.predict(X, mean_and_std=True))
    return scores(y, mean, std)


def our_scores(model: BayesianMLPRegressor, X: Any, y: Any) -> str:
    return scores(y, *model.predict(X, return_std=True))


def scores(y: Any, mean: Any, std: Any) -> str:
    return f"RMSE {np.sqrt(np.mean((y - mean) ** 2)):.4f}, NLL {gaussian_log_loss(y, mean, std):+.3f}"


def line(name: str, seconds: list[float], core: list[float], quality: str = "") -> None:
    print(f"  {name:<46}{np.median(seconds):>9.2f} s{np.median(core):>9.2f} core s   {quality}", flush=True)


def tiny(repeats: int) -> None:
    """A fit of two networks of eight units, as in a grid search on a laptop; each of bde's compiles anew."""
    X, y = load_diabetes(return_X_y=True)
    X, y = standardised(X)[0], standardised(y)[0]
    budget = ([8], 2, 20, 100, 20)
    ours(*budget, 0).fit(X, y)
    runs: dict[str, list[tuple[float, float]]] = {"bde": [], "ours": []}
    for seed in range(repeats):
        runs["bde"].append(timed(partial(rival(*budget, seed).fit, x=X, y=y))[1:])
        runs["ours"].append(timed(partial(ours(*budget, seed).fit, X, y))[1:])
    print("\nTiny fit: diabetes, 2 chains, 8 units, 100 + 20 steps of two gradients")
    for name, times in runs.items():
        line(name, *map(list, zip(*times, strict=True)))


def airfoil(folder: Path, warm_up: int) -> None:
    file = np.load(folder / "airfoil.npz")
    train, test = file["train_idx"].astype(int), file["test_idx"].astype(int)
    X, X_test = standardised(file["X"][train], file["X"][test])
    y, y_test = standardised(file["y"][train], file["y"][test])
    budget = ([16] * 4, 10, 200, warm_up, 1000)
    print(f"\nAirfoil, (16, 16, 16, 16), 10 chains, {warm_up:,} + 1,000 steps of two gradients, relu")
    model, *seconds = timed(partial(rival(*budget, 0).fit, x=X, y=y))
    line("bde", *([part] for part in seconds), rival_scores(model, X_test, y_test))
    model, *seconds = timed(partial(ours(*budget, 0).fit, X, y))
    line("ours, as many gradients", *([part] for part in seconds), our_scores(model, X_test, y_test))
    for seed in range(3):
        model, *seconds = timed(partial(BayesianMLPRegressor([16] * 4, activation="tanh", random_state=seed).fit, X, y))
        line(f"ours, defaults with tanh, seed {seed}", *([part] for part in seconds), our_scores(model, X_test, y_test))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path)
    parser.add_argument("--warm-up", type=int, default=50_000)
    parser.add_argument("--repeats", type=int, default=3)
    options = parser.parse_args()
    tiny(options.repeats)
    if options.data is not None:
        airfoil(options.data, options.warm_up)


if __name__ == "__main__":
    main()
