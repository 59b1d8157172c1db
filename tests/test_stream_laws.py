"""Streams: each of the two laws that partial_fit claims is that of the shipped sampler."""

import math

import numpy as np
import pytest
import scipy.linalg
import torch
from arviz_stats.base import array_stats
from laws import affine_map

from sklearn_sgmcmc import BayesianMLPRegressor
from sklearn_sgmcmc.samplers import BAOAB, MSGLD, SGHMC, SGLD, NonReversibleSGLD

NOISE = 1.0
LINEAR = {"prior": "normal", "noise": NOISE, "warm_up": 0, "random_state": 0}
AFFINE = {
    "sgld": (SGLD(), 1.0),
    "sghmc": (SGHMC(friction=0.4), 2.5),
    "msgld": (MSGLD(smoothing=0.5), 2.0),
    "msgld recipe": (MSGLD(smoothing=0.5, variant="recipe"), 2.0),
    "msgld rescaled": (MSGLD(smoothing=0.5, variant="rescaled"), 1.0),
    "baoab": (BAOAB(friction=0.5), (1 + math.exp(-0.5)) / (2 - 2 * math.exp(-0.5))),
    "nr_sgld": (NonReversibleSGLD(0.0), 1.0),
}
"""Samplers whose step on a Gaussian is affine, and the drift gain of each."""


def rows(n, rng, slope=(1.0, -0.5)):
    X = rng.randn(n, 2) @ np.array([[1.0, 0.4], [0.0, 1.0]])
    return X, X @ np.asarray(slope) + NOISE * rng.randn(n)


def gaussian(X, y, first):
    """Return the curvature and the pull of rows in the scales of the first chunk, likelihood alone."""
    x0, y0 = first
    Z = np.column_stack([(X - x0.mean(0)) / x0.std(0), np.ones(len(X))])
    precision = (y0.std() / NOISE) ** 2
    return precision * Z.T @ Z, precision * Z.T @ ((y - y0.mean()) / y0.std())


class Recursion:
    """Mean and covariance of a sampler's state, step by step, given the chunks: found by probing the sampler's own step."""

    def __init__(self, sampler, n_params):
        self.sampler, self.P = sampler, n_params
        self.mean = self.covariance = None

    def step(self, curvature, pull, step_size, temperature=1.0):
        L = torch.from_numpy(curvature)
        A, B = affine_map(self.sampler, curvature=L, step_size=step_size, temperature=temperature, gradient_variance=1.0)
        B, G = B[:, : -self.P], B[:, -self.P :]
        if self.mean is None:
            self.mean, self.covariance = np.zeros(len(A)), np.zeros_like(A)
        self.mean = A @ self.mean - G @ pull
        self.covariance = A @ self.covariance @ A.T + B @ B.T
        return self.mean[: self.P], self.covariance[: self.P, : self.P]


def pooled(moments):
    """Return mean and covariance of draws taken at steps with these moments."""
    means, covariances = (np.array(part) for part in zip(*moments, strict=True))
    return means.mean(0), covariances.mean(0) + np.cov(means.T, ddof=0)


def effective(model):
    """Return the least effective number of draws; all chains see the same chunks, and given them are independent."""
    return float(np.min(array_stats.ess(model.draws_.astype(np.float64), chain_axis=1, draw_axis=0, method="mean")))


def assert_same_law(model, mean, covariance):
    draws = model.draws_.reshape(-1, model.draws_.shape[2]).astype(np.float64)
    sd = np.sqrt(np.diag(covariance))
    standard_error = effective(model) ** -0.5
    assert standard_error < 0.02  # 5 % is then 3.5 standard errors of an sd
    np.testing.assert_allclose((draws.mean(0) - mean) / sd, 0.0, atol=5 * standard_error)
    np.testing.assert_allclose(draws.std(0) / sd, 1.0, rtol=0.05)
    np.testing.assert_allclose(np.cov(draws.T) / np.outer(sd, sd), covariance / np.outer(sd, sd), atol=0.1)


def track(name, chunks, learning_rate, n_chains):
    """Return a model that tracked the chunks, and the moments of each step by recursion."""
    sampler, gain = AFFINE[name]
    model = BayesianMLPRegressor((), sampler=sampler, learning_rate=learning_rate, n_chains=n_chains, **LINEAR)
    recursion, moments, N, r = Recursion(sampler, 3), [], 0.0, gain * learning_rate
    for X, y in chunks:
        model.partial_fit(X, y)
        N = (1 - r) * N + len(X)
        H, b = gaussian(X, y, chunks[0])
        moments.append(recursion.step(N / len(X) * H + np.eye(3), N / len(X) * b, learning_rate / N))
    return model, moments, r


@pytest.mark.parametrize("name", ["sgld", "sghmc", *(pytest.param(n, marks=pytest.mark.slow) for n in AFFINE if n[:2] != "sg")])
def test_tracking_has_the_law_of_the_samplers_own_recursion(name):
    rng = np.random.RandomState(0)
    chunks = [rows(20, rng, (1.0 + 0.5 * np.sin(t / 15), -0.5)) for t in range(60)]
    model, moments, r = track(name, chunks, 0.2 / AFFINE[name][1], 1536)
    assert_same_law(model, *pooled(moments[-math.ceil(1 / r - 1e-9) :]))


