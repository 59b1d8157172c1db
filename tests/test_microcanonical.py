"""MCLMC: its kick is the exact flow, its energy error of the right order, its refreshment keeps the sphere, its law the target."""

import numpy as np
import pytest
import scipy.integrate
import torch
from laws import Quadratic

from sklearn_sgmcmc import kernels
from sklearn_sgmcmc._typing import Control
from sklearn_sgmcmc.noise import BlockNoise, noise_generators
from sklearn_sgmcmc.samplers import MCLMC
from sklearn_sgmcmc.samplers.microcanonical import kick
from sklearn_sgmcmc.sampling import sample

CPU = torch.device("cpu")


def vectors(seed, P=4, n=5):
    generator = torch.Generator().manual_seed(seed)
    u, g = (torch.randn(n, P, generator=generator, dtype=torch.float64) for _ in "ab")
    return u / u.norm(dim=1, keepdim=True), 3 * g


@pytest.mark.parametrize("tau", [0.5, 2.0])
def test_kick_is_the_flow_of_the_velocity_and_its_energy_the_integral_of_the_power(tau):
    """du/dt = -(I - u u^T) grad U / (tau (P - 1)); the kinetic energy (P - 1) k grows by dk/dt = -u grad U / (tau (P - 1))."""
    u, g = vectors(0)
    P, time = u.shape[1], 0.8
    for chain in range(len(u)):
        force = g[chain].numpy() / (tau * (P - 1))

        def flow(t, z, force=force):
            return np.append(-force + z[:-1] * (z[:-1] @ force), -z[:-1] @ force)

        end = scipy.integrate.solve_ivp(flow, (0, time), np.append(u[chain].numpy(), 0.0), rtol=1e-11, atol=1e-12).y[:, -1]
        turned, change = kick(u[chain : chain + 1], g[chain : chain + 1], time, tau)
        np.testing.assert_allclose(turned[0].numpy(), end[:-1], atol=1e-8)
        assert float(change) == pytest.approx((P - 1) * end[-1], abs=1e-8)


def test_volume_of_the_sphere_changes_by_the_kicks_kinetic_energy():
    """The Jacobian of u -> u' on the sphere is exp(-change of kinetic energy): with it the flow keeps exp(-U / tau) invariant."""
    u, g = vectors(1, n=1)
    basis = torch.linalg.svd(u)[2][1:]  # tangent at u

    def turned(v):
        w = u + v[None] @ basis
        return kick(w / w.norm(), g, 0.7, 1.0)[0][0]

    J = torch.autograd.functional.jacobian(turned, torch.zeros(3, dtype=torch.float64), vectorize=False)
    area = torch.linalg.det(J.T @ J).sqrt()
    assert float(area) == pytest.approx(float(torch.exp(-kick(u, g, 0.7, 1.0)[1])), rel=1e-10)


def test_strong_kick_turns_downhill_without_overflow():
    u, g = vectors(2)
    turned, change = kick(u, 1e12 * g, 1.0, 1.0)
    torch.testing.assert_close(turned, -g / g.norm(dim=1, keepdim=True))
    assert torch.isfinite(change).all()


@pytest.mark.parametrize("size", [0.0, 1e-310, 1e-200, 1e-100])
def test_kick_without_force_does_nothing(size):
    u, g = vectors(3)
    turned, change = kick(u, size * g, 1.0, 1.0)
    torch.testing.assert_close(turned, u)
    torch.testing.assert_close(change, torch.zeros_like(change), atol=1e-15, rtol=0)


@pytest.mark.parametrize("compiled", [True, False])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_kick_straight_against_the_force_keeps_the_length(dtype, compiled, monkeypatch):
    """There u stands still, unstably: weak kicks leave it, and what strong ones make of its rounding has length one as well."""
    if not compiled:
        monkeypatch.setattr(kernels, "velocity", lambda dtype: None)
    P = 4
    u = torch.nn.functional.normalize(vectors(4)[0], dim=1).to(dtype)
    for d in (0.01, 1.0, 5.0, 10.0, 20.0, 50.0, 400.0, 1e4):
        turned, change = kick(u, 7.0 * u, d * (P - 1) / 7.0, 1.0)
        lengths = turned.double().norm(dim=1)
        torch.testing.assert_close(lengths, torch.ones_like(lengths), rtol=0, atol=2e-6)
        assert torch.isfinite(change).all()
        if d <= 1.0:
            torch.testing.assert_close(turned, u, rtol=0, atol=1e-5)
            torch.testing.assert_close(change, torch.full_like(change, -d * (P - 1)), rtol=1e-5, atol=0)


def test_chain_in_a_well_far_too_steep_for_its_step_stays_finite():
    """Strong kicks straight downhill, and over the bottom: the next force points straight back."""
    theta = torch.randn(32, 2, generator=torch.Generator().manual_seed(0), dtype=torch.float64) * torch.tensor([0.1, 1.0])
    sampler = MCLMC(energy_error=None)
    draws = sample(lambda x: 0.5 * (100 * x[:, 0] ** 2 + x[:, 1] ** 2), theta, sampler=sampler, step_size=1.0, n_steps=2000)
    assert draws.values.abs().max() < 1e4


