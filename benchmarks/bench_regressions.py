"""What must not become slower, for pytest-benchmark.

pytest benchmarks/bench_regressions.py --benchmark-autosave          once, before a change
pytest benchmarks/bench_regressions.py --benchmark-compare           after it

Needs the extra "bench". Compare runs of one machine only, on a free core.
"""

import warnings
from functools import partial

import pytest
import torch
from sklearn.datasets import load_iris
from sklearn.exceptions import ConvergenceWarning

from benchmarks.steps import NETS, ours
from sklearn_sgmcmc import BayesianMLPClassifier, BayesianMLPRegressor
from sklearn_sgmcmc.datasets import load_landsat


@pytest.fixture(autouse=True)
def one_thread():
    torch.set_num_threads(1)


@pytest.mark.parametrize("n_chains", [1, 4, 16])
@pytest.mark.parametrize("net", NETS)
def test_steps(benchmark, net, n_chains):
    method = ours(NETS[net], n_chains, "msgld")
    benchmark(partial(method, 100))


@pytest.mark.parametrize("estimator", [BayesianMLPClassifier, BayesianMLPRegressor])
def test_small_fit(benchmark, estimator):
    X, y = load_iris(return_X_y=True)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        benchmark.pedantic(lambda: estimator(random_state=0).fit(X, y), rounds=3, warmup_rounds=1)


def test_predict_proba(benchmark):
    data = load_landsat()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        model = BayesianMLPClassifier((30, 30), max_iter=2, warm_up=0, random_state=0).fit(data.data, data.target)
    benchmark(model.predict_proba, data.data)
