"""Adaptive drifts: each is its published recursion, written out in numpy, and ASGLD has its mean-field law."""

import numpy as np
import pytest
import torch
from laws import Quadratic, RecordedNoise

from sklearn_sgmcmc._typing import Control
from sklearn_sgmcmc.noise import BlockNoise, noise_generators
from sklearn_sgmcmc.samplers import ASGLD, PSGLD, AdadeltaSGLD, AdaMaxSGLD

CONTROL = Control(0.03, 0.8, adapt=True, collect=False)
N = 7.0
CURVATURE = torch.tensor([[1.0, 0.4, 0.0], [0.4, 2.0, -0.2], [0.0, -0.2, 0.5]], dtype=torch.float64)


def asgld(past, b1=0.9, b2=0.999, regularizer=1e-8):
    """A after the past gradients, from sums instead of recursions."""
    t = len(past)
    m = sum((1 - b1) * b1 ** (t - 1 - k) * g for k, g in enumerate(past))
    V = sum((1 - b2) * b2 ** (t - 1 - k) * g**2 for k, g in enumerate(past))
    return m / np.sqrt(V + regularizer)


def adamax(past, b1=0.9, b2=0.999, regularizer=1e-8):
    t = len(past)
    m = sum((1 - b1) * b1 ** (t - 1 - k) * g for k, g in enumerate(past))
    u = np.max([b2 ** (t - 1 - k) * np.abs(g) for k, g in enumerate(past)], axis=0)
    return m / (u + regularizer)


def adadelta(past, memory=0.95, regularizer=1e-6):
    steps = []
    for t in range(1, len(past) + 1):
        E = sum((1 - memory) * memory ** (t - 1 - k) * g**2 for k, g in enumerate(past[:t]))
        X = sum((1 - memory) * memory ** (t - 2 - k) * A**2 for k, A in enumerate(steps))
        steps.append(np.sqrt(X + regularizer) / np.sqrt(E + regularizer) * past[t - 1])
    return steps[-1]


@pytest.mark.parametrize(("kind", "reference"), [(ASGLD, asgld), (AdaMaxSGLD, adamax), (AdadeltaSGLD, adadelta)])
def test_path_is_that_of_the_published_update(kind, reference):
    generator = torch.Generator().manual_seed(0)
    noises = [torch.randn(1, 3, generator=generator, dtype=torch.float64) for _ in range(12)]
    potential, sampler = Quadratic(CURVATURE, n_data=N), kind(bias_factor=0.3)
    state = sampler.init(torch.ones(1, 3, dtype=torch.float64), potential, RecordedNoise(), CONTROL)
    theta, past = np.ones(3), []
    for noise in noises:
        g = CURVATURE.numpy() @ theta
        drift = g + 0.3 * N * (reference(past) if past else 0.0)
        theta = theta - 0.03 * drift + np.sqrt(2 * 0.03 * 0.8) * noise[0].numpy()
        past.append(g)
        state = sampler.step(state, potential, RecordedNoise([noise]), CONTROL)
        np.testing.assert_allclose(state.theta[0].numpy(), theta, rtol=1e-10)


def moved(sampler, potential, start, n_steps=20):
    noise = BlockNoise(noise_generators((3,), range(2), torch.device("cpu")))
    state = sampler.init(start, potential, noise, CONTROL)
    for _ in range(n_steps):
        state = sampler.step(state, potential, noise, CONTROL)
    return state.theta


