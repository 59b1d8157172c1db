"""Measure BayesianMLPClassifier((30, 30), sampler="msgld") at its defaults on Landsat's published split.

taskset -c 0 python -m benchmarks.landsat [n_seeds] [sampler]
"""

import sys
import time

import numpy as np
from sklearn.metrics import log_loss

from sklearn_sgmcmc import BayesianMLPClassifier
from sklearn_sgmcmc.datasets import load_landsat


def main(n_seeds: int = 5, sampler: str = "msgld") -> None:
    landsat = load_landsat()
    train, test = landsat.train_indices, landsat.test_indices
    rows = []
    for seed in range(n_seeds):
        start = time.perf_counter()
        model = BayesianMLPClassifier((30, 30), sampler=sampler, random_state=seed).fit(landsat.data[train], landsat.target[train])
        seconds = time.perf_counter() - start
        proba = model.predict_proba(landsat.data[test])
        accuracy = np.mean(model.classes_[proba.argmax(1)] == landsat.target[test])
        rows.append((accuracy, log_loss(landsat.target[test], proba), seconds))
        print(f"seed {seed}: accuracy {rows[-1][0]:.4f}, log loss {rows[-1][1]:.4f}, {rows[-1][2]:.1f} s", flush=True)
    mean, error = np.mean(rows, axis=0), np.std(rows, axis=0, ddof=1) / n_seeds**0.5
    quality = f"accuracy {mean[0]:.4f} (se {error[0]:.4f}), log loss {mean[1]:.4f} (se {error[1]:.4f})"
    print(f"mean of {n_seeds}: {quality}, {mean[2]:.1f} s")


if __name__ == "__main__":
    main(*(kind(value) for kind, value in zip((int, str), sys.argv[1:], strict=False)))
