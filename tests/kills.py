"""Fits that are killed: a script, free of threads, that forks fits and sends them SIGKILL at random moments until they are done.

python tests/kills.py COUNT SEED FOLDER        kills of all cases in turn; prints what was seen so far as JSON after each fit
python tests/kills.py fit CASE FILE            one fit of a case that writes its checkpoint at every step
"""

import json
import os
import signal
import sys
import threading
import time
import warnings
from contextlib import nullcontext
from pathlib import Path

import joblib
import numpy as np
from tqdm.auto import tqdm

import sklearn_sgmcmc.checkpoint
from sklearn_sgmcmc import BayesianMLPClassifier, BayesianMLPRegressor
from sklearn_sgmcmc.samplers import NonReversibleSPSA

TINY = {"hidden_layer_sizes": (4,), "n_draws": 6, "warm_up": 4, "max_iter": 30, "random_state": 0}
SMALL = TINY | {"batch_size": 16}
FULL = TINY | {"max_iter": 120}

CASES = {
    "msgld": (BayesianMLPClassifier, SMALL | {"sampler": "msgld"}),
    "sghmc": (BayesianMLPClassifier, SMALL | {"sampler": "sghmc", "learning_rate": None, "dtype": "float64"}),
    "asgld": (BayesianMLPClassifier, SMALL | {"sampler": "asgld", "schedule": "cyclical"}),
    "santa": (BayesianMLPClassifier, SMALL | {"sampler": "santa", "schedule": "annealed"}),
    "nr_sgld_spsa": (BayesianMLPClassifier, SMALL | {"sampler": NonReversibleSPSA()}),
    "mclmc": (BayesianMLPRegressor, FULL | {"sampler": "mclmc", "noise": "homoscedastic"}),
    "heteroscedastic": (BayesianMLPRegressor, SMALL | {"sampler": "sghmc", "prior": "prior_switch"}),
    "full batch": (BayesianMLPRegressor, FULL),
    "workers": (BayesianMLPClassifier, SMALL | {"sampler": "sgld", "n_chains": 9}),
}
"""Estimator and parameters: samplers with states of different kinds, stages, and a fit that is run by one worker or by two."""


tqdm.monitor_interval = 0  # no thread of its own, and no lock that a killed child could hold for ever
tqdm.set_lock(threading.RLock())


def problem(estimator):
    rng = np.random.RandomState(0)
    X = rng.randn(60, 3)
    y = X[:, 0] - X[:, 1] ** 2 + 0.1 * rng.randn(60)
    return X, (y > 0).astype(int) if estimator is BayesianMLPClassifier else y


def fit(case, **parameters):
    """Return a fitted model of a case."""
    estimator, own = CASES[case]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return estimator(**own | parameters).fit(*problem(estimator))


def write_at_every_step():
    sklearn_sgmcmc.checkpoint.INTERVAL, sklearn_sgmcmc.checkpoint.SHARE = 0.0, np.inf


def start(case, path, out, n_jobs):
    """Fork a fit; the child leaves its draws in ``out`` and never returns."""
    child = os.fork()
    if child:
        return child
    try:
        write_at_every_step()
        with joblib.parallel_config("threading") if n_jobs > 1 else nullcontext():
            model = fit(case, checkpoint=path, n_jobs=n_jobs)
        np.savez(out, draws=model.draws_, curve=model.potential_curve_)
        os._exit(0)
    finally:  # an error has been shown on stderr by then
        sys.excepthook(*sys.exc_info())
        os._exit(1)


def ended(child, seconds):
    """Wait for a child to end, for so many seconds at most; return its status, None if it still runs."""
    last = time.monotonic() + seconds
    while True:
        found, status = os.waitpid(child, os.WNOHANG)
        if found:
            return status
        if time.monotonic() >= last:
            return None
        time.sleep(0.001)


def until_done(case, folder, rng, duration):
    """Kill a fit at random moments spread over its duration and start it again until it ends; return its file and the kills."""
    kills = []
    while True:
        n_jobs = int(rng.integers(1, 3)) if case == "workers" else 1
        child = start(case, folder / "run.npz", folder / "out.npz", n_jobs)
        status = ended(child, rng.uniform(0, duration))
        if status is None:
            os.kill(child, signal.SIGKILL)
            _, status = os.waitpid(child, 0)
        if not os.WIFSIGNALED(status):
            assert os.WEXITSTATUS(status) == 0, f"{case} failed"
            return np.load(folder / "out.npz"), kills
        kills.append({"during a write": any(folder.glob("*.tmp")), "resumed": (folder / "run.npz").exists()})


def main(count, seed, folder):
    rng = np.random.default_rng(seed)
    seen = {"kills": 0, "during a write": 0, "resumed": 0, "fits": 0, "changed": 0, "left": 0}
    expected, durations = {}, {}
    while seen["kills"] < count:
        for case in CASES:
            if case not in expected:
                expected[case], durations[case] = fit(case), 1e9  # the first is not killed
            begin = time.monotonic()
            out, kills = until_done(case, folder, rng, durations[case])
            if not kills:  # the shortest whole life: others may have had to wait for the machine
                durations[case] = min(durations[case], time.monotonic() - begin)
            same = all(
                np.array_equal(out[name], whole)
                for name, whole in [("draws", expected[case].draws_), ("curve", expected[case].potential_curve_)]
            )
            seen["fits"] += 1
            seen["changed"] += not same
            seen["kills"] += len(kills)
            for what in ("during a write", "resumed"):
                seen[what] += sum(kill[what] for kill in kills)
            seen["left"] += sum(path.name != "out.npz" for path in folder.iterdir())
            print(json.dumps(seen), flush=True)
            if seen["kills"] >= count:
                break


if __name__ == "__main__":
    if sys.argv[1] == "fit":
        write_at_every_step()
        fit(sys.argv[2], checkpoint=sys.argv[3])
    else:
        main(int(sys.argv[1]), int(sys.argv[2]), Path(sys.argv[3]))
