"""Streams: each of the two laws that partial_fit claims is that of the shipped sampler, and the calls keep their books."""

import math
import pickle
import warnings

import numpy as np
import pytest
import scipy.sparse
import torch
from laws import affine_map
from sklearn.base import clone
from sklearn.exceptions import ConvergenceWarning
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from sklearn_sgmcmc import BayesianMLPClassifier, BayesianMLPRegressor
from sklearn_sgmcmc.estimators._walk import latter_steps, recent_steps
from sklearn_sgmcmc.samplers import BAOAB, MSGLD, SAMPLERS, SGHMC, SGLD, NonReversibleSGLD

NOISE = 1.0
LINEAR = {"prior": "normal", "noise": NOISE, "random_state": 0}
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


def assert_same_law(model, mean, covariance):
    draws = model.draws_.reshape(-1, model.draws_.shape[2]).astype(np.float64)
    sd = np.sqrt(np.diag(covariance))
    assert model.draws_.shape[1] >= 2000  # independent chains: standard errors of sd / 45 for means, 1.6 % for sds
    np.testing.assert_allclose((draws.mean(0) - mean) / sd, 0.0, atol=0.1)
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


@pytest.mark.parametrize("name", ["sgld", "sghmc", *(pytest.param(n, marks=pytest.mark.slow) for n in AFFINE if n[:3] != "sgl")])
def test_tracking_has_the_law_of_the_samplers_own_recursion(name):
    rng = np.random.RandomState(0)
    chunks = [rows(20, rng, (1.0 + 0.5 * np.sin(t / 15), -0.5)) for t in range(100)]
    model, moments, r = track(name, chunks, 0.2 / AFFINE[name][1], 2048)
    assert_same_law(model, *pooled(moments[-math.ceil(1 / r - 1e-9) :]))


def test_tracking_at_rest_knows_of_the_rows_in_its_window():
    X, y = rows(50, np.random.RandomState(1))
    model, moments, r = track("sgld", [(X, y)] * 150, 0.1, 16)
    H, _ = gaussian(X, y, (X, y))
    at_rest = np.linalg.inv(H / r + np.eye(3))  # the posterior of 1 / r such chunks
    np.testing.assert_allclose(np.sqrt(np.diag(moments[-1][1]) / np.diag(at_rest)), 1.0, atol=0.1)  # h / 4 at most
    assert model._last.stream.n_data[0, 0] == pytest.approx(500, rel=1e-5)


def total_law(sampler, X, y, first, draw, learning_rate, n_chains, n_steps):
    """Return a model fed with minibatches of one data set, and the moments of its draws' law by recursion."""
    N = len(X)
    model = BayesianMLPRegressor((), sampler=sampler, learning_rate=learning_rate, n_chains=n_chains, **LINEAR)
    recursion, moments = Recursion(sampler, 3), []
    for t in range(n_steps):
        chosen = draw(t)
        model.partial_fit(X[chosen], y[chosen], n_total=N)
        H, b = gaussian(X[chosen], y[chosen], first)
        moments.append(recursion.step(N / len(chosen) * H + np.eye(3), N / len(chosen) * b, learning_rate / N))
    return model, [moments[step - 1] for step in model._last.stream.draw_steps]


@pytest.mark.parametrize("name", ["sghmc", *(pytest.param(n, marks=pytest.mark.slow) for n in AFFINE if n != "sghmc")])
def test_chunks_of_one_data_set_have_the_law_of_the_samplers_own_recursion(name):
    rng = np.random.RandomState(2)
    X, y = rows(60, rng)
    sampler, gain = AFFINE[name]
    draw = lambda t: np.arange(60) if t == 0 else rng.permutation(60)[:15]  # noqa: E731
    model, moments = total_law(sampler, X, y, (X, y), draw, 0.1 / gain, 2048, 200)
    assert_same_law(model, *pooled(moments))


def test_chunks_of_one_data_set_have_its_posterior_widened_by_their_noise():
    rng = np.random.RandomState(3)
    X, y = rows(60, rng)
    chunks = [rng.choice(60, 30) for _ in range(20)]
    learning_rate, steps = 0.04, 500  # 20 / learning_rate
    model = BayesianMLPRegressor((), sampler="sgld", learning_rate=learning_rate, n_chains=512, **LINEAR).partial_fit(
        X, y, n_total=60
    )
    for t in range(1, steps):
        chosen = rng.choice(60, 30)
        model.partial_fit(X[chosen], y[chosen], n_total=60)
    H, b = gaussian(X, y, (X, y))
    H = H + np.eye(3)
    mean = np.linalg.solve(H, b)
    gradients = []
    for chosen in (rng.choice(60, 30) for _ in range(2000)):
        of_chunk = gaussian(X[chosen], y[chosen], (X, y))
        gradients.append(2 * (of_chunk[0] @ mean - of_chunk[1]) + mean)
    eps, s2 = learning_rate / 60, np.cov(np.array(gradients).T)
    A = np.eye(3) - eps * H
    law = scipy.linalg.solve_discrete_lyapunov(A, 2 * eps * np.eye(3) + eps**2 * s2)
    posterior = np.sqrt(np.diag(np.linalg.inv(H)))
    assert (np.sqrt(np.diag(law)) / posterior > 1.02).all()
    draws = model.draws_.reshape(-1, 3)
    print(
        draws.std(0) / np.sqrt(np.diag(law)), (draws.mean(0) - mean) / posterior, np.sqrt(np.diag(law)) / posterior, chunks[0][:1]
    )
    np.testing.assert_allclose(draws.std(0), np.sqrt(np.diag(law)), rtol=0.05)
