"""The shipped samplers have the laws that they are documented to have."""

import inspect

import numpy as np
import pytest
import torch
from laws import Quadratic, RecordedNoise, covariance, spectral_radius, variance

from sklearn_sgmcmc._typing import Control
from sklearn_sgmcmc.noise import BlockNoise, noise_generators
from sklearn_sgmcmc.samplers import (
    ASGLD,
    BAOAB,
    MALA,
    MSGLD,
    MSGNHT,
    PSGLD,
    SAMPLERS,
    SGD,
    SGHMC,
    SGLD,
    SGNHT,
    AdadeltaSGLD,
    Adam,
    AdaMaxSGLD,
    NonReversibleSGLD,
)


def arma(p1, p2, psi, q):
    """Return the variance of x_t = p1 x_{t-1} + p2 x_{t-2} + v_t + psi v_{t-1}, Var v = q."""
    return q * ((1 + psi**2) * (1 - p2) + 2 * psi * p1) / ((1 + p2) * ((1 - p2) ** 2 - p1**2))


def sgld_law(sampler, lam, eps, tau, s2):
    return (2 * tau + eps * s2) / (lam * (2 - eps * lam))


def sghmc_law(sampler, lam, eps, tau, s2):
    f, h = sampler.friction, eps * lam
    q = 2 * f * eps * tau + eps**2 * (s2 - sampler.gradient_noise_variance)
    return q * (2 - f) / (f * h * (4 - 2 * f - h))


def msgld_law(sampler, lam, eps, tau, s2):
    a, b = sampler.bias_factor, sampler.smoothing
    if sampler.variant == "rescaled":  # the printed form at eps / (1 + a) with the noise of eps
        eps, tau, s2 = eps / (1 + a), tau * (1 + a), s2
    h = eps * lam
    p1, p2 = 1 + b - h, -(b * (1 - h) + a * h * (1 - b))
    injected = arma(p1, p2, -b, 2 * eps * tau) + arma(p1, p2, -(b - a * (1 - b)), eps**2 * s2)
    if sampler.variant == "recipe":  # (1 - b) zeta sqrt(2 tau / (a eps)) enters m, and eps a m enters theta one step later
        injected += arma(p1, p2, 0.0, (eps * a * (1 - b)) ** 2 * 2 * tau / (a * eps))
    return injected


def baoab_law(sampler, lam, eps, tau, s2):
    assert s2 == 0
    return tau / lam


def obabo_law(sampler, lam, eps, tau, s2):
    assert s2 == 0
    return tau / (lam * (1 - eps * lam / 4))


ALPHA, SQUARE = 0.3, 0.2
"""Values at which the thermostat's friction and the preconditioner's average are held."""


def thermostat_law(sampler, lam, eps, tau, s2):
    h = eps * lam
    q = 2 * sampler.noise_level * eps * tau + eps**2 * s2
    return q * (2 - ALPHA) / (ALPHA * h * (4 - 2 * ALPHA - h))


def psgld_law(sampler, lam, eps, tau, s2):
    G = 1 / (sampler.regularizer + SQUARE**0.5)
    return (2 * tau + eps * s2 * G) / (lam * (2 - eps * G * lam))


def random_settings(index):
    rng = np.random.RandomState(index)
    lam = rng.uniform(0.5, 3)
    return lam, rng.uniform(0.01, 0.3) / lam, rng.uniform(0.1, 2), rng.uniform(0, 2), rng


