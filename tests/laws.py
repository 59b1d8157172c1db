"""Stationary laws of the samplers on Gaussian targets, found by probing the shipped code: no formula of a paper enters.

On U = lambda theta^2 / 2 one step of an affine sampler is  state' = A state + B noise.  Unit vectors through ``step`` give A and B;
the covariance solves Sigma = A Sigma A^T + B B^T.
"""

from dataclasses import dataclass

import numpy as np
import scipy.linalg
import torch

from sklearn_sgmcmc._typing import Control


class RecordedNoise:
    """Noise that is given beforehand, one (C, P) tensor per call."""

    def __init__(self, values=()):
        self.values = list(values)
        self.calls = 0

    def __call__(self, like):
        value = self.values[self.calls] if self.calls < len(self.values) else torch.zeros_like(like)
        self.calls += 1
        return value.expand(like.shape)


@dataclass
class Quadratic:
    """U = curvature theta^2 / 2 per coordinate, with additive gradient noise that is itself a recorded tensor."""

    curvature: float
    gradient_noise: torch.Tensor | float = 0.0
    n_data: float = 1.0

    def grad(self, theta):
        return self.curvature * theta + self.gradient_noise

    def value(self, theta):
        return 0.5 * self.curvature * theta.double().square().sum(1)

    def value_and_grad(self, theta):
        return self.value(theta), self.grad(theta)

    def hvp(self, theta, vector):
        return self.curvature * vector


def _as_vector(state):
    return np.array([float(field[0, 0]) for field in state])


def _as_state(template, vector):
    return type(template)(*(torch.full((1, 1), float(value), dtype=torch.float64) for value in vector))


def affine_map(sampler, *, curvature, step_size, temperature, gradient_variance=0.0):
    """Return (A, B) of one step on a 1-D quadratic; the last column of B is the gradient noise."""
    control = Control(step_size, temperature, adapt=False, collect=False)
    one = torch.ones(1, 1, dtype=torch.float64)
    still = Quadratic(curvature)
    template = sampler.init(torch.zeros(1, 1, dtype=torch.float64), still, RecordedNoise(), control)
    size = len(template)

    def step(vector, noise, potential=still):
        return _as_vector(sampler.step(_as_state(template, vector), potential, noise, control))

    origin = step(np.zeros(size), RecordedNoise())
    drift = np.column_stack([step(unit, RecordedNoise()) - origin for unit in np.eye(size)])
    counter = RecordedNoise()
    step(np.zeros(size), counter)
    columns = []
    for call in range(counter.calls):
        values = [one if index == call else torch.zeros_like(one) for index in range(counter.calls)]
        columns.append(step(np.zeros(size), RecordedNoise(values)) - origin)
    noisy = Quadratic(curvature, gradient_variance**0.5)
    columns.append(step(np.zeros(size), RecordedNoise(), noisy) - origin)
    return drift, np.column_stack(columns)


def covariance(sampler, **settings):
    """Return the stationary covariance of the state on a 1-D quadratic."""
    drift, diffusion = affine_map(sampler, **settings)
    return scipy.linalg.solve_discrete_lyapunov(drift, diffusion @ diffusion.T)


def variance(sampler, **settings):
    """Return the stationary variance of theta on a 1-D quadratic."""
    return covariance(sampler, **settings)[0, 0]


def spectral_radius(sampler, **settings):
    return np.abs(np.linalg.eigvals(affine_map(sampler, **settings)[0])).max()
