"""Samplers that are almost right. Every rung of the ladder has a killer of its own here, and must reject it."""

from dataclasses import fields, replace

import torch

from sklearn_sgmcmc.posterior import NONE_LEFT, MinibatchPotential
from sklearn_sgmcmc.samplers import MALA, MSGNHT, SGNHT, SGRLD
from sklearn_sgmcmc.samplers.riemannian import divergence


def turned_into(kind):
    """Return a function from a sampler to the mutant of class ``kind`` with the same hyperparameters."""
    return lambda sampler: kind(**{f.name: getattr(sampler, f.name) for f in fields(sampler)})


# --- rung 1: terms that vanish on Gaussians


class MinusGamma(SGRLD):
    """Gamma with the wrong sign."""

    def _move(self, theta, g, inverse_metric, noise, control):
        turned = replace(self, divergence=lambda theta: -divergence(inverse_metric, theta))
        return super(MinusGamma, turned)._move(theta, g, inverse_metric, noise, control)


class NoGamma(SGRLD):
    """Gamma left out: the law is exp(-U / tau) / det K."""

    def _move(self, theta, g, inverse_metric, noise, control):
        without = replace(self, divergence=torch.zeros_like)
        return super(NoGamma, without)._move(theta, g, inverse_metric, noise, control)


class Refrigerator(MSGNHT):
    """The friction falls where it should rise."""

    def _heating(self, r, eps, tau):
        return -super()._heating(r, eps, tau)


DRIFT_MUTANTS = {
    "Gamma with the wrong sign": ("sgrld, metric of the user's", turned_into(MinusGamma)),
    "Gamma left out": ("sgrld, metric of the user's", turned_into(NoGamma)),
    "thermostat with the wrong sign": ("msgnht, held", turned_into(Refrigerator)),
}

# --- rung 2: the right terms with slightly wrong sizes


def louder(sampler, factor):
    """Return the sampler with all its noise multiplied by ``factor``."""

    class Louder(type(sampler)):
        def step(self, state, potential, noise, control):
            return super().step(state, potential, lambda like: factor * noise(like), control)

    return turned_into(Louder)(sampler)


# --- rung 3: noise that is right in size, and not independent


class TwiceUsed:
    """Every noise tensor is handed out twice."""

    def __init__(self, noise):
        self.noise, self.last = noise, None

    def __call__(self, like):
        if self.last is None:
            self.last = self.noise(like)
            return self.last
        last, self.last = self.last, None
        return last


class SharedByChains:
    """All chains get the noise of the first."""

    def __init__(self, noise):
        self.noise = noise

    def __call__(self, like):
        return self.noise(like)[:1].expand(like.shape).contiguous()


class Reseeded:
    """The generators start again at every call."""

    def __init__(self, noise):
        self.noise = noise
        self.states = [generator.get_state() for generator in noise.generators]

    def __call__(self, like):
        for generator, state in zip(self.noise.generators, self.states, strict=True):
            generator.set_state(state)
        return self.noise(like)


NOISE_MUTANTS = {"used twice": TwiceUsed, "shared by chains": SharedByChains, "reseeded at every step": Reseeded}

# --- rung 5: right on no Gaussian test, wrong in the acceptance


class NoProposalRatio(MALA):
    """Metropolis' test for symmetric proposals."""

    @staticmethod
    def log_acceptance(here, there, control):
        return (here.value - there.value) / control.temperature


# --- rung 6: chains that see each other


class SharedThermostat(SGNHT):
    """|u|^2 averaged over chains instead of parameters."""

    def _kinetic(self, r):
        return r.square().mean(0, keepdim=True).mean(1, keepdim=True).expand(len(r), 1)


# --- rung 7: right samplers of a wrong posterior


def without_share(self, batch, following=NONE_LEFT):
    """bind() that forgets N/n."""
    return MinibatchPotential(self, batch, following)


def prior_once_per_batch(self, batch, following=NONE_LEFT):
    """bind() that scales the prior as if it were data: n/N of it in every batch of n."""
    share = self.n_rows / batch.weight.shape[1]
    wider = replace(self.prior, scale=self.prior.scale / share**0.5)
    return MinibatchPotential(replace(self, prior=wider), batch.weighted(batch.weight * share), following)
