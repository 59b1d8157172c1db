"""Threads and processes: results are those of one call after the other, and nobody's settings change."""

import contextlib
import os
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor

import joblib
import numpy as np
import pytest
import torch
from sklearn.base import clone
from sklearn.datasets import load_iris
from sklearn.model_selection import GridSearchCV

from sklearn_sgmcmc import BatchedGridSearchCV, BayesianMLPClassifier, BayesianMLPRegressor, chains, engine
from sklearn_sgmcmc.sampling import sample
from sklearn_sgmcmc.threads import one_thread

pytestmark = pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")

X, LABEL = load_iris(return_X_y=True)
X, LABEL = X[::2], LABEL[::2]
Y = X[:, 0] + 10 * X[:, 2]
FAST = {"hidden_layer_sizes": (4,), "warm_up": 0, "max_iter": 20, "n_draws": 3, "random_state": 0}


def classifier(**params):
    return BayesianMLPClassifier(**(FAST | params))


def regressor(**params):
    return BayesianMLPRegressor(**(FAST | params))


def in_a_fresh_thread(function, *arguments):
    with ThreadPoolExecutor(1) as pool:
        return pool.submit(function, *arguments).result()


def settings():
    """Return what belongs to the caller, here and in a thread to come."""
    return {
        "threads": torch.get_num_threads(),
        "threads to come": in_a_fresh_thread(torch.get_num_threads),
        "dtype": torch.get_default_dtype(),
        "device": torch.get_default_device(),
        "grad": torch.is_grad_enabled(),
        "inference": torch.is_inference_mode_enabled(),
        "deterministic": torch.are_deterministic_algorithms_enabled(),
        "torch numbers": torch.get_rng_state().tolist(),
        "numpy numbers": np.random.get_state()[1].tolist(),
        "numpy errors": np.geterr(),
        "numbers below the normal range": sys.float_info.min / 2,
    }


@pytest.fixture
def three_threads():
    """Let torch use three threads, here and in threads to come."""
    before = torch.get_num_threads()
    torch.set_num_threads(3)
    yield
    torch.set_num_threads(before)


# --- the caller's settings ---------------------------------------------------------------------------------------------------

CALLS = {
    "fit": lambda: classifier().fit(X, LABEL),
    "fit in minibatches": lambda: regressor(batch_size=16).fit(X, Y),
    "fit by two workers": lambda: classifier(n_chains=8, n_jobs=2).fit(X, LABEL),
    "diverge": lambda: classifier(learning_rate=1e4).fit(X, LABEL),
    "refuse": lambda: classifier(n_draws=-1).fit(X, LABEL),
    "search": lambda: BatchedGridSearchCV(classifier(), {"prior_scale": [1.0, 2.0]}, cv=2).fit(X, LABEL),
    "sample": lambda: sample(lambda x: 0.5 * x.square().sum(1), torch.zeros(4, 2), step_size=0.1, n_steps=20, n_draws=5),
}
PREDICTIONS = {
    "predict": {},
    "predict_proba": {"return_std": True},
    "predict_log_proba": {},
    "predict_uncertainty": {},
    "predict_noise": {},
    "predict_quantiles": {"quantiles": [0.1, 0.9]},
    "predict_interval": {},
    "predict_mixture": {},
    "sample_posterior": {"n_draws": 2, "random_state": 0},
    "sample_y": {"n_samples": 2, "random_state": 0},
}


@pytest.mark.parametrize("name", CALLS)
def test_no_call_changes_the_callers_settings(name, three_threads):
    before = settings()
    with contextlib.suppress(ValueError):
        CALLS[name]()
    assert settings() == before


@pytest.mark.parametrize("model", [classifier(), regressor()], ids=["classes", "targets"])
def test_no_prediction_changes_the_callers_settings(model, three_threads):
    model = clone(model).set_params(random_state=0).fit(X, LABEL)
    before = settings()
    with torch.enable_grad():
        for name, arguments in PREDICTIONS.items():
            if hasattr(model, name):
                getattr(model, name)(X, **arguments)
                with contextlib.suppress(ValueError):
                    getattr(model, name)(np.full((1, 4), 1e308), **arguments)
                assert settings() == before, name
        model.diagnostics(), model.summary(), model.to_arviz(), model.score(X, LABEL)
    assert settings() == before


