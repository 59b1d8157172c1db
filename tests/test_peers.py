"""Our samplers and those of blackjax, posteriors and SGMCMCJax take the same steps when they are given the same random numbers.

A peer without a temperature is run on U / tau with the step eps tau. A peer that moves theta with the OLD momentum is asked twice,
first for the momentum at theta, then for theta with that momentum: together they make one step of ours.

Not used: blackjax's SGHMC, which draws its momentum at temperature 1 in every call; badodab and baoab of SGMCMCJax, right at
temperature 1 only; the kernels of SGMCMCJax, which need a part of jax that is gone (its diffusions do not).
"""

import blackjax
import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch
from laws import RecordedNoise
from posteriors.sgmcmc import baoa, sghmc, sgld, sgnht
from sgmcmcjax import diffusions

from sklearn_sgmcmc._typing import Control
from sklearn_sgmcmc.samplers import BAOAB, MALA, MSGNHT, PSGLD, SGHMC, SGLD, SGNHT
from sklearn_sgmcmc.samplers.kinetic import KineticState
from sklearn_sgmcmc.samplers.langevin import LangevinState
from sklearn_sgmcmc.samplers.preconditioned import PreconditionedState
from sklearn_sgmcmc.samplers.thermostat import ThermostatState

jax.config.update("jax_enable_x64", True)

EPS, TAU = 0.01, 0.7
CONTROL = Control(EPS, TAU, adapt=False, collect=False)
N_STEPS = 40
TOLERANCE = 1e-12
"""40 steps of some 25 roundings of 1.1e-16 make 1.1e-13 at worst; the rest is room for errors to grow along a path."""


def energy(theta):
    """Return U of coupled double wells, for arrays of torch and of jax."""
    return ((theta**2 - 1) ** 2).sum(-1) + theta.sum(-1) ** 2 / 2


def log_density(theta):
    return -energy(theta).sum()


def log_posterior(theta, batch):
    """Return the same as posteriors wants it, with something auxiliary."""
    return log_density(theta), torch.zeros(())


class Wells:
    """The same as our samplers want it, its gradient by hand."""

    def __init__(self, n_data=1.0):
        self.n_data = n_data

    def grad(self, theta):
        return 4 * theta * (theta**2 - 1) + theta.sum(1, keepdim=True)

    def value_and_grad(self, theta):
        return energy(theta), self.grad(theta)


def start(n_chains=4):
    """Return theta and a momentum, (C, 3) each."""
    return torch.from_numpy(np.random.default_rng(0).normal(size=(2, n_chains, 3)))


def normals(n_chains=4):
    """Return the numbers that the steps consume, (C, 3) each."""
    return torch.from_numpy(np.random.default_rng(1).normal(size=(N_STEPS, n_chains, 3)))


def assert_same(ours, theirs):
    torch.testing.assert_close(ours, torch.tensor(np.asarray(theirs)), rtol=TOLERANCE, atol=TOLERANCE)


@pytest.fixture
def keys_are_numbers(monkeypatch):
    """Make a key that a jax peer is given BE the numbers that it shall draw: split takes it apart, normal returns it."""

    def split(key, num=2):
        return key if len(key) == num else (key, key)

    def normal(key, shape, dtype=None):
        return key.reshape(shape)

    monkeypatch.setattr(jax.random, "split", split)
    monkeypatch.setattr(jax.random, "normal", normal)
    monkeypatch.setattr(jax.random, "bernoulli", lambda key, p: key < p)
    monkeypatch.setattr(blackjax.util, "normal", normal)


@pytest.fixture
def double():
    """Make float64 the default precision, the one that posteriors makes its scalars in."""
    torch.set_default_dtype(torch.float64)
    yield
    torch.set_default_dtype(torch.float32)