TABLE = {
    "sgld": (lambda rng: SGLD(), sgld_law),
    "sghmc": (lambda rng: SGHMC(friction=rng.uniform(0.05, 1)), sghmc_law),
    "sghmc, noise estimated": (
        lambda rng: SGHMC(friction=rng.uniform(0.5, 1), gradient_noise_variance=rng.uniform(0, 0.5)),
        sghmc_law,
    ),
    "msgld printed": (lambda rng: MSGLD(bias_factor=rng.uniform(0, 3), smoothing=rng.uniform(0, 0.9)), msgld_law),
    "msgld rescaled": (lambda rng: MSGLD(rng.uniform(0, 3), rng.uniform(0, 0.9), "rescaled"), msgld_law),
    "msgld recipe": (lambda rng: MSGLD(rng.uniform(0.1, 3), rng.uniform(0, 0.9), "recipe"), msgld_law),
    "nr_sgld, S = 0": (lambda rng: NonReversibleSGLD(skew_scale=0.0), sgld_law),
    "baoab": (lambda rng: BAOAB(rng.uniform(0.05, 3)), baoab_law),
    "obabo": (lambda rng: BAOAB(rng.uniform(0.05, 3), "OBABO"), obabo_law),
    "sgnht, held": (lambda rng: SGNHT(rng.uniform(0.01, 0.4), thermostat_rate=0.0), thermostat_law),
    "msgnht, held": (lambda rng: MSGNHT(rng.uniform(0.01, 0.4), thermostat_rate=0.0), thermostat_law),
    "psgld, held": (lambda rng: PSGLD(regularizer=rng.uniform(0.01, 0.5)), psgld_law),
}
HELD = {
    "sgnht, held": {"friction": ALPHA},
    "msgnht, held": {"friction": ALPHA},
    "psgld, held": {"square": SQUARE},
    "nr_sgld, S = 0": {"skew": 0.0},
}
EXACT_GRADIENT = ("baoab", "obabo")
"""Rows whose closed form is for exact gradients."""


@pytest.mark.parametrize("index", range(10))
@pytest.mark.parametrize("row", TABLE)
def test_variance_on_a_gaussian_equals_the_closed_form(row, index):
    make, law = TABLE[row]
    lam, eps, tau, s2, rng = random_settings(index)
    sampler = make(rng)
    s2 = 0.0 if row in EXACT_GRADIENT else s2
    found = variance(sampler, curvature=lam, step_size=eps, temperature=tau, gradient_variance=s2, held=HELD.get(row))
    assert found == pytest.approx(law(sampler, lam, eps, tau, s2), rel=1e-6)


@pytest.mark.parametrize(
    ("a", "b", "s2", "expected"), [(1, 0.9, 0, 0.291130), (1, 0.9, 1, 0.31123), (3, 0.5, 1, 0.23750), (10, 0.99, 1, 0.39831)]
)
def test_printed_msgld_has_the_reference_variances(a, b, s2, expected):
    found = variance(MSGLD(a, b), curvature=2.0, step_size=0.05, temperature=0.7, gradient_variance=s2)
    assert found == pytest.approx(expected, abs=6e-6)


@pytest.mark.parametrize(("a", "b", "expected"), [(1, 0.9, 1.0015), (10, 0.9, 1.0108), (10, 0.99, 1.0097)])
def test_recipe_msgld_is_unbiased_at_small_step(a, b, expected):
    assert variance(MSGLD(a, b, "recipe"), curvature=1.0, step_size=1e-3, temperature=1.0) == pytest.approx(expected, abs=6e-5)


@pytest.mark.parametrize("a", [0.5, 1.0, 10.0])
def test_printed_msgld_targets_temperature_over_one_plus_a(a):
    found = variance(MSGLD(a, 0.9), curvature=1.0, step_size=1e-6, temperature=1.0)
    assert found == pytest.approx(MSGLD(a).effective_temperature(1.0), rel=1e-3)


@pytest.mark.parametrize("sampler", [SGLD(), SGHMC(), MSGLD(variant="recipe"), MSGLD(bias_factor=0.0)])
def test_small_step_law_is_the_target(sampler):
    assert variance(sampler, curvature=1.0, step_size=1e-5, temperature=0.7) == pytest.approx(0.7, rel=1e-3)


@pytest.mark.parametrize("index", range(10))
def test_momentum_variance_of_sghmc_equals_the_closed_form(index):
    """Var v = 2 q / [f (4 - 2 f - h)] for v = sqrt(eps) r."""
    lam, eps, tau, s2, rng = random_settings(index)
    f = rng.uniform(0.05, 1)
    q = 2 * f * eps * tau + eps**2 * s2
    found = covariance(SGHMC(f), curvature=lam, step_size=eps, temperature=tau, gradient_variance=s2)[1, 1]
    assert found == pytest.approx(2 * q / (eps * f * (4 - 2 * f - eps * lam)), rel=1e-6)


