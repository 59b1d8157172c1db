"""Measure the estimators' predictions on fixed splits and print a table beside published results.

python -m benchmarks.quality --data DIR [--sets yacht energy] [--configs default] [--splits 0-4] [--seeds 1] [--jobs 2] [--inner]

DIR holds the UCI regression sets as uci_<name>.npz (X, y, train_idx, test_idx), airfoil.npz and uci_published_results.csv; without
it only Landsat and scikit-learn's own sets are run. ``--inner`` scores on a fifth of the training rows instead of the test rows:
for choices. Seconds are processor seconds of fit alone, with one thread.
"""

from __future__ import annotations

import argparse
import csv
import time
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from joblib import Parallel, delayed
from sklearn import datasets
from sklearn.base import clone
from sklearn.ensemble import RandomForestClassifier, RandomForestRegressor
from sklearn.linear_model import LogisticRegressionCV, RidgeCV
from sklearn.metrics import log_loss
from sklearn.neural_network import MLPClassifier, MLPRegressor
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from sklearn_sgmcmc import BayesianMLPClassifier, BayesianMLPRegressor
from sklearn_sgmcmc.datasets import load_landsat
from sklearn_sgmcmc.metrics import expected_calibration_error, gaussian_log_loss, mixture_crps

PUBLISHED = (
    "PBP",
    "MC dropout (grid search per split, 2018)",
    "Deep Ensembles (M=5, adversarial training)",
    "ridge regression (floor)",
)
UCI = ("boston_housing", "concrete", "energy", "kin8nm", "naval", "power_plant", "protein", "wine_quality_red", "yacht")
BUNDLED_CLASSES = ("breast_cancer", "wine", "digits", "iris")
BUNDLED_VALUES = ("diabetes", "friedman", "friedman_wide", "linear")
N_BUNDLED_SPLITS = 5


class Split(NamedTuple):
    """Training and test rows, and what one unit of the scores of a regression is in units of y."""

    X: Any
    y: Any
    X_test: Any
    y_test: Any
    unit: float = 1.0


def uci(folder: Path, name: str, number: int) -> Split:
    file = np.load(folder / f"uci_{name}.npz")
    train, test = (file[part][number].astype(int) for part in ("train_idx", "test_idx"))
    return Split(file["X"][train], file["y"][train], file["X"][test], file["y"][test])


def airfoil(folder: Path) -> Split:
    """Return the published split; scores are on the scale of y standardised by its training rows."""
    file = np.load(folder / "airfoil.npz")
    train, test = file["train_idx"].astype(int), file["test_idx"].astype(int)
    return Split(file["X"][train], file["y"][train], file["X"][test], file["y"][test], float(file["y"][train].std()))


def landsat() -> Split:
    data = load_landsat()
    train, test = data.train_indices, data.test_indices
    return Split(data.data[train], data.target[train], data.data[test], data.target[test])


