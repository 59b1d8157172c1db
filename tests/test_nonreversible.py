"""Non-reversible samplers: exact covariances, and the derivatives by which S adapts."""

import itertools

import numpy as np
import pytest
import torch
from laws import Quadratic, RecordedNoise, covariance, spectral_radius
from table import TABLE, held, random_settings

from sklearn_sgmcmc._typing import Control
from sklearn_sgmcmc.noise import BlockNoise, noise_generators
from sklearn_sgmcmc.samplers import NonReversibleHessian, NonReversibleSGLD, NonReversibleSPSA, NonReversibleSPSA2
from sklearn_sgmcmc.samplers.adaptive_nonreversible import SkewPairs, free_pairs
from sklearn_sgmcmc.samplers.nonreversible import apply_tridiagonal

TURN = torch.tensor([[0.0, -1.0], [1.0, 0.0]], dtype=torch.float64)
CPU = torch.device("cpu")
ADAPTING = Control(0.05, 0.7, adapt=True, collect=False)
FROZEN = Control(0.05, 0.7, adapt=False, collect=False)


@pytest.mark.parametrize(("s2", "expected"), [(0.0, (0.593878, -0.023059, 0.166825)), (0.5, (0.65778, -0.02554, 0.18477))])
def test_covariance_has_the_reference_values(s2, expected):
    found = covariance(
        NonReversibleSGLD(skew=1.3 * TURN),
        curvature=torch.diag(torch.tensor([1.0, 4.0], dtype=torch.float64)),
        step_size=0.08,
        temperature=0.5,
        gradient_variance=s2,
        held={"skew": 0.0},
    )
    assert (found[0, 0], found[0, 1], found[1, 1]) == pytest.approx(expected, abs=6e-6)


@pytest.mark.parametrize("index", range(10))
@pytest.mark.parametrize("name", [name for name in TABLE if name.startswith("nr_sgld") and "S = 0" not in name])
def test_covariance_solves_its_equation(name, index):
    """B P + P B^T - eps B P B^T = 2 tau I + eps s2 (I + S)(I + S)^T, B = (I + S) L, for S held, whatever adapted it before."""
    lam, eps, tau, s2, rng = random_settings(index)
    sampler = TABLE[name].make(rng)
    L = lam * torch.tensor([[1.0, 0.3], [0.3, rng.uniform(0.5, 1.5)]], dtype=torch.float64)
    fields = held(TABLE[name], sampler) | {"skew": rng.uniform(-1.5, 1.5)}
    found = covariance(sampler, curvature=L, step_size=eps, temperature=tau, gradient_variance=s2, held=fields)[:2, :2]
    turned = np.eye(2) + fields["skew"] * TURN.numpy()
    B = turned @ L.numpy()
    right = 2 * tau * np.eye(2) + eps * s2 * turned @ turned.T
    np.testing.assert_allclose(B @ found + found @ B.T - eps * B @ found @ B.T, right, rtol=1e-6, atol=1e-9)


@pytest.mark.parametrize("index", range(10))
def test_law_and_stability_edge_on_a_round_gaussian(index):
    lam, eps, tau, s2, rng = random_settings(index)
    s = rng.uniform(-1.5, 1.5)
    sampler = NonReversibleSGLD(skew=s * TURN)
    settings = {"temperature": tau, "held": {"skew": 0.0}, "curvature": lam * torch.eye(2, dtype=torch.float64)}
    found = covariance(sampler, step_size=eps, gradient_variance=s2, **settings)
    factor = 1 + s * s
    expected = (2 * tau + eps * s2 * factor) / (lam * (2 - eps * lam * factor))
    np.testing.assert_allclose(found, expected * np.eye(2), rtol=1e-6, atol=1e-9)
    for sign in (-1, 1):
        radius = spectral_radius(sampler, step_size=sampler.stability_limit / lam * (1 + sign * 1e-6), **settings)
        assert (radius > 1) == (sign > 0)


@pytest.mark.parametrize("s", [0.5, 1.0, 1.5])
def test_relaxation_is_at_best_half_the_trace(s):
    """exp(-t B) decays at tr(L) / 2 for s^2 >= (l1 - l2)^2 / (4 l1 l2), and slower below."""
    l1, l2, eps = 1.0, 4.0, 1e-5
    found = spectral_radius(
        NonReversibleSGLD(skew=s * TURN),
        curvature=torch.diag(torch.tensor([l1, l2], dtype=torch.float64)),
        step_size=eps,
        temperature=1.0,
        held={"skew": 0.0},
    )
    rate = (1 - found) / eps
    edge = (l1 - l2) ** 2 / (4 * l1 * l2)
    assert rate == pytest.approx((l1 + l2) / 2, rel=1e-3) if s * s >= edge else rate < (l1 + l2) / 2 * 0.99