@pytest.mark.parametrize("step", [3, 15])
def test_an_interruption_changes_no_setting(step, three_threads, monkeypatch):
    def interrupted(watch, number, theta, look=engine._Watch.after):
        if number == step:
            raise KeyboardInterrupt
        return look(watch, number, theta)

    monkeypatch.setattr(engine._Watch, "after", interrupted)
    before = settings()
    with pytest.raises(KeyboardInterrupt):
        classifier().fit(X, LABEL)
    assert settings() == before


@pytest.mark.skipif(not torch.set_flush_denormal(False), reason="torch cannot change how this processor computes")
@pytest.mark.parametrize("of_caller", [False, True])
def test_numbers_below_the_normal_range_are_0_in_a_run_and_what_they_were_afterwards(of_caller):
    seen = []

    def potential(theta):
        seen.append((sys.float_info.min / 2, float(torch.tensor(1e-40) * 1.0)))
        return theta.square().sum(1)

    torch.set_flush_denormal(of_caller)
    try:
        sample(potential, torch.ones(2, 3), step_size=0.01, n_steps=20)
        assert seen.count((0.0, 0.0)) > 20  # the first call, before the run, may see others
        assert (sys.float_info.min / 2 == 0.0) == of_caller
    finally:
        torch.set_flush_denormal(False)


def test_overlapping_calls_leave_every_thread_its_number(three_threads):
    """The first call begins first and ends first: whoever puts back what it found would leave the other's 1."""
    entered, ended = threading.Event(), threading.Event()

    def second():
        with one_thread():
            entered.set()
            ended.wait()
        return torch.get_num_threads()

    with ThreadPoolExecutor(1) as pool:
        with one_thread():
            other = pool.submit(second)
            entered.wait()
            found = [torch.get_num_threads(), in_a_fresh_thread(torch.get_num_threads)]
        ended.set()
        found += [other.result(), torch.get_num_threads(), in_a_fresh_thread(torch.get_num_threads)]
    assert found == [1, 3, 3, 3, 3]


def test_a_number_set_elsewhere_meanwhile_stays(three_threads):
    with one_thread():
        in_a_fresh_thread(torch.set_num_threads, 2)
    assert torch.get_num_threads() == 3
    assert in_a_fresh_thread(torch.get_num_threads) == 2


# --- threads ---------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("batch_size", ["auto", 16])
def test_fits_in_threads_equal_fits_in_turn(batch_size):
    models = [make(batch_size=batch_size, random_state=seed) for make in (classifier, regressor) for seed in range(3)]
    alone = [clone(model).fit(X, LABEL) for model in models]
    with ThreadPoolExecutor(4) as pool:
        together = list(pool.map(lambda model: model.fit(X, LABEL), models))
    for one, other in zip(alone, together, strict=True):
        np.testing.assert_array_equal(one.draws_, other.draws_)


@pytest.mark.parametrize("model", [classifier(), regressor(noise=0.5), regressor()], ids=["classes", "known noise", "noise"])
def test_predictions_of_a_shared_model_in_threads_equal_those_in_turn(model):
    model = clone(model).set_params(random_state=0).fit(X, LABEL)
    rows = [X[start:] for start in range(12)]  # of different lengths
    methods = [name for name in PREDICTIONS if hasattr(model, name)]

    def predictions(part):
        return [np.concatenate([np.ravel(array) for array in _arrays(model, name, part)]) for name in methods]

    alone = [predictions(part) for part in rows]
    with ThreadPoolExecutor(4) as pool:
        together = list(pool.map(predictions, rows))
    for one, other in zip(alone, together, strict=True):
        for left, right in zip(one, other, strict=True):
            np.testing.assert_array_equal(left, right)