def bundled(name: str, number: int) -> Split:
    """Return a random quarter of a set of scikit-learn as test rows."""
    make: dict[str, Callable[[], tuple[Any, Any]]] = {
        "friedman": lambda: datasets.make_friedman1(400, noise=1.0, random_state=0),
        "friedman_wide": lambda: datasets.make_friedman1(200, n_features=100, noise=1.0, random_state=0),
        "linear": lambda: datasets.make_regression(300, 20, n_informative=5, noise=30.0, random_state=0),
    }
    X, y = make[name]() if name in make else getattr(datasets, f"load_{name}")(return_X_y=True)
    order = np.random.RandomState(number).permutation(len(y))
    test, train = order[: len(y) // 4], order[len(y) // 4 :]
    return Split(X[train], y[train], X[test], y[test])


def inner(split: Split) -> Split:
    """Return the training rows divided anew, four to one."""
    order = np.random.RandomState(0).permutation(len(split.y))
    test, train = order[: len(order) // 5], order[len(order) // 5 :]
    return Split(split.X[train], split.y[train], split.X[test], split.y[test], split.unit)


def all_splits(name: str, folder: Path | None, chosen: list[int] | None, n_seeds: int) -> list[tuple[int, Split]]:
    """Return the splits of a set with a seed each; a set with one split has it once per seed."""
    if name == "landsat" or name == "airfoil":
        split = landsat() if name == "landsat" else airfoil(needed(folder))
        return [(seed, split) for seed in range(n_seeds)]
    if name in UCI:
        count = len(np.load(needed(folder) / f"uci_{name}.npz")["train_idx"])
        return [(number, uci(needed(folder), name, number)) for number in chosen or range(count) if number < count]
    return [(number, bundled(name, number)) for number in chosen or range(N_BUNDLED_SPLITS)]


def needed(folder: Path | None) -> Path:
    if folder is None:
        raise SystemExit("This set needs --data DIR.")
    return folder


REGRESSORS: dict[str, Any] = {
    "default": BayesianMLPRegressor(),
    "homoscedastic": BayesianMLPRegressor(noise="homoscedastic"),
    "normal prior": BayesianMLPRegressor(prior="normal"),
    "sghmc": BayesianMLPRegressor(sampler="sghmc"),
    "tanh": BayesianMLPRegressor(activation="tanh"),
    "ridge": make_pipeline(StandardScaler(), RidgeCV(np.logspace(-3, 3, 13))),
    "random forest": RandomForestRegressor(200, min_samples_leaf=2),
    "sklearn MLP": make_pipeline(StandardScaler(), MLPRegressor(hidden_layer_sizes=(50,), early_stopping=True, max_iter=1000)),
}
CLASSIFIERS: dict[str, Any] = {
    "default": BayesianMLPClassifier(),
    "temperature 1": BayesianMLPClassifier(temperature=1.0),
    "sghmc": BayesianMLPClassifier(sampler="sghmc"),
    "tanh": BayesianMLPClassifier(activation="tanh"),
    "logistic regression": make_pipeline(StandardScaler(), LogisticRegressionCV(Cs=np.logspace(-3, 3, 7), max_iter=2000)),
    "random forest": RandomForestClassifier(200),
    "sklearn MLP": make_pipeline(StandardScaler(), MLPClassifier(hidden_layer_sizes=(50,), max_iter=500)),
}
LEAST_PROBABILITY = 1e-6
"""Class probabilities of rivals are kept from 0 by as much before the logarithm."""
WIDTHS = {"landsat": (60, 60), "airfoil": (16, 16, 16, 16), "protein": (100,)}
"""Hidden layers other than the default's, where the published protocol has them."""


def sized(model: Any, name: str) -> Any:
    """Return a copy of the model, with the network of the set's protocol if it is one of ours."""
    model = clone(model)
    if name == "airfoil" and isinstance(model, BayesianMLPRegressor):
        model.set_params(activation="tanh")
    return model.set_params(hidden_layer_sizes=WIDTHS[name]) if name in WIDTHS and hasattr(model, "hidden_layer_sizes") else model


def seeded(model: Any, seed: int) -> Any:
    return model.set_params(**{key: seed for key in model.get_params() if key.split("__")[-1] == "random_state"})


def regression_scores(model: Any, split: Split) -> dict[str, float]:
    """Return RMSE, log-likelihood and CRPS of the predictive mixture, log-likelihood of its Gaussian, and 90 % coverage.

    A model without a predictive distribution gets a Gaussian with the RMSE of five-fold cross-validation.
    """
    y, unit = split.y_test, split.unit
    if isinstance(model, BayesianMLPRegressor):
        mean, std = (part[None] for part in model.predict(split.X_test, return_std=True))
        parts = model.predict_mixture(split.X_test)
        likelihood = float(np.mean(model.log_predictive_density(split.X_test, y)))
        lower, upper = model.predict_interval(split.X_test, 0.9)
    else:
        mean = model.predict(split.X_test)[None]
        parts = mean, np.full(mean.shape, residual_sd(model, split))
        std = parts[1]
        likelihood = -gaussian_log_loss(y, mean[0], std[0])
        lower, upper = mean[0] - 1.6449 * std[0], mean[0] + 1.6449 * std[0]
    return {
        "RMSE": float(np.sqrt(np.mean((mean[0] - y) ** 2))) / unit,
        "LL": likelihood + np.log(unit),
        "LL Gaussian": -gaussian_log_loss(y, mean[0], std[0]) + np.log(unit),
        "CRPS": float(mixture_crps(y, *parts)) / unit,
        "coverage": float(np.mean((lower <= y) & (y <= upper))),
    }


def residual_sd(model: Any, split: Split) -> float:
    fold = np.random.RandomState(0).permutation(len(split.y)) % 5
    others = [(fold != k, fold == k) for k in range(5)]
    errors = [clone(model).fit(split.X[a], split.y[a]).predict(split.X[b]) - split.y[b] for a, b in others]
    return float(np.sqrt(np.mean(np.concatenate(errors) ** 2)))


def classification_scores(model: Any, split: Split) -> dict[str, float]:
    proba = np.maximum(model.predict_proba(split.X_test), LEAST_PROBABILITY)
    proba = proba / proba.sum(axis=1, keepdims=True)
    return {
        "accuracy": float(np.mean(model.classes_[proba.argmax(axis=1)] == split.y_test)),
        "log loss": float(log_loss(split.y_test, proba, labels=model.classes_)),
        "ECE": float(expected_calibration_error(split.y_test, proba, labels=model.classes_)),
    }


def measure(model: Any, seed: int, split: Split, scores: Callable[[Any, Split], dict[str, float]]) -> dict[str, float]:
    model = seeded(clone(model), seed)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        start = time.process_time()
        model.fit(split.X, split.y)
        seconds = time.process_time() - start
        return {**scores(model, split), "s": seconds}


def published(folder: Path | None, name: str) -> Iterator[tuple[str, str]]:
    """Yield the published rows of a set."""
    if folder is None or not (folder / "uci_published_results.csv").exists():
        return
    with (folder / "uci_published_results.csv").open(newline="") as file:
        rows = [row for row in csv.DictReader(file) if row["dataset"].replace("-", "_") == name and row["method"] in PUBLISHED]
    for method in PUBLISHED:
        found = [f"{row['metric']} {row['mean']} ({row['err']} {row['err_kind'][:2]})" for row in rows if row["method"] == method]
        if found:
            yield method, ", ".join(found)


def table(name: str, results: dict[str, list[dict[str, float]]], folder: Path | None) -> str:
    """Return the means over splits with their standard errors as Markdown."""
    columns = list(next(iter(results.values()))[0])
    lines = [f"\n### {name}, {max(map(len, results.values()))} splits or seeds\n"]
    lines += ["| configuration | " + " | ".join(columns) + " |", "|---" * (len(columns) + 1) + "|"]
    for config, rows in results.items():
        cells = []
        for column in columns:
            values = np.array([row[column] for row in rows])
            error = f" ({values.std(ddof=1) / len(values) ** 0.5:.2g})" if len(values) > 1 else ""
            cells.append(f"{values.mean():.4g}{error}")
        lines.append(f"| {config} | " + " | ".join(cells) + " |")
    return "\n".join([*lines, *(f"| {method} (published) | {text} |" for method, text in published(folder, name))])


def numbers(text: str) -> list[int]:
    """Return the numbers of "0-4" or "3"."""
    first, _, last = text.partition("-")
    return list(range(int(first), int(last or first) + 1))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path)
    parser.add_argument("--sets", nargs="+", default=["landsat", *BUNDLED_CLASSES, *BUNDLED_VALUES])
    parser.add_argument("--configs", nargs="+", default=["default"])
    parser.add_argument("--splits", type=numbers)
    parser.add_argument("--seeds", type=int, default=5, help="of Landsat and airfoil")
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--inner", action="store_true")
    options = parser.parse_args()
    for name in options.sets:
        classes = name in ("landsat", *BUNDLED_CLASSES)
        models, scores = (CLASSIFIERS, classification_scores) if classes else (REGRESSORS, regression_scores)
        splits = all_splits(name, options.data, options.splits, options.seeds)
        splits = [(seed, inner(split) if options.inner else split) for seed, split in splits]
        configs = [config for config in options.configs if config in models]
        rows = Parallel(n_jobs=options.jobs)(
            delayed(measure)(sized(models[config], name), seed, split, scores) for config in configs for seed, split in splits
        )
        results = {config: rows[k * len(splits) : (k + 1) * len(splits)] for k, config in enumerate(configs)}
        print(table(name, results, options.data), flush=True)


if __name__ == "__main__":
    main()