def test_tridiagonal_skew_equals_its_dense_form():
    s, v = torch.randn(3, 6, dtype=torch.float64), torch.randn(3, 7, dtype=torch.float64)
    dense = torch.diag_embed(s, offset=-1) - torch.diag_embed(s, offset=1)
    torch.testing.assert_close(apply_tridiagonal(s, v), (dense @ v[..., None])[..., 0])


@pytest.mark.parametrize("n_pairs", [1, 3, 6, 10, 21, 50])
def test_free_pairs_are_distinct_below_the_diagonal_and_as_many_as_asked_for(n_pairs):
    rows, columns = free_pairs(7, n_pairs, CPU)
    assert len(set(zip(rows.tolist(), columns.tolist(), strict=True))) == min(n_pairs, 21)
    assert (columns < rows).all()
    assert ((rows - columns == 1).all()) == (n_pairs <= 6)


def test_few_free_pairs_are_spread_over_the_parameters():
    assert free_pairs(101, 4, CPU)[1].tolist() == [12, 37, 62, 87]


def test_few_free_pairs_of_many_parameters_cost_nothing():
    assert len(free_pairs(10**9, 4, CPU)[0]) == 4


@pytest.mark.parametrize("n_pairs", [2, 6, 15])
def test_pairs_multiply_as_their_dense_skew_matrix(n_pairs):
    pairs = SkewPairs(*free_pairs(7, n_pairs, CPU))
    values, v = torch.randn(3, n_pairs, dtype=torch.float64), torch.randn(3, 7, dtype=torch.float64)
    dense = torch.zeros(3, 7, 7, dtype=torch.float64)
    dense[:, pairs.rows, pairs.columns], dense[:, pairs.columns, pairs.rows] = values, -values
    torch.testing.assert_close(pairs.times(values, v), (dense @ v[..., None])[..., 0])


class Quartic:
    """U = theta^T L theta / 2 + sum theta^4 / 4, L not diagonal: its Hessian varies."""

    n_data = 1.0
    L = torch.tensor([[2.0, 0.5, 0.1], [0.5, 1.0, -0.3], [0.1, -0.3, 1.5]], dtype=torch.float64)

    def value(self, theta):
        return 0.5 * (theta * (theta @ self.L)).sum(1) + theta.pow(4).sum(1) / 4

    def grad(self, theta):
        return theta @ self.L + theta.pow(3)

    def hvp(self, theta, vectors):
        return vectors @ self.L + 3 * theta[:, None].square() * vectors

    def fresh(self):
        return self


def path(skew, noises, start):
    """Return theta after the noises, driven with a fixed S."""
    sampler = NonReversibleHessian(skew_scale=1.0, skew_limit=10.0, skew_rate=0.0, n_pairs=3)
    state = sampler.init(start, Quartic(), RecordedNoise([skew]), ADAPTING)
    for noise in noises:
        state = sampler.step(state, Quartic(), RecordedNoise([noise]), ADAPTING)
    return state


def test_sensitivity_is_the_finite_difference_of_the_path_in_s_with_frozen_noise():
    generator = torch.Generator().manual_seed(0)
    start, skew = (torch.randn(1, 3, generator=generator, dtype=torch.float64) for _ in "ab")
    noises = [torch.randn(1, 3, generator=generator, dtype=torch.float64) for _ in range(15)]
    D = path(skew, noises, start).sensitivity
    for k in range(3):
        shift = 1e-5 * torch.eye(3, dtype=torch.float64)[k]
        difference = (path(skew + shift, noises, start).theta - path(skew - shift, noises, start).theta) / 2e-5
        torch.testing.assert_close(D[:, k], difference, rtol=1e-7, atol=1e-9)


def test_hessian_step_of_s_follows_minus_the_derivative_of_the_potential():
    sampler = NonReversibleHessian(skew_rate=0.3, n_pairs=3)
    state = sampler.init(torch.ones(1, 3, dtype=torch.float64), Quartic(), RecordedNoise(), ADAPTING)
    state = state._replace(sensitivity=torch.randn(1, 3, 3, generator=torch.Generator().manual_seed(1), dtype=torch.float64))
    after = sampler.step(state, Quartic(), RecordedNoise(), ADAPTING)
    slope = torch.einsum("cp,cfp->cf", Quartic().grad(state.theta), state.sensitivity)
    torch.testing.assert_close(after.skew, state.skew - 0.3 * 0.05 * slope)


