"""Schedules: multipliers, burn-in and thinning."""

import numpy as np
import pytest

from sklearn_sgmcmc.schedules import SCHEDULES, Constant, Cyclical, Polynomial, StepDecay


def timeline(schedule, n_steps=1000, burn_in=0.5, n_draws=50, steps_per_epoch=10.0):
    return schedule.timeline(n_steps=n_steps, steps_per_epoch=steps_per_epoch, burn_in=burn_in, n_draws=n_draws)


@pytest.mark.parametrize("name", SCHEDULES)
@pytest.mark.parametrize("n_draws", [1, 7, 50])
def test_as_many_draws_as_asked_after_burn_in(name, n_draws):
    line = timeline(SCHEDULES[name](), n_draws=n_draws)
    assert line.collect.sum() == n_draws
    assert not line.collect[:500].any()
    assert line.collect[-1]


@pytest.mark.parametrize("name", SCHEDULES)
def test_fewer_steps_than_draws_keep_every_step_after_burn_in(name):
    line = timeline(SCHEDULES[name](), n_steps=40, n_draws=50)
    samples = (np.arange(40) >= 20) & (SCHEDULES[name]().draw_weight(line.step_size, line.temperature) > 0)
    np.testing.assert_array_equal(line.collect, samples)


@pytest.mark.parametrize("name", ["constant", "step", "polynomial"])
def test_a_single_step_is_kept(name):
    assert timeline(SCHEDULES[name](), n_steps=1, n_draws=50).collect.tolist() == [True]


def test_a_run_without_a_sampling_step_is_an_error():
    with pytest.raises(ValueError, match=r"schedule=Cyclical.*no sampling step among the last 2 of 4 steps"):
        timeline(Cyclical(), n_steps=4)


@pytest.mark.parametrize("name", SCHEDULES)
def test_adaptation_ends_before_the_first_kept_draw(name):
    line = timeline(SCHEDULES[name]())
    first = np.argmax(line.collect)
    assert line.adapt[:first].all()
    assert not line.adapt[first:].any()


def test_constant_draws_are_evenly_spaced():
    kept = np.flatnonzero(timeline(Constant()).collect)
    assert set(np.diff(kept)) == {10}


def test_step_decay_halves_every_so_many_epochs():
    multipliers = timeline(StepDecay(factor=0.5, every=30)).step_size
    np.testing.assert_array_equal(multipliers[[0, 299, 300, 600, 999]], [1, 1, 0.5, 0.25, 0.125])


@pytest.mark.parametrize("schedule", [StepDecay(), Polynomial()])
def test_draws_are_kept_at_equal_increments_of_the_summed_step(schedule):
    line = timeline(schedule, n_steps=100_000, n_draws=20)
    passed = np.cumsum(line.step_size)[np.flatnonzero(line.collect)]
    np.testing.assert_allclose(np.diff(passed), np.diff(passed).mean(), rtol=1e-2)


def test_polynomial_is_welling_and_tehs():
    a, b, gamma = 1.0 * 100**0.6, 100, 0.6
    t = np.arange(1000)
    np.testing.assert_allclose(timeline(Polynomial(gamma=gamma, offset=b)).step_size, a * (b + t) ** -gamma, rtol=1e-12)


def test_cyclical_step_is_zhangs_cosine():
    k = np.arange(1, 1001)
    expected = 0.5 * (np.cos(np.pi * np.mod(k - 1, 250) / 250) + 1)
    np.testing.assert_allclose(timeline(Cyclical(n_cycles=4)).step_size, expected, rtol=1e-12)


def test_cyclical_explores_without_noise_and_keeps_no_draw_meanwhile():
    line = timeline(Cyclical(n_cycles=4, exploration=0.6))
    phase = (np.arange(1000) % 250) / 250
    np.testing.assert_array_equal(line.temperature, np.where(phase < 0.6, 0.0, 1.0))
    assert not line.collect[phase < 0.6].any()


@pytest.mark.parametrize(
    "schedule",
    [
        StepDecay(factor=0),
        StepDecay(every=0),
        Polynomial(gamma=0.5),
        Polynomial(offset=-1),
        Cyclical(n_cycles=0),
        Cyclical(n_cycles=2.5),
    ],
)
def test_field_outside_its_domain_is_named(schedule):
    with pytest.raises(ValueError, match=type(schedule).__name__ + r"\.\w+=.* must be .*; .* is the default"):
        timeline(schedule)


@pytest.mark.parametrize("schedule", [StepDecay(), Polynomial(gamma=1.0, offset=1)])
def test_a_steep_decay_still_keeps_as_many_draws_as_asked(schedule):
    line = timeline(schedule, n_steps=200)
    assert line.collect.sum() == 50
    assert line.collect[-1]