def seeded(seed, step, *arguments):
    """Call ``step`` with torch's global generator, which posteriors draws from, at ``seed``."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return step(*arguments)


class Leaves:
    """A diffusion of SGMCMCJax on U / tau, for (C, 3) arrays cut into leaves of a pytree: its thermostats are one per leaf."""

    def __init__(self, diffusion, size=3):
        self.size = size
        self.init, self.update, self.params = diffusion
        self.step = jax.jit(self._step)

    def start(self):
        return self.init(self._cut(start()[0].numpy()))

    def theta(self, state):
        return jnp.concatenate(self.params(state)).reshape(-1, 3)

    def _cut(self, array):
        return list(jnp.reshape(array, (-1, self.size)))

    def _step(self, numbers, state):
        gradient = jax.grad(log_density)(self.theta(state)) / TAU
        step_number = 1  # 0 is the start, where sgnht draws its momentum
        return self.update(step_number, numbers.reshape(-1, self.size), self._cut(gradient), state)


# --- overdamped -------------------------------------------------------------------------------------------------------------


def test_sgld_is_blackjaxs(keys_are_numbers):
    step = jax.jit(blackjax.sgld(lambda theta, batch: jax.grad(log_density)(theta)).step)
    state, theirs = LangevinState(start()[0]), start()[0].numpy()
    for numbers in normals():
        theirs = step(numbers.numpy(), theirs, None, EPS, TAU)
        state = SGLD().step(state, Wells(), RecordedNoise([numbers]), CONTROL)
    assert_same(state.theta, theirs)


def test_sgld_is_posteriors(double):
    peer = sgld.build(log_posterior, lr=EPS, temperature=TAU)
    state, theirs = LangevinState(start()[0]), peer.init(start()[0])
    for seed in range(N_STEPS):
        theirs, _ = seeded(seed, peer.update, theirs, None)
        state = seeded(seed, SGLD().step, state, Wells(), torch.randn_like, CONTROL)
    assert_same(state.theta, theirs.params)


def test_sgld_is_sgmcmcjaxs(keys_are_numbers):
    peer = Leaves(diffusions.sgld(EPS * TAU))
    state, theirs = LangevinState(start()[0]), peer.start()
    for numbers in normals():
        theirs = peer.step(numbers.numpy(), theirs)
        state = SGLD().step(state, Wells(), RecordedNoise([numbers]), CONTROL)
    assert_same(state.theta, peer.theta(theirs))


def test_mala_is_blackjaxs(keys_are_numbers):
    """The uniform number u of the peer's test is given to ours as two normals z with |z|^2 = -2 log u."""
    n_chains, step_size = 20, 0.1  # a step that rejects a good part of the proposals
    control = Control(step_size, TAU, adapt=False, collect=False)
    peer = blackjax.mala(lambda theta: log_density(theta) / TAU, step_size * TAU)
    step = jax.jit(jax.vmap(peer.step))
    state, theirs = MALA().init(start(n_chains)[0], Wells(), None, control), jax.vmap(peer.init)(start(n_chains)[0].numpy())
    accepted = 0
    for seed, numbers in enumerate(normals(n_chains)):
        u = np.random.default_rng(seed).uniform(size=n_chains)
        z = torch.from_numpy(np.stack([np.sqrt(-2 * np.log(u)), 0 * u], 1))
        theirs, info = step((numbers.numpy(), u), theirs)
        accepted += np.asarray(info.is_accepted, dtype=float)
        state = MALA().step(state, Wells(), RecordedNoise([numbers, z]), control)
    assert 0.2 < accepted.mean() / N_STEPS < 0.8  # both outcomes are compared
    assert_same(state.accepted[:, 0], accepted)
    assert_same(state.theta, theirs.position)


@pytest.mark.parametrize("n_data", [1.0, 50.0])
@pytest.mark.parametrize("adapt", ["always", "burn_in"])
def test_psgld_is_sgmcmcjaxs(keys_are_numbers, adapt, n_data):
    """The peer's dt is 2 eps N and its V that of the summed gradient, from 0 on; decay 1 freezes V as the end of burn-in does."""
    sampler = PSGLD(decay=0.9, regularizer=0.03, adapt=adapt)
    moving, frozen = (Leaves(diffusions.psgld(2 * EPS, alpha=decay, eps=0.03 * n_data / TAU)) for decay in (0.9, 1.0))
    state, theirs = PreconditionedState(start()[0], torch.zeros_like(start()[0])), moving.start()
    for i, numbers in enumerate(normals()):
        burning = i < N_STEPS // 2
        theirs = (moving if burning or adapt == "always" else frozen).step(numbers.numpy(), theirs)
        control = Control(EPS / n_data, TAU, adapt=burning, collect=False)
        state = sampler.step(state, Wells(n_data), RecordedNoise([numbers]), control)
    assert_same(state.theta, moving.theta(theirs))


# --- underdamped ------------------------------------------------------------------------------------------------------------


def test_sghmc_is_posteriors(double):
    """Friction 0.2 a step is 0.2 / sqrt(eps) a unit of time."""
    update = sghmc.build(log_posterior, lr=EPS**0.5, alpha=0.2 / EPS**0.5, temperature=TAU).update
    theta, r = start()
    state = KineticState(theta, r)
    for seed in range(N_STEPS):
        r = seeded(seed, update, sghmc.SGHMCState(theta, r), None)[0].momenta
        theta = update(sghmc.SGHMCState(theta, r), None)[0].params
        state = seeded(seed, SGHMC(0.2).step, state, Wells(), torch.randn_like, CONTROL)
    assert_same(state.theta, theta)
    assert_same(state.momentum, r)


