"""Thermostats: the mean-field law of the live friction, and where it has none."""

import numpy as np
import pytest
import torch
from laws import Quadratic, RecordedNoise

from sklearn_sgmcmc._typing import Control
from sklearn_sgmcmc.noise import BlockNoise, noise_generators
from sklearn_sgmcmc.samplers import MSGNHT, SGNHT, Santa

P = 10_000


class Noisy(Quadratic):
    """lam theta plus independent noise of variance s2 at every call."""

    def __init__(self, lam, s2):
        super().__init__(lam)
        self.sd = s2**0.5
        self.generator = torch.Generator().manual_seed(0)

    def grad(self, theta):
        return self.curvature * theta + self.sd * torch.randn(theta.shape, generator=self.generator, dtype=theta.dtype)


def averages(sampler, potential, control, n_steps, burn_in, change=lambda state: state, start=0.0):
    """Return the time averages of theta^2 and of the friction over one chain of P parameters."""
    noise = BlockNoise(noise_generators((0,), range(1), torch.device("cpu")))
    theta = start * torch.randn(1, P, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    state = change(sampler.init(theta, potential, noise, control))
    squares, frictions = [], []
    for step in range(n_steps):
        state = sampler.step(state, potential, noise, control)
        if step >= burn_in:
            squares.append(float(state.theta.square().mean()))
            frictions.append(float(state.friction.mean()))
    return np.mean(squares), np.mean(frictions)


def smaller_root(h, right):
    """Return the smaller root of alpha (4 - 2 alpha - h) = right."""
    b = 4 - h
    return (b - (b * b - 8 * right) ** 0.5) / 4


def test_sgnht_has_its_mean_field_law():
    """alpha ends at the smaller root of alpha (4 - 2 alpha - h) = 4 a + 2 eps s2 / tau, as Var theta does at its law."""
    lam, eps, tau, s2, a = 1.0, 0.05, 0.8, 3.0, 0.05
    square, friction = averages(SGNHT(a, thermostat_rate=0.2), Noisy(lam, s2), Control(eps, tau, False, False), 3000, 1000)
    alpha = smaller_root(eps * lam, 4 * a + 2 * eps * s2 / tau)
    assert friction == pytest.approx(alpha, rel=0.01)
    assert square == pytest.approx(tau / lam * (1 - alpha / 2), rel=0.01)


@pytest.mark.parametrize(("scheme", "expected"), [("euler", 0.992), ("sss", 1.002)])
def test_santa_at_fixed_metric_has_the_reference_variance(scheme, expected):
    """G = 0.8, eps = 1e-3, one live thermostat per parameter, lambda = tau = 1."""
    G = 0.8
    square = (G**-2 - 0.01) ** 2
    change = lambda state: state._replace(  # noqa: E731
        square=torch.full_like(state.theta, square),
        metric=torch.full_like(state.theta, G),
        friction=torch.full_like(state.theta, 1e-3**0.5 * G),
    )
    settings = {"n_steps": 3000, "burn_in": 500, "change": change, "start": 1.0}
    found, _ = averages(Santa(scheme, noise_level=None), Quadratic(1.0), Control(1e-3, 1.0, False, False), **settings)
    assert found == pytest.approx(expected, rel=0.01)


@pytest.mark.parametrize("sampler", [SGNHT(), MSGNHT(), Santa(), Santa("sss")], ids=["sgnht", "msgnht", "santa", "santa sss"])
def test_thermostat_stands_still_at_zero_temperature(sampler):
    control, potential = Control(0.01, 0.0, False, False), Quadratic(1.0)
    noise = BlockNoise(noise_generators((0,), range(1), torch.device("cpu")))
    first = state = sampler.init(torch.ones(4, 3, dtype=torch.float64), potential, noise, control)
    for _ in range(2000):
        state = sampler.step(state, potential, noise, control)
    assert torch.equal(state.friction, first.friction)
    assert state.theta.abs().max() < 0.1


@pytest.mark.parametrize(("s2", "diverges"), [(0.5, False), (0.9, True), (2.0, True)])
def test_a_thermostat_runs_away_where_no_root_exists(s2, diverges):
    """At a = 0.05, h = 0.05 the root exists for 2 a + eps s2 / tau <= (4 - h)^2 / 16 = 0.975; s2 is that ratio here."""
    sampler, control, potential = SGNHT(0.05), Control(0.05, 1.0, False, False), Noisy(1.0, s2 / 0.05)
    noise = BlockNoise(noise_generators((0,), range(1), torch.device("cpu")))
    state = sampler.init(torch.zeros(1, P // 5, dtype=torch.float64), potential, noise, control)
    ran_away = False
    for _ in range(2000):
        state = sampler.step(state, potential, noise, control)
        ran_away |= bool(sampler.runaway(state))
    assert ran_away == diverges


def test_santa_starts_cold_at_the_friction_of_an_optimiser_and_at_temperature_otherwise():
    """alpha falls by eps tau a step at most: from sqrt(eps) C it takes C / (sqrt(eps) tau) steps."""
    state = Santa(initial_friction=10.0).init(
        torch.ones(1, 2, dtype=torch.float64), Quadratic(1.0), RecordedNoise(), Control(1e-4, 1.0, True, False)
    )
    assert state.friction.tolist() == [[0.1, 0.1]]
    for level in (0.2, None):
        control = Control(1e-4, 1.0, True, False)
        state = Santa(noise_level=level).init(torch.ones(1, 2, dtype=torch.float64), Quadratic(1.0), RecordedNoise(), control)
        torch.testing.assert_close(state.friction, 0.01 * state.metric if level is None else 0.2 * torch.ones_like(state.theta))


def test_metric_correction_of_santa_is_the_printed_fraction():
    """u += eps tau (1 - G_old / G) / u_old."""
    eps, tau, potential = 0.01, 0.7, Quadratic(1.0)
    control = Control(eps, tau, adapt=True, collect=False)
    one = torch.ones(1, 2, dtype=torch.float64)
    with_it, without = (Santa(decay=0.5, metric_correction=flag) for flag in (True, False))
    state = with_it.init(2 * one, potential, RecordedNoise([0.5 * one]), control)._replace(metric=0.3 * one)
    after = [sampler.step(state, potential, RecordedNoise(), control) for sampler in (with_it, without)]
    u_old, gained = eps**0.5 * state.momentum, eps**0.5 * (after[0].momentum - after[1].momentum)
    torch.testing.assert_close(gained, eps * tau * (1 - 0.3 / after[0].metric) / u_old)
