"""Compare BatchedGridSearchCV with GridSearchCV on Landsat: 5 x 5 values of bias_factor and temperature, five folds.

python -m benchmarks.search [max_iter] [repeats]
"""

import sys
import time
import warnings

import numpy as np
from sklearn.model_selection import GridSearchCV

from sklearn_sgmcmc import BatchedGridSearchCV, BayesianMLPClassifier
from sklearn_sgmcmc.datasets import load_landsat

GRID = {"bias_factor": [0, 0.3, 1, 3, 10], "temperature": [0.01, 0.03, 0.1, 0.3, 1]}
KINDS = {"GridSearchCV": GridSearchCV, "BatchedGridSearchCV": BatchedGridSearchCV}


def main(max_iter: int = 5, repeats: int = 3) -> None:
    landsat = load_landsat()
    X, y = landsat.data[landsat.train_indices], landsat.target[landsat.train_indices]
    model = BayesianMLPClassifier((30, 30), sampler="msgld", max_iter=max_iter, random_state=0)
    seconds: dict[str, list[float]] = {name: [] for name in KINDS}
    scores = {}
    for _ in range(repeats):
        for name, kind in KINDS.items():
            search = kind(model, GRID, cv=5, n_jobs=2, refit=False)
            start = time.perf_counter()
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                search.fit(X, y)
            seconds[name].append(time.perf_counter() - start)
            scores[name] = search.cv_results_["mean_test_score"]
            fit, score = (search.cv_results_[f"mean_{part}_time"].sum() * 5 for part in ("fit", "score"))
            print(f"  {name}: {seconds[name][-1]:.1f} s; sums over fits: fit {fit:.1f} s, score {score:.1f} s", flush=True)
    plain, batched = (float(np.median(seconds[name])) for name in KINDS)
    difference = float(np.abs(scores["GridSearchCV"] - scores["BatchedGridSearchCV"]).max())
    print(f"{'epochs':>7}{'plain, s':>10}{'batched, s':>12}{'ratio':>7}{'largest difference of mean scores':>36}")
    print(f"{max_iter:>7}{plain:>10.1f}{batched:>12.1f}{plain / batched:>7.2f}{difference:>36.2g}")


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