def test_sghmc_with_noise_correction_is_sgmcmcjaxs(keys_are_numbers):
    """The peer's beta is eps V / (2 tau), its v is sqrt(eps) r."""
    sampler = SGHMC(friction=0.2, gradient_noise_variance=5.0)
    peer = Leaves(diffusions.sghmc(EPS * TAU, alpha=0.2, beta=EPS * 5.0 / (2 * TAU))[:3])

    def with_momentum(state, other):
        """Return the state with the momentum of the other one; a packed state is a pair (theta, v) per leaf."""
        return state._replace(packed_state=[(x, v) for (x, _), (_, v) in zip(state[0], other[0], strict=True)])

    state, theirs = KineticState(start()[0], torch.zeros_like(start()[0])), peer.start()
    for numbers in normals():
        kicked = peer.step(numbers.numpy(), theirs)
        theirs = with_momentum(peer.step(numbers.numpy(), with_momentum(theirs, kicked)), kicked)
        state = sampler.step(state, Wells(), RecordedNoise([numbers]), CONTROL)
    assert_same(state.theta, peer.theta(theirs))


@pytest.mark.parametrize(("word", "kick"), [("BAOA", 0.0), ("BAOAB", 0.5)])
def test_baoab_is_posteriors(double, word, kick):
    """The peer's BAOA starts with a whole kick, BAOAB with half of one: the other half is taken back first."""
    sampler = BAOAB(friction=0.3, word=word)
    update = baoa.build(log_posterior, lr=EPS**0.5, alpha=0.3 / EPS**0.5, temperature=TAU).update
    theta, r = start()
    state = sampler.init(theta, Wells(), RecordedNoise(), CONTROL)._replace(momentum=r)
    theirs = baoa.BAOAState(theta, r + kick * EPS**0.5 * Wells().grad(theta))
    for seed in range(N_STEPS):
        theirs, _ = seeded(seed, update, theirs, None)
        state = seeded(seed, sampler.step, state, Wells(), torch.randn_like, CONTROL)
    assert_same(state.theta, theirs.params)


# --- thermostats ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("sampler", "size"), [(SGNHT(0.1), 3), (MSGNHT(0.1), 1)], ids=["sgnht", "msgnht"])
def test_thermostat_is_sgmcmcjaxs(keys_are_numbers, sampler, size):
    """A leaf of the peer's is one chain for SGNHT and one parameter for MSGNHT."""
    peer = Leaves(diffusions.sgnht(EPS * TAU, a=0.1), size)
    theta, theirs = start()[0], peer.start()
    state = ThermostatState(theta, torch.zeros_like(theta), torch.full((4, 3 // size), 0.1, dtype=torch.float64))
    for numbers in normals():
        theirs = peer.step(numbers.numpy(), theirs)
        state = sampler.step(state, Wells(), RecordedNoise([numbers]), CONTROL)
    assert_same(state.theta, peer.theta(theirs))
    assert_same(state.friction.flatten(), [friction for _, _, friction in theirs.packed_state])


def test_sgnht_is_posteriors(double):
    """The friction a step is sqrt(eps) xi; the peer's thermostat, too, sees the OLD momentum."""
    update = sgnht.build(log_posterior, lr=EPS**0.5, alpha=0.1 / EPS**0.5, temperature=TAU).update
    theta, r = start(n_chains=1)
    xi = torch.tensor(0.1 / EPS**0.5)
    state = ThermostatState(theta, r, torch.full((1, 1), 0.1))
    for seed in range(N_STEPS):
        r = seeded(seed, update, sgnht.SGNHTState(theta, r, xi), None)[0].momenta
        moved, _ = update(sgnht.SGNHTState(theta, r, xi), None)
        theta, xi = moved.params, moved.xi
        state = seeded(seed, SGNHT(0.1).step, state, Wells(), torch.randn_like, CONTROL)
    assert_same(state.theta, theta)
    assert_same(state.friction[0, 0], EPS**0.5 * xi)


def test_sgnht_is_blackjaxs(keys_are_numbers):
    """The friction a step is sqrt(eps) xi; the peer's thermostat sees the new momentum."""
    step = jax.jit(blackjax.sgnht(lambda theta, batch: jax.grad(log_density)(theta), alpha=0.1 / EPS**0.5).step)
    theta, r = start(n_chains=1)
    theirs = blackjax.sgmcmc.sgnht.SGNHTState(theta.numpy(), r.numpy(), np.float64(0.1 / EPS**0.5))
    state = ThermostatState(theta, r, torch.full((1, 1), 0.1, dtype=torch.float64))
    for numbers in normals(n_chains=1):
        kicked = step(numbers.numpy(), theirs, None, EPS**0.5, TAU)
        moved = step(numbers.numpy(), theirs._replace(momentum=kicked.momentum), None, EPS**0.5, TAU)
        theirs = kicked._replace(position=moved.position)
        state = SGNHT(0.1).step(state, Wells(), RecordedNoise([numbers]), CONTROL)
    assert_same(state.theta, theirs.position)
    assert_same(state.friction[0, 0], EPS**0.5 * theirs.xi)
