"""Progress and interruption: what a fit prints, and what Ctrl-C leaves."""

import subprocess
import sys

import numpy as np
import pytest
from sklearn.exceptions import ConvergenceWarning

from sklearn_sgmcmc import BayesianMLPRegressor
from sklearn_sgmcmc.samplers import SGHMC

FAST = {"hidden_layer_sizes": (4,), "warm_up": 0, "max_iter": 60, "n_draws": 20, "random_state": 0}
RNG = np.random.RandomState(0)
X = RNG.randn(80, 3)
Y = X[:, 0] - X[:, 1] ** 2 + 0.1 * RNG.randn(80)

BAR = "0/300 [00:00<?, ?step/s]\n"
"""What a bar begins with."""


def test_a_silent_fit_prints_nothing(capfd):
    BayesianMLPRegressor(batch_size=16, **FAST).fit(X, Y)
    assert capfd.readouterr() == ("", "")


def test_a_bar_shows_epoch_potential_and_time_left(capfd):
    BayesianMLPRegressor(batch_size=16, verbose=1, **FAST).fit(X, Y)
    out, text = capfd.readouterr()
    assert out == ""
    assert text.replace("\r", "\n").count(BAR) == 1
    assert "epoch 60/60, mean potential" in text
    assert "[00:00<00:00" in text.replace("00:01", "00:00")


WORKERS = """
import sys, warnings; warnings.simplefilter("ignore")
import numpy as np
from sklearn_sgmcmc import BayesianMLPRegressor
X = np.random.RandomState(0).randn(80, 3)
for verbose in (0, 1):
    print("verbose", verbose, file=sys.stderr, flush=True)
    BayesianMLPRegressor((4,), max_iter=60, n_draws=20, n_chains=8, n_jobs=2, verbose=verbose, batch_size=16).fit(X, X[:, 0])
"""


@pytest.mark.slow
def test_workers_are_silent_or_show_one_bar():
    done = subprocess.run([sys.executable, "-c", WORKERS], capture_output=True, text=True, check=True)
    silent, shown = done.stderr.split("verbose 0\n")[1].split("verbose 1\n")
    assert (done.stdout, silent) == ("", "")
    assert shown.count(BAR) == 1


def interrupt_at(monkeypatch, step):
    """Let the sampler be interrupted in its ``step``-th step."""
    count = iter(range(1, 10**6))
    original = SGHMC.step

    def interrupted(self, *arguments):
        if next(count) == step:
            raise KeyboardInterrupt
        return original(self, *arguments)

    monkeypatch.setattr(SGHMC, "step", interrupted)


def test_an_interruption_keeps_the_draws_made_so_far(monkeypatch):
    whole = BayesianMLPRegressor(sampler="sghmc", **FAST).fit(X, Y)
    model = BayesianMLPRegressor(sampler="sghmc", **FAST)
    collected = np.flatnonzero(np.diff(np.floor(np.arange(31) * 20 / 30)))[:7]  # 20 draws in the last 30 of 60 steps
    interrupt_at(monkeypatch, 30 + collected[-1] + 2)
    with pytest.warns(ConvergenceWarning, match="interrupted after 41 of 60 steps: the 7 draws"), pytest.raises(KeyboardInterrupt):
        model.fit(X, Y)
    np.testing.assert_array_equal(model.draws_, whole.draws_[:7])
    assert model.n_steps_ == 41
    assert model.predict(X).shape == (80,)
    assert "warning: fit was interrupted" in model.summary()


def test_an_interruption_before_the_first_draw_leaves_no_model(monkeypatch):
    model = BayesianMLPRegressor(sampler="sghmc", **FAST)
    interrupt_at(monkeypatch, 10)
    with pytest.raises(KeyboardInterrupt):
        model.fit(X, Y)
    assert not hasattr(model, "draws_")


def test_an_interruption_before_the_first_draw_leaves_the_old_model(monkeypatch):
    model = BayesianMLPRegressor(sampler="sghmc", **FAST).fit(X, Y)
    before = model.predict(X)
    interrupt_at(monkeypatch, 10)
    with pytest.raises(KeyboardInterrupt):
        model.fit(2 * X, Y + 1)
    np.testing.assert_array_equal(model.predict(X), before)