@pytest.mark.parametrize("sampler", [NonReversibleSPSA(perturbation=1e-4), NonReversibleSPSA2(perturbation=1e-4, n_inner=4)])
def test_perturbation_estimate_averaged_over_all_signs_is_the_derivative_of_the_potential(sampler):
    """The two chains' difference is linear in Delta for small mu: its mean over all Delta = +-1 is the finite difference in S."""
    generator = torch.Generator().manual_seed(2)
    start = torch.randn(1, 3, generator=generator, dtype=torch.float64)
    skew = torch.tensor([[0.4, -0.8]], dtype=torch.float64)
    noise = torch.randn(1, 3, generator=generator, dtype=torch.float64)
    inner = 4 if isinstance(sampler, NonReversibleSPSA2) else 1
    eps = ADAPTING.step_size

    def moved(sign):
        recorded = RecordedNoise([sign, *[noise] * inner])
        template = sampler.init(start, Quartic(), RecordedNoise([skew / sampler.skew_scale]), ADAPTING)
        after = sampler.adapting_step(template, Quartic(), recorded, ADAPTING)
        return (after.skew - template.skew) / (-sampler.skew_rate * eps)

    estimates = torch.cat([moved(torch.tensor([signs], dtype=torch.float64)) for signs in itertools.product([-1.0, 1.0], repeat=2)])

    def total(s):
        theta, sum_of_values = start, 0.0
        for _ in range(inner):
            g = Quartic().grad(theta)
            pairs = SkewPairs(*free_pairs(3, 2, CPU))
            theta = theta - eps * (g + pairs.times(s, g)) + (2 * eps * ADAPTING.temperature) ** 0.5 * noise
            sum_of_values = sum_of_values + Quartic().value(theta)
        return sum_of_values

    shifts = 1e-5 * torch.eye(2, dtype=torch.float64)
    expected = torch.cat([(total(skew + shift) - total(skew - shift)) / 2e-5 for shift in shifts])
    torch.testing.assert_close(estimates.mean(0), expected, rtol=1e-5, atol=1e-8)


@pytest.mark.parametrize("kind", [NonReversibleHessian, NonReversibleSPSA, NonReversibleSPSA2])
def test_s_is_frozen_when_adaptation_ends_unless_asked_for_always(kind):
    noise = BlockNoise(noise_generators((0,), range(1), CPU))
    for adapt, moves in (("burn_in", False), ("always", True)):
        sampler = kind(adapt=adapt)
        state = sampler.init(torch.ones(4, 3, dtype=torch.float64), Quartic(), noise, ADAPTING)
        state = sampler.step(state, Quartic(), noise, ADAPTING)
        after = sampler.step(state, Quartic(), noise, FROZEN)
        assert torch.equal(after.skew, state.skew) != moves


@pytest.mark.parametrize("kind", [NonReversibleHessian, NonReversibleSPSA, NonReversibleSPSA2])
def test_s_stays_within_its_limit(kind):
    noise = BlockNoise(noise_generators((0,), range(1), CPU))
    sampler = kind(skew_scale=5.0, skew_rate=1e4, skew_limit=0.7)
    state = sampler.init(torch.ones(4, 3, dtype=torch.float64), Quartic(), noise, ADAPTING)
    for _ in range(20):
        state = sampler.step(state, Quartic(), noise, ADAPTING)
        assert state.skew.abs().max() <= 0.7


def test_the_two_fast_chains_share_noise_and_minibatch():
    """With mu = 0 they never part."""
    noise = BlockNoise(noise_generators((0,), range(1), CPU))
    sampler = NonReversibleSPSA(perturbation=1e-300)
    state = sampler.init(torch.ones(4, 3, dtype=torch.float64), Quartic(), noise, ADAPTING)
    for _ in range(10):
        state = sampler.step(state, Quartic(), noise, ADAPTING)
    assert torch.equal(state.theta, state.minus)


def test_fast_chains_take_fresh_minibatches():
    class Counting(Quadratic):
        seen = 0

        def fresh(self):
            Counting.seen += 1
            return self

    sampler = NonReversibleSPSA2(n_inner=7)
    start = torch.ones(2, 3, dtype=torch.float64)
    state = sampler.init(start, Counting(1.0), RecordedNoise(), ADAPTING)
    sampler.step(state, Counting(1.0), RecordedNoise(), ADAPTING)
    assert Counting.seen == 7