@pytest.mark.parametrize("index", range(10))
@pytest.mark.parametrize("row", TABLE)
def test_stability_limit_is_the_edge_of_the_spectral_radius(row, index):
    sampler = TABLE[row][0](random_settings(index)[-1])
    edge = sampler.stability_limit
    if edge is None or "held" in row:  # psgld's edge is in units of G, a thermostat's moves with its friction
        edge = 4 - 2 * ALPHA if "nht" in row else 2 * (sampler.regularizer + SQUARE**0.5)
    for curvature in (1.0, 7.0):
        inside, outside = (edge * (1 + sign * 1e-6) / curvature for sign in (-1, 1))
        assert spectral_radius(sampler, curvature=curvature, step_size=inside, temperature=1.0, held=HELD.get(row)) < 1
        assert spectral_radius(sampler, curvature=curvature, step_size=outside, temperature=1.0, held=HELD.get(row)) > 1


@pytest.mark.parametrize("momentum", [0.0, 0.5, 0.9])
def test_stability_limit_of_sgd(momentum):
    sampler = SGD(momentum)
    for sign in (-1, 1):
        radius = spectral_radius(sampler, curvature=1.0, step_size=sampler.stability_limit * (1 + sign * 1e-6), temperature=0.0)
        assert (radius > 1) == (sign > 0)


@pytest.mark.parametrize("row", TABLE)
def test_zero_temperature_converges_to_the_mode(row):
    make, _ = TABLE[row]
    sampler = make(np.random.RandomState(0))
    if hasattr(sampler, "gradient_noise_variance"):
        sampler.gradient_noise_variance = 0.0  # subtracting gradient noise needs injected noise
    assert variance(sampler, curvature=1.0, step_size=0.05, temperature=0.0, held=HELD.get(row)) == pytest.approx(0.0, abs=1e-15)


@pytest.mark.parametrize(
    "biased",
    [*(MSGLD(0.0, 0.9, variant) for variant in ("printed", "rescaled", "recipe")), ASGLD(0.0), AdaMaxSGLD(0.0), AdadeltaSGLD(0.0)],
    ids=repr,
)
def test_no_bias_is_sgld_bit_for_bit(biased):
    noise = [BlockNoise(noise_generators((3,), range(2), torch.device("cpu"))) for _ in range(2)]
    potential, control = Quadratic(1.3, 0.1), Control(0.03, 0.8, adapt=False, collect=False)
    start = torch.randn(6, 50, generator=torch.Generator().manual_seed(0))
    states = [sampler.init(start, potential, n, control) for sampler, n in zip((SGLD(), biased), noise, strict=True)]
    for _ in range(20):
        states = [s.step(x, potential, n, control) for s, x, n in zip((SGLD(), biased), states, noise, strict=True)]
    assert torch.equal(states[0].theta, states[1].theta)


