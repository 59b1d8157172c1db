"""A network without hidden layers and with known noise is Bayesian linear regression: its posterior is known in closed form."""

import numpy as np
import pytest
from arviz_stats.base import array_stats
from laws import variance
from mutants import prior_once_per_batch, without_share

from sklearn_sgmcmc import BayesianMLPRegressor
from sklearn_sgmcmc.posterior import Posterior
from sklearn_sgmcmc.samplers import (
    BAOAB,
    MALA,
    MCLMC,
    MSGLD,
    PSGLD,
    SGHMC,
    SGLD,
    SGRLD,
    NonReversibleHessian,
    NonReversibleSGLD,
    NonReversibleSPSA,
    NonReversibleSPSA2,
)
from sklearn_sgmcmc.samplers import (
    SAMPLERS as REGISTRY,
)

NOISE = 1.0
SAMPLERS = {"sgld": SGLD(), "sghmc": SGHMC(), "msgld recipe": MSGLD(bias_factor=1.0, smoothing=0.5, variant="recipe")}
WITH_OWN_LAW = SAMPLERS | {"baoab": BAOAB()}
ALL = WITH_OWN_LAW | {
    "mala": MALA(),
    "psgld": PSGLD(regularizer=1.0),
    "sgrld": SGRLD(regularizer=1.0),
    "nr_sgld": NonReversibleSGLD(0.5),
    "nr_sgld_hessian": NonReversibleHessian(0.5, n_pairs=2),
    "nr_sgld_spsa": NonReversibleSPSA(0.5),
    "nr_sgld_spsa2": NonReversibleSPSA2(0.5),
    "mclmc": MCLMC(energy_error=None, memory=10.0),
}
"""Every sampler whose law is exact or that of a small step."""
METRIC = {"psgld": 2.0, "sgrld": 6.0}
"""1 / G in equilibrium, about: these samplers' steps are eps G, as short as the others' at a learning rate so much larger."""


def by_hand(names, cheap):
    """Return parameters (name, rows): all but 50 rows for ``cheap`` samplers are run by hand."""
    return [
        pytest.param(name, n, marks=() if n == 50 and name in cheap else pytest.mark.slow) for name in names for n in (50, 1000)
    ]


def data(n_rows):
    rng = np.random.RandomState(n_rows)
    X = rng.randn(n_rows, 3) @ np.array([[1.0, 0.4, 0.0], [0.0, 1.0, 0.3], [0.0, 0.0, 0.7]])
    return X, X @ [1.0, -0.5, 0.2] + NOISE * rng.randn(n_rows)


def precision(X, y, prior_scale=1.0):
    """Return the posterior precision and mean of (weights, bias) between standardised quantities, prior N(0, prior_scale^2)."""
    Z = np.column_stack([(X - X.mean(0)) / X.std(0), np.ones(len(X))])
    noise = NOISE / y.std()
    H = Z.T @ Z / noise**2 + np.eye(4) / prior_scale**2
    return H, np.linalg.solve(H, Z.T @ ((y - y.mean()) / y.std()) / noise**2)


def fit(name, X, y, n_chains, **settings):
    settings = {"prior": "normal", "warm_up": 0, "noise": NOISE, "random_state": 1} | settings
    return BayesianMLPRegressor((), sampler=ALL[name], n_chains=n_chains, **settings).fit(X, y)


def moments(model):
    draws = model.draws_.astype(np.float64)
    flat = draws.reshape(-1, draws.shape[2])
    axes = {"chain_axis": 1, "draw_axis": 0, "method": "mean"}
    ess_of_sd, ess_of_mean = (float(np.min(array_stats.ess(values, **axes))) for values in ((draws - flat.mean(0)) ** 2, draws))
    return flat.mean(0), flat.std(0), ess_of_sd, ess_of_mean


def sd_law(sampler, H, step_size):
    """Return the exact stationary sd of each weight: all three samplers act on the eigendirections of H one by one."""
    eigenvalues, Q = np.linalg.eigh(H)
    law = [variance(sampler, curvature=lam, step_size=step_size, temperature=1.0) for lam in eigenvalues]
    return np.sqrt(np.diag(Q * law @ Q.T))