def test_full_matrix_of_one_parameter_is_the_diagonal_form():
    start = torch.randn(5, 1, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    full, diagonal = (moved(ASGLD(0.3, matrix=matrix), Quadratic(1.3), start) for matrix in ("full", "diagonal"))
    torch.testing.assert_close(full, diagonal, rtol=1e-10, atol=1e-12)


def test_full_matrix_drift_turns_with_the_coordinates_and_the_diagonal_one_does_not():
    Q = torch.linalg.qr(torch.randn(3, 3, generator=torch.Generator().manual_seed(1), dtype=torch.float64))[0]
    start = torch.ones(1, 3, dtype=torch.float64)

    def gap(matrix):
        still = Control(0.03, 0.0, adapt=True, collect=False)
        states = []
        for potential, where in ((Quadratic(CURVATURE), start), (Quadratic(Q.T @ CURVATURE @ Q), start @ Q)):
            sampler = ASGLD(0.3, matrix=matrix, regularizer=1e-3)
            state = sampler.init(where, potential, RecordedNoise(), still)
            for _ in range(20):
                state = sampler.step(state, potential, RecordedNoise(), still)
            states.append(state.theta)
        return (states[0] @ Q - states[1]).abs().max()

    assert gap("full") < 1e-10
    assert gap("diagonal") > 1e-3


def test_full_matrix_is_refused_for_many_parameters():
    with pytest.raises(ValueError, match=r"ASGLD.matrix='full' must be 'diagonal' for 300 parameters: 'full' is for at most 256"):
        moved(ASGLD(matrix="full"), Quadratic(1.0), torch.zeros(2, 300, dtype=torch.float64))


@pytest.mark.parametrize("kind", [ASGLD, AdaMaxSGLD, AdadeltaSGLD])
def test_preconditioned_drift_without_bias_is_the_preconditioner_bit_for_bit(kind):
    start = torch.randn(8, 30, generator=torch.Generator().manual_seed(0))
    G = PSGLD(decay=0.9, regularizer=0.1)
    assert torch.equal(moved(kind(0.0, preconditioner=G), Quadratic(1.3), start), moved(G, Quadratic(1.3), start))


def test_preconditioned_drift_is_scaled_as_a_whole():
    """theta' - theta = -eps G (g + a A) for noise 0, a = bias_factor N."""
    potential, still = Quadratic(CURVATURE, n_data=N), Control(0.03, 0.0, adapt=False, collect=False)
    sampler = ASGLD(0.3, preconditioner=PSGLD(regularizer=0.2))
    state = sampler.init(torch.ones(1, 3, dtype=torch.float64), potential, RecordedNoise(), still)
    state = state._replace(drift=torch.tensor([[0.5, -0.2, 0.1]], dtype=torch.float64))
    after = sampler.step(state, potential, RecordedNoise(), still)
    G = 1 / (0.2 + potential.grad(state.theta).abs() / N)
    torch.testing.assert_close(after.theta, state.theta - 0.03 * G * (potential.grad(state.theta) + 0.3 * N * state.drift))


def test_preconditioner_is_checked():
    with pytest.raises(ValueError, match=r"PSGLD\.decay=2.0"):
        ASGLD(preconditioner=PSGLD(decay=2.0)).check()
    with pytest.raises(ValueError, match=r"ASGLD\.preconditioner='psgld' must be a PSGLD object, or None"):
        ASGLD(preconditioner="psgld").check()


def test_preconditioner_is_frozen_when_adaptation_ends_unless_asked_for_always():
    start = torch.ones(4, 3, dtype=torch.float64)
    for adapt, frozen in (("burn_in", True), ("always", False)):
        for sampler in (PSGLD(adapt=adapt), ASGLD(preconditioner=PSGLD(adapt=adapt))):
            first = sampler.init(start, Quadratic(1.0), RecordedNoise(), Control(0.01, 1.0, True, False))
            after = sampler.step(first, Quadratic(2.0), RecordedNoise(), Control(0.01, 1.0, False, False))
            assert torch.equal(after.square, first.square) == frozen


def test_asgld_has_its_mean_field_law():
    """lambda = 1, eps = 0.05, tau = s2 = a = 1: variance 0.7884 as P grows, within 1 %."""

    class Noisy(Quadratic):
        def grad(self, theta):
            return theta + torch.randn(theta.shape, generator=generator, dtype=theta.dtype)

    generator = torch.Generator().manual_seed(0)
    sampler, control = ASGLD(bias_factor=1.0), Control(0.05, 1.0, False, False)
    noise = BlockNoise(noise_generators((0,), range(1), torch.device("cpu")))
    state = sampler.init(torch.zeros(1, 10_000, dtype=torch.float64), Noisy(1.0), noise, control)
    total = 0.0
    for step in range(4000):
        state = sampler.step(state, Noisy(1.0), noise, control)
        total += float(state.theta.square().mean()) if step >= 2000 else 0.0
    assert total / 2000 == pytest.approx(0.7884, rel=0.01)