def run(sampler, control, start, n_steps=25, curvature=1.3):
    noise = BlockNoise(noise_generators((3,), range(-(-len(start) // 4)), torch.device("cpu")))
    state = sampler.init(start, Quadratic(curvature, 0.1), noise, control)
    for _ in range(n_steps):
        state = sampler.step(state, Quadratic(curvature, 0.1), noise, control)
    return state.theta


@pytest.mark.parametrize("name", SAMPLERS)
def test_a_float_and_a_tensor_of_hyperparameters_give_the_same_bits(name):
    start = torch.randn(8, 30, generator=torch.Generator().manual_seed(0))
    column = torch.ones(8, 1, dtype=torch.float64)
    fields = SAMPLERS[name]().get_params()
    tensors = {key: column * value if isinstance(value, float) else value for key, value in fields.items()}
    floats = run(SAMPLERS[name](), Control(0.03, 0.8, True, False), start)
    batched = run(SAMPLERS[name](**tensors), Control(0.03 * column, 0.8 * column, True, False), start)
    assert torch.equal(floats, batched)


@pytest.mark.parametrize("name", SAMPLERS)
def test_step_never_writes_to_its_arguments(name):
    sampler, control = SAMPLERS[name](), Control(0.03, 0.8, True, False)
    noise = BlockNoise(noise_generators((3,), range(1), torch.device("cpu")))
    state = sampler.init(torch.randn(4, 9), Quadratic(1.0, 0.1), noise, control)
    before = [field.clone() for field in state]
    sampler.step(state, Quadratic(1.0, 0.1), noise, control)
    assert all(torch.equal(left, right) for left, right in zip(before, state, strict=True))


@pytest.mark.parametrize("name", SAMPLERS)
def test_every_state_field_has_the_chain_axis(name):
    sampler, control = SAMPLERS[name](), Control(0.03, 0.8, True, False)
    state = sampler.init(torch.randn(4, 9), Quadratic(1.0), RecordedNoise(), control)
    assert all(len(field) == 4 for field in sampler.step(state, Quadratic(1.0), RecordedNoise(), control))


@pytest.mark.parametrize("name", SAMPLERS)
def test_docstring_has_the_source_of_the_update(name):
    assert SAMPLERS[name].source.split(",")[0].split(" ")[0] in inspect.getdoc(SAMPLERS[name])
    assert "Source:" in inspect.getdoc(SAMPLERS[name])


def test_sgd_is_torchs():
    theta = torch.randn(3, 5, dtype=torch.float64)
    leaf = theta.clone().requires_grad_()
    reference = torch.optim.SGD([leaf], lr=0.03, momentum=0.9)
    state = SGD().init(theta, Quadratic(1.3), RecordedNoise(), Control(0.03, 0.0, True, False))
    for _ in range(30):
        reference.zero_grad()
        Quadratic(1.3).value(leaf).sum().backward()
        reference.step()
        state = SGD().step(state, Quadratic(1.3), RecordedNoise(), Control(0.03, 0.0, True, False))
    torch.testing.assert_close(state.theta, leaf.detach(), rtol=1e-12, atol=1e-14)


def test_adam_is_torchs_on_the_mean_loss():
    theta = torch.randn(3, 5, dtype=torch.float64)
    leaf = theta.clone().requires_grad_()
    reference = torch.optim.Adam([leaf], lr=0.01)
    potential, control = Quadratic(1.3, n_data=50.0), Control(0.01, 0.0, True, False)
    state = Adam().init(theta, potential, RecordedNoise(), control)
    for _ in range(30):
        reference.zero_grad()
        (potential.value(leaf).sum() / 50.0).backward()
        reference.step()
        state = Adam().step(state, potential, RecordedNoise(), control)
    torch.testing.assert_close(state.theta, leaf.detach(), rtol=1e-10, atol=1e-12)


def test_momentum_follows_a_change_of_step_size():
    """A velocity in units of a step is sqrt(eps) r: when eps jumps to eps', it is rescaled by sqrt(eps' / eps)."""
    sampler, one = SGHMC(friction=1e-9), torch.ones(1, 1, dtype=torch.float64)
    state = sampler.init(0 * one, Quadratic(0.0), RecordedNoise([one]), Control(0.04, 1.0, True, False))
    first = sampler.step(state, Quadratic(0.0), RecordedNoise(), Control(0.04, 1.0, True, False)).theta
    second = sampler.step(state, Quadratic(0.0), RecordedNoise(), Control(0.01, 1.0, True, False)).theta
    assert float(second) == pytest.approx(float(first) / 2)


@pytest.mark.parametrize(
    "sampler",
    [
        SGHMC(friction=0.0),
        SGHMC(friction=1.1),
        SGHMC(gradient_noise_variance=-1.0),
        MSGLD(bias_factor=-1.0),
        MSGLD(smoothing=1.0),
        MSGLD(variant="exact"),
        ASGLD(beta1=0.9, beta2=0.81),
        ASGLD(bias_factor=-1.0),
        AdaMaxSGLD(beta2=1.0),
        AdadeltaSGLD(memory=-0.1),
        PSGLD(decay=1.0),
        PSGLD(adapt="never"),
        BAOAB(word="BAB"),
        BAOAB(friction=0.0),
        SGNHT(noise_level=0.0),
        MSGNHT(thermostat_rate=-1.0),
        NonReversibleSGLD(skew=torch.ones(2, 2)),
        SGD(momentum=1.0),
        SGD(momentum=float("nan")),
        SGD(momentum="much"),
        SGHMC(friction=None),
        MSGLD(bias_factor=float("inf")),
        Adam(beta1=1.0),
        Adam(delta=0.0),
    ],
)
def test_field_outside_its_domain_is_named(sampler):
    with pytest.raises(ValueError, match=r"(?s)" + type(sampler).__name__ + r"\.\w+=.* must be .*; .* is the default"):
        sampler.check()


def test_noise_correction_that_would_need_negative_noise_is_refused():
    with pytest.raises(ValueError, match=r"gradient_noise_variance=100.0 .* largest admissible step_size is 0.004"):
        SGHMC(gradient_noise_variance=100.0).check_run(0.1, 1.0)


# --- the samplers of more than one dimension, and those that are not affine ------------------------------------------------


@pytest.mark.parametrize(("s2", "expected"), [(0.0, (0.593878, -0.023059, 0.166825)), (0.5, (0.65778, -0.02554, 0.18477))])
def test_nonreversible_sgld_has_the_reference_covariance(s2, expected):
    skew = 1.3 * torch.tensor([[0.0, -1.0], [1.0, 0.0]], dtype=torch.float64)
    found = covariance(
        NonReversibleSGLD(skew=skew),
        curvature=torch.diag(torch.tensor([1.0, 4.0], dtype=torch.float64)),
        step_size=0.08,
        temperature=0.5,
        gradient_variance=s2,
        held={"skew": 0.0},
    )
    assert (found[0, 0], found[0, 1], found[1, 1]) == pytest.approx(expected, abs=6e-6)


@pytest.mark.parametrize("index", range(10))
def test_nonreversible_sgld_on_a_round_gaussian(index):
    lam, eps, tau, s2, rng = random_settings(index)
    s = rng.uniform(-1.5, 1.5)
    skew = s * torch.tensor([[0.0, -1.0], [1.0, 0.0]], dtype=torch.float64)
    sampler = NonReversibleSGLD(skew=skew)
    settings = {"temperature": tau, "held": {"skew": 0.0}, "curvature": lam * torch.eye(2, dtype=torch.float64)}
    found = covariance(sampler, step_size=eps, gradient_variance=s2, **settings)
    factor = 1 + s * s
    expected = (2 * tau + eps * s2 * factor) / (lam * (2 - eps * lam * factor))
    np.testing.assert_allclose(found, expected * np.eye(2), rtol=1e-6, atol=1e-9)
    for sign in (-1, 1):
        radius = spectral_radius(sampler, step_size=sampler.stability_limit / lam * (1 + sign * 1e-6), **settings)
        assert (radius > 1) == (sign > 0)


def test_tridiagonal_skew_equals_its_dense_form():
    from sklearn_sgmcmc.samplers.nonreversible import apply_tridiagonal

    s, v = torch.randn(3, 6, dtype=torch.float64), torch.randn(3, 7, dtype=torch.float64)
    dense = torch.diag_embed(s, offset=-1) - torch.diag_embed(s, offset=1)
    torch.testing.assert_close(apply_tridiagonal(s, v), (dense @ v[..., None])[..., 0])


class DoubleWell:
    """U = (theta^2 - 1)^2 summed over coordinates."""

    n_data = 1.0

    def value(self, theta):
        return (theta.double().square() - 1).square().sum(1)

    def grad(self, theta):
        return 4 * theta * (theta.square() - 1)

    def value_and_grad(self, theta):
        return self.value(theta), self.grad(theta)


@pytest.mark.parametrize("tau", [0.5, 2.0])
def test_mala_is_in_detailed_balance(tau):
    """pi(a) q(b | a) min(1, alpha(a, b)) is symmetric in a and b."""
    control, potential, generator = Control(0.1, tau, False, False), DoubleWell(), torch.Generator().manual_seed(0)
    here, there = (
        MALA().init(torch.randn(500, 3, generator=generator, dtype=torch.float64), potential, None, control) for _ in "ab"
    )

    def log_flow(a, b):
        drift = b.theta - a.theta + 0.1 * a.gradient
        log_q = -drift.square().sum(1) / (4 * 0.1 * tau)
        return -a.value[:, 0] / tau + log_q + MALA.log_acceptance(a, b, control)[:, 0].clamp(max=0)

    torch.testing.assert_close(log_flow(here, there), log_flow(there, here), rtol=1e-12, atol=1e-10)


def chains(sampler, potential, control, start, n_steps, seed=0):
    noise = BlockNoise(noise_generators((seed,), range(-(-len(start) // 4)), torch.device("cpu")))
    state = sampler.init(start, potential, noise, control)
    for _ in range(n_steps):
        state = sampler.step(state, potential, noise, control)
    return state


def test_mala_samples_a_double_well():
    """Moments of 2^15 coordinates against quadrature, |z| < 5; SGLD at a like step is visibly wrong."""
    grid = np.linspace(-4, 4, 4001)
    density = np.exp(-((grid**2 - 1) ** 2))
    density /= density.sum()
    start = torch.randn(512, 64, generator=torch.Generator().manual_seed(0), dtype=torch.float64).clamp(-1, 1)

    def z(sampler, step_size, powers):
        draws = chains(sampler, DoubleWell(), Control(step_size, 1.0, False, False), start, 600).theta.numpy().ravel()
        mean, square = ([(density * grid ** (k * power)).sum() for power in powers] for k in (1, 2))
        found = [(draws**power).mean() for power in powers]
        return (np.array(found) - mean) / np.sqrt((np.array(square) - np.square(mean)) / len(draws))

    assert (np.abs(z(MALA(), 0.015, [1, 2, 3, 4])) < 5).all()
    assert abs(z(SGLD(), 0.05, [2])) > 10


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


def test_sgnht_has_its_mean_field_law():
    """alpha ends at the smaller root of alpha (4 - 2 alpha - h) = 4 a + 2 eps s2 / tau, as Var theta does at its law."""
    lam, eps, tau, s2, a = 1.0, 0.05, 0.8, 3.0, 0.05

    class Noisy(Quadratic):
        def grad(self, theta):
            return lam * theta + s2**0.5 * torch.randn(theta.shape, generator=generator, dtype=theta.dtype)

    generator = torch.Generator().manual_seed(0)
    sampler, control = SGNHT(a, thermostat_rate=0.2), Control(eps, tau, False, False)
    noise = BlockNoise(noise_generators((0,), range(1), torch.device("cpu")))
    state = sampler.init(torch.zeros(1, 10_000, dtype=torch.float64), Noisy(lam), noise, control)
    squares, frictions = [], []
    for step in range(3000):
        state = sampler.step(state, Noisy(lam), noise, control)
        if step >= 1000:
            squares.append(float(state.theta.square().mean()))
            frictions.append(float(state.friction.mean()))
    b = 4 - eps * lam
    alpha = (b - (b * b - 8 * (4 * a + 2 * eps * s2 / tau)) ** 0.5) / 4
    assert np.mean(frictions) == pytest.approx(alpha, rel=0.01)
    assert np.mean(squares) == pytest.approx(tau / lam * (1 - alpha / 2), rel=0.01)


@pytest.mark.parametrize("sampler", [SGNHT(), MSGNHT()])
def test_thermostat_stands_still_at_zero_temperature(sampler):
    state = chains(sampler, Quadratic(1.0), Control(0.05, 0.0, False, False), torch.ones(4, 3, dtype=torch.float64), 200)
    torch.testing.assert_close(state.friction, torch.full_like(state.friction, 0.05))
    assert state.theta.abs().max() < 0.1


def test_preconditioner_is_frozen_when_adaptation_ends_unless_asked_for_always():
    start = torch.ones(4, 3, dtype=torch.float64)
    for adapt, frozen in (("burn_in", True), ("always", False)):
        sampler = PSGLD(adapt=adapt)
        first = sampler.init(start, Quadratic(1.0), RecordedNoise(), Control(0.01, 1.0, True, False))
        after = sampler.step(first, Quadratic(2.0), RecordedNoise(), Control(0.01, 1.0, False, False))
        assert torch.equal(after.square, first.square) == frozen