def test_every_exact_or_small_step_sampler_is_here():
    names = {name for name, kind in REGISTRY.items() if kind().law in ("exact", "small step")} | {"msgld recipe"}
    assert names == set(ALL)


@pytest.mark.parametrize(("name", "n_rows"), by_hand(WITH_OWN_LAW, ["sghmc", "msgld recipe"]))
def test_full_batch_sd_equals_the_samplers_own_law(name, n_rows):
    X, y = data(n_rows)
    model = fit(name, X, y, 2048 if n_rows == 50 else 640, learning_rate=0.1, max_iter=600, n_draws=100, burn_in=0.4)
    H, mean = precision(X, y)
    found_mean, found_sd, ess, ess_of_mean = moments(model)
    assert ess >= 1e4
    np.testing.assert_allclose(found_sd, sd_law(ALL[name], H, model.learning_rate_ / n_rows), rtol=0.01)
    np.testing.assert_allclose(found_mean, mean, atol=5 * (found_sd / ess_of_mean**0.5).max())


@pytest.mark.parametrize(("name", "n_rows"), by_hand(ALL, ["sgld"]))
def test_full_batch_sd_equals_the_posterior_at_small_step(name, n_rows):
    X, y = data(n_rows)
    model = fit(name, X, y, 512, learning_rate=0.01 * METRIC.get(name, 1.0), max_iter=4000, n_draws=100, burn_in=0.3)
    H, _ = precision(X, y)
    _, found_sd, ess, _ = moments(model)
    assert ess >= 1e4
    np.testing.assert_allclose(found_sd, np.sqrt(np.diag(np.linalg.inv(H))), rtol=0.03)


@pytest.mark.parametrize(("name", "n_rows"), by_hand((name for name in ALL if "full_batch" not in ALL[name].needs), []))
def test_minibatch_sd_equals_the_posterior_where_gradient_noise_is_small(name, n_rows):
    X, y = data(n_rows)
    batch_size = {50: 10, 1000: 50}[n_rows]
    H, _ = precision(X, y)
    noise = NOISE / y.std()
    learning_rate = small_learning_rate(H, n_rows, batch_size, noise)
    steps = int(30 / (learning_rate * (np.linalg.eigvalsh(H).min() / n_rows)))
    epochs = steps * batch_size // n_rows
    settings = {"batch_size": batch_size, "max_iter": epochs, "n_draws": 60, "burn_in": 0.4}
    model = fit(name, X, y, 512, learning_rate=learning_rate * METRIC.get(name, 1.0), **settings)
    _, found_sd, ess, _ = moments(model)
    assert ess >= 1e4
    np.testing.assert_allclose(found_sd, np.sqrt(np.diag(np.linalg.inv(H))), rtol=0.03)


def small_learning_rate(H, n_rows, batch_size, noise):
    """Return the learning rate with eps s2 / (2 tau) + h / 4 = 0.03, s2 the gradient variance per unit of standardised input."""
    s2_per_step = n_rows / batch_size / (2 * noise**2)  # eps s2 / 2 = learning_rate * this, at unit input variance
    h_per_step = np.linalg.eigvalsh(H).max() / n_rows
    return 0.03 / (s2_per_step + h_per_step / 4)


def minibatch_sd_error():
    """Return the largest relative error of the posterior sds of a minibatch fit under a prior as strong as the data."""
    X, y = data(50)
    H, _ = precision(X, y, prior_scale=0.15)
    settings = {"learning_rate": 0.0015, "batch_size": 10, "max_iter": 1200, "n_draws": 40, "burn_in": 0.4, "prior_scale": 0.15}
    found = moments(fit("sgld", X, y, 256, **settings))[1]
    return np.abs(found / np.sqrt(np.diag(np.linalg.inv(H))) - 1).max()


def test_minibatch_sd_equals_the_posterior_under_a_strong_prior():
    assert minibatch_sd_error() < 0.03


@pytest.mark.parametrize("bind", [without_share, prior_once_per_batch])
def test_rung_7_rejects_the_posterior_mutant(bind, monkeypatch):
    monkeypatch.setattr(Posterior, "bind", bind)
    assert minibatch_sd_error() > 0.06