def test_tracking_at_rest_has_the_posterior_of_as_many_rows_as_its_window_holds():
    X, y = rows(50, np.random.RandomState(1))
    model, moments, r = track("sgld", [(X, y)] * 150, 0.1, 4)
    H, _ = gaussian(X, y, (X, y))
    at_rest = np.linalg.inv(H / r + np.eye(3))  # of 1 / r such chunks
    np.testing.assert_allclose(np.sqrt(np.diag(moments[-1][1]) / np.diag(at_rest)), 1.0, atol=0.1)  # the sampler's own bias, h / 4
    assert model._last.stream.n_data[0, 0] == pytest.approx(500, rel=1e-5)
    assert "N = 500 rows" in model.summary()
    assert "tracking: the last 10 steps" in model.diagnostics().law


@pytest.mark.parametrize("name", ["sghmc", *(pytest.param(n, marks=pytest.mark.slow) for n in AFFINE if n != "sghmc")])
def test_chunks_of_one_data_set_have_the_law_of_the_samplers_own_recursion(name):
    rng = np.random.RandomState(2)
    X, y = rows(60, rng)
    sampler, gain = AFFINE[name]
    learning_rate = 0.1 / gain
    model = BayesianMLPRegressor((), sampler=sampler, learning_rate=learning_rate, n_chains=640, **LINEAR)
    recursion, moments = Recursion(sampler, 3), []
    for t in range(150):
        chosen = np.arange(60) if t == 0 else rng.permutation(60)[:15]
        model.partial_fit(X[chosen], y[chosen], n_total=60)
        H, b = gaussian(X[chosen], y[chosen], (X, y))
        moments.append(recursion.step(60 / len(chosen) * H + np.eye(3), 60 / len(chosen) * b, learning_rate / 60))
    assert_same_law(model, *pooled([moments[step - 1] for step in model._last.stream.draw_steps]))


def test_chunks_of_one_data_set_have_its_posterior_widened_by_their_noise():
    rng = np.random.RandomState(3)
    X, y = rows(60, rng)
    model = BayesianMLPRegressor((), sampler="sgld", learning_rate=0.04, n_chains=256, **LINEAR).partial_fit(X, y, n_total=60)
    for _ in range(499):  # 20 / learning_rate steps in all
        chosen = rng.choice(60, 30)
        model.partial_fit(X[chosen], y[chosen], n_total=60)
    H, b = gaussian(X, y, (X, y))
    H += np.eye(3)
    mean, posterior = np.linalg.solve(H, b), np.sqrt(np.diag(np.linalg.inv(H)))
    of_chunks = [gaussian(X[chosen], y[chosen], (X, y)) for chosen in (rng.choice(60, 30) for _ in range(2000))]
    s2 = np.cov(np.array([2 * (of_chunk[0] @ mean - of_chunk[1]) for of_chunk in of_chunks]).T)
    eps = 0.04 / 60
    step = np.eye(3) - eps * H
    law = np.sqrt(np.diag(scipy.linalg.solve_discrete_lyapunov(step, 2 * eps * np.eye(3) + eps**2 * s2)))
    assert (law / posterior > 1.02).all()
    draws = model.draws_.reshape(-1, 3)
    np.testing.assert_allclose(draws.std(0), law, rtol=0.05)
    np.testing.assert_allclose(
        (draws.mean(0) - mean) / posterior, 0.0, atol=0.5
    )  # 12 independent chunks' worth of a fourth of an sd
    assert "posterior of one data set, N = 60 rows" in model.summary()


def test_a_target_that_jumps_is_followed_as_closely_as_by_refits_of_the_recency_weighted_rows():
    rng = np.random.RandomState(4)
    slopes, state = np.array([[1.0, -0.5], [-1.0, 1.5]]), 0
    model = BayesianMLPRegressor((), sampler="sgld", learning_rate=0.1, n_chains=8, **LINEAR)
    errors, jumps = {"tracked": [], "refit": [], "never": []}, 0
    first = rows(50, rng, slopes[0])
    grid = rng.randn(50, 2)
    Z = np.column_stack([(grid - first[0].mean(0)) / first[0].std(0), np.ones(50)])
    curvature, pull, refits = np.zeros((3, 3)), np.zeros(3), []
    for t in range(300):
        jump = rng.rand() < 0.02
        state, jumps = state ^ jump, jumps + jump
        chunk = first if t == 0 else rows(50, rng, slopes[state])
        model.partial_fit(*chunk)
        H, b = gaussian(*chunk, first)
        curvature, pull = 0.9 * curvature + H, 0.9 * pull + b
        refits = [*refits, np.linalg.solve(curvature + np.eye(3), pull)][-10:]  # the draws' window
        truth = grid @ slopes[state]
        errors["tracked"].append(np.mean((model.predict(grid) - truth) ** 2))
        errors["refit"].append(np.mean((Z @ np.mean(refits, axis=0) * first[1].std() + first[1].mean() - truth) ** 2))
        errors["never"].append(np.mean((grid @ slopes[0] - truth) ** 2))
    tracked, refit, never = (np.mean(errors[name][30:]) for name in ("tracked", "refit", "never"))
    assert jumps >= 2
    assert tracked < 1.2 * refit
    assert tracked < 0.3 * never