class Quartic(Quadratic):
    """U = |theta|^2 / 2 + sum theta^4 / 4."""

    def __init__(self):
        super().__init__(1.0)

    def value(self, theta):
        return (0.5 * theta.square() + theta.pow(4) / 4).sum(1)

    def grad(self, theta):
        return theta + theta.pow(3)


def energy_error(eps, n_steps, memory=1e12):
    """Return |energy change| of one chain over n_steps without refreshment."""
    sampler, control = MCLMC(energy_error=None, memory=memory), Control(eps, 1.0, False, False)
    noise = BlockNoise(noise_generators((1,), range(1), CPU))
    state = sampler.init(torch.ones(1, 4, dtype=torch.float64), Quartic(), noise, control)
    h, total = (4 * eps) ** 0.5, 0.0
    for _ in range(n_steps):
        after = sampler.step(state, Quartic(), noise, control)
        u, first = kick(state.velocity, state.gradient, 0.5 * h, 1.0)
        _, second = kick(u, after.gradient, 0.5 * h, 1.0)
        total += float(after.value - state.value + first + second)
        state = after
    return abs(total)


def test_energy_error_over_a_fixed_time_is_of_second_order_in_the_time_step():
    """eps / 4 halves the time step: the error falls to a quarter."""
    assert energy_error(1e-3, 20) / energy_error(2.5e-4, 40) == pytest.approx(4, rel=0.1)


@pytest.mark.parametrize("memory", [1.0, 50.0])
def test_refreshment_keeps_the_velocity_on_the_sphere_and_forgets_it_in_memory_steps(memory):
    """Without force the mean cosine after k steps is exp(-k / memory), exactly as P grows."""
    P, n_steps = 20_000, 10
    sampler, control = MCLMC(energy_error=None, memory=memory), Control(1e-3, 1.0, False, False)
    noise = BlockNoise(noise_generators((0,), range(1), CPU))
    state = sampler.init(torch.zeros(4, P, dtype=torch.float64), Quadratic(0.0), noise, control)
    first = state.velocity
    for _ in range(n_steps):
        state = sampler.step(state, Quadratic(0.0), noise, control)
    torch.testing.assert_close(state.velocity.norm(dim=1), torch.ones(4, dtype=torch.float64))
    cosine = (first * state.velocity).sum(1)
    np.testing.assert_allclose(cosine, np.exp(-n_steps / memory), atol=5 * P**-0.5)


@pytest.mark.parametrize(("h", "expected"), [(1.0, 1.001), (3.0, 1.007)])
def test_standard_gaussian_in_100_dimensions_has_the_reference_variance(h, expected):
    """|z| < 5 with the spread over 256 independent chains."""
    P, tau = 100, 1.7
    sampler, control = MCLMC(energy_error=None, memory=10.0), Control(h * h / (P * tau), tau, False, False)
    noise = BlockNoise(noise_generators((0,), range(64), CPU))
    start = tau**0.5 * torch.randn(256, P, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    state = sampler.init(start, Quadratic(1.0), noise, control)
    total = torch.zeros(256, dtype=torch.float64)
    for _ in range(600):
        state = sampler.step(state, Quadratic(1.0), noise, control)
        total += state.theta.square().mean(1) / 600 / tau
    z = (total.mean() - expected) / (total.std() / 16)
    assert abs(z) < 5
    assert total.std() / 16 < 0.002


@pytest.mark.parametrize("target", [0.02, 0.2])
def test_step_is_adapted_to_the_energy_error_asked_for(target):
    P = 50
    sampler, adapting = MCLMC(energy_error=target, memory=20.0), Control(1e-5, 1.0, True, False)
    noise = BlockNoise(noise_generators((0,), range(8), CPU))
    state = sampler.init(
        torch.randn(32, P, generator=torch.Generator().manual_seed(0), dtype=torch.float64), Quartic(), noise, adapting
    )
    for _ in range(600):
        state = sampler.step(state, Quartic(), noise, adapting)
    changes, frozen = [], Control(1e-5, 1.0, False, False)
    for _ in range(200):
        after = sampler.step(state, Quartic(), noise, frozen)
        h = (P * 1e-5 * state.step_factor).sqrt()
        u, first = kick(state.velocity, state.gradient, 0.5 * h, 1.0)
        changes.append(after.value - state.value + first + kick(u, after.gradient, 0.5 * h, 1.0)[1])
        state = after
    of_chains = torch.stack(changes).square().mean(0)[:, 0].sort().values
    rms = (
        of_chains[:-1].mean().sqrt()
    )  # a frozen step takes no move back: one of 90 in 6,400 outweighs all others (8 seeds looked at)
    assert float(rms) == pytest.approx(target * P**0.5, rel=0.25)  # each chain's is set by about 100 / memory independent squares


def test_a_move_that_is_not_finite_is_taken_back_and_the_step_cut():
    class Cliff(Quadratic):
        def value(self, theta):
            return torch.where(theta.abs().amax(1) > 2, torch.nan, super().value(theta))

    control = Control(100.0, 1.0, True, False)
    noise = BlockNoise(noise_generators((0,), range(1), CPU))
    first = MCLMC().init(torch.ones(4, 3, dtype=torch.float64), Cliff(1.0), noise, control)
    after = MCLMC().step(first, Cliff(1.0), noise, control)
    assert torch.equal(after.theta, first.theta)
    assert (after.step_factor == 0.5).all()