def _arrays(model, name, rows):
    found = getattr(model, name)(rows, **PREDICTIONS[name])
    return found.values() if isinstance(found, dict) else found if isinstance(found, tuple) else (found,)


# --- processes -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("backend", ["loky", "threading", pytest.param("multiprocessing", marks=pytest.mark.slow)])
def test_a_search_scores_alike_on_every_backend(backend):
    grid = {"sampler": ["msgld", "sghmc"], "batch_size": ["auto", 16]}

    def scores(n_jobs):
        search = GridSearchCV(classifier(n_chains=8, n_jobs=n_jobs), grid, cv=2, n_jobs=n_jobs, scoring="neg_log_loss")
        return search.fit(X, LABEL).cv_results_["mean_test_score"]

    alone = scores(None)
    with joblib.parallel_config(backend=backend):
        np.testing.assert_array_equal(scores(2), alone)


def _workers_inside(_):
    """Return how many groups of chains a fit with workers of its own makes here."""
    groups = []

    def counted(job, blocks, run=chains.run_blocks):
        groups.append(blocks)
        return run(job, blocks)

    chains.run_blocks, original = counted, chains.run_blocks
    try:
        classifier(n_chains=8, n_jobs=2).fit(X, LABEL)
    finally:
        chains.run_blocks = original
    return len(groups)


def test_a_fit_inside_a_worker_starts_no_workers():
    assert joblib.Parallel(n_jobs=2)(joblib.delayed(_workers_inside)(None) for _ in range(2)) == [1, 1]


AFTER_FORK = """
import multiprocessing, numpy as np, torch, warnings
from sklearn_sgmcmc import BayesianMLPClassifier
warnings.simplefilter("ignore")
torch.set_num_threads(2)
X = np.random.RandomState(0).randn(3000, 20)  # enough for torch to use two threads if it is let
model = BayesianMLPClassifier((4,), batch_size=64, warm_up=0, max_iter=1, n_draws=2, random_state=0)
torch.randn(600, 600) @ torch.randn(600, 600)
torch.randn(10**6).exp()
def fit():
    fitted = model.fit(X, X[:, 0] > 0)
    return fitted.draws_, fitted.predict_proba(X)
before = fit()
with multiprocessing.get_context("fork").Pool(2) as pool:
    for found in [pool.apply_async(fit) for _ in range(2)]:
        for here, there in zip(before, found.get(timeout=60)):
            np.testing.assert_array_equal(here, there)
print("done")
"""


needs_fork = pytest.mark.skipif(not hasattr(os, "fork"), reason="the system has no fork")


def run(code, **environment):
    """Return what a fresh process prints."""
    command = [sys.executable, "-W", "ignore", "-c", code]
    ended = subprocess.run(command, env=os.environ | environment, capture_output=True, text=True, timeout=120)
    assert ended.returncode == 0, ended.stderr
    return ended.stdout


@needs_fork
def test_a_forked_process_fits_and_predicts_after_torch_has_used_threads():
    assert run(AFTER_FORK, OMP_NUM_THREADS="2") == "done\n"


FIRST_USE = """
import multiprocessing, threading, torch
from sklearn_sgmcmc import kernels
def use():
    found = []
    threads = [threading.Thread(target=lambda: found.append(kernels.network(torch.float32) is not None)) for _ in range(2)]
    for thread in threads: thread.start()
    for thread in threads: thread.join()
    return found
with multiprocessing.get_context("fork").Pool(2) as pool:
    found = [pool.apply_async(use) for _ in range(2)]
    print(sum([one.get(timeout=100) for one in found], []), kernels.status())
"""


@needs_fork
def test_the_kernel_may_be_compiled_by_several_threads_and_processes_at_once(tmp_path):
    out = run(FIRST_USE, XDG_CACHE_HOME=str(tmp_path))
    assert "False" not in out or "no C compiler" in out
    assert all(path.suffix == ".so" for path in (tmp_path / "sklearn_sgmcmc").iterdir())  # nothing half made is left
