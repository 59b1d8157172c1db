"""Rung 2: the shipped samplers have the laws on Gaussians that they are documented to have, to 1e-6; facts common to all."""

import inspect
import re

import numpy as np
import pytest
import torch
from laws import Quadratic, RecordedNoise, covariance, spectral_radius, variance
from mutants import Refrigerator, SharedThermostat, louder, turned_into
from table import LAWS, TABLE, held, random_settings

from sklearn_sgmcmc._typing import Control
from sklearn_sgmcmc.noise import BlockNoise, noise_generators
from sklearn_sgmcmc.samplers import (
    ASGLD,
    BAOAB,
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
    Santa,
)


def test_every_sampler_has_a_row():
    assert {type(row.make(np.random.RandomState(0))) for row in TABLE.values()} == set(SAMPLERS.values())


def test_every_affine_sampler_has_an_exact_law_and_every_other_one_tests_of_its_own():
    for row in TABLE.values():
        sampler = row.make(np.random.RandomState(0))
        assert row.law is not None or row.own
        assert row.law is None or sampler.affine in ("yes", "frozen")
        assert (sampler.affine == "frozen") <= bool(row.held) or row.own


def found_and_expected(name, index, mutant=lambda sampler: sampler):
    row = LAWS[name]
    lam, eps, tau, s2, rng = random_settings(index)
    sampler = row.make(rng)
    s2 = 0.0 if row.exact_gradient else s2
    settings = {"curvature": lam, "step_size": eps, "temperature": tau, "gradient_variance": s2, "held": held(row, sampler)}
    return variance(mutant(sampler), **settings), row.law(sampler, lam, eps, tau, s2)


@pytest.mark.parametrize("index", range(10))
@pytest.mark.parametrize("name", LAWS)
def test_variance_on_a_gaussian_equals_the_closed_form(name, index):
    found, expected = found_and_expected(name, index)
    assert found == pytest.approx(expected, rel=1e-6)


@pytest.mark.parametrize("name", LAWS)
def test_rung_2_rejects_noise_that_is_a_thousandth_too_large(name):
    found, expected = found_and_expected(name, 0, lambda sampler: louder(sampler, 1.001))
    assert abs(found / expected - 1) > 1e-4


@pytest.mark.parametrize("mutant", [turned_into(Refrigerator), turned_into(SharedThermostat)])
def test_rung_2_is_blind_to_what_a_held_thermostat_would_do(mutant):
    name = "msgnht, held" if mutant(MSGNHT()).__class__ is Refrigerator else "sgnht, held"
    found, expected = found_and_expected(name, 0, mutant)
    assert found == pytest.approx(expected, rel=1e-6)


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
@pytest.mark.parametrize("name", LAWS)
def test_stability_edge_is_that_of_the_spectral_radius(name, index):
    row = LAWS[name]
    sampler = row.make(random_settings(index)[-1])
    edge = sampler.stability_limit if row.edge is None else row.edge(sampler)
    for curvature in (1.0, 7.0):
        for sign in (-1, 1):
            settings = {"curvature": curvature, "step_size": edge * (1 + sign * 1e-6) / curvature, "temperature": 1.0}
            assert (spectral_radius(sampler, **settings, held=held(row, sampler)) > 1) == (sign > 0)


@pytest.mark.parametrize("momentum", [0.0, 0.5, 0.9])
def test_stability_limit_of_sgd(momentum):
    sampler = SGD(momentum)
    for sign in (-1, 1):
        radius = spectral_radius(sampler, curvature=1.0, step_size=sampler.stability_limit * (1 + sign * 1e-6), temperature=0.0)
        assert (radius > 1) == (sign > 0)


@pytest.mark.parametrize("name", LAWS)
def test_zero_temperature_converges_to_the_mode(name):
    row = LAWS[name]
    sampler = row.make(np.random.RandomState(0))
    if hasattr(sampler, "gradient_noise_variance"):
        sampler.gradient_noise_variance = 0.0  # subtracting gradient noise needs injected noise
    assert sampler.allows_zero_temperature
    settings = {"curvature": 1.0, "step_size": 0.05, "temperature": 0.0, "held": held(row, sampler)}
    assert variance(sampler, **settings) == pytest.approx(0.0, abs=1e-15)


@pytest.mark.parametrize("name", LAWS)
def test_variance_without_gradient_noise_is_proportional_to_temperature(name):
    row = LAWS[name]
    sampler = row.make(np.random.RandomState(0))
    if hasattr(sampler, "gradient_noise_variance"):
        sampler.gradient_noise_variance = 0.0
    settings = {"curvature": 1.3, "step_size": 0.05, "held": held(row, sampler)}
    one, three = (variance(sampler, temperature=tau, **settings) for tau in (1.0, 3.0))
    assert three == pytest.approx(3 * one, rel=1e-9)


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


@pytest.mark.parametrize("sampler", [SGLD(gradient_noise_variance=3.0), Santa(initial_friction=1.39)], ids=repr)
def test_the_step_size_that_a_message_names_is_allowed(sampler):
    with pytest.raises(ValueError, match="step_size") as caught:
        sampler.check_run(1.0, 1.0)
    sampler.check_run(0.9999 * float(re.search(r"step_size (?:is|below) (\S+) \(a", str(caught.value))[1]), 1.0)
