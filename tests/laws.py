"""Stationary laws of the samplers on Gaussian targets, found by probing the shipped code: no formula of a paper enters.

On U = theta^T L theta / 2 one step of an affine sampler is  state' = A state + B noise.  Unit vectors through ``step`` give A
and B; the covariance solves Sigma = A Sigma A^T + B B^T.
"""

from dataclasses import dataclass

import numpy as np
import scipy.linalg
import torch

from sklearn_sgmcmc._typing import Control


class RecordedNoise:
    """Noise that is given beforehand, one (C, P) tensor per call, and zero once it is used up."""

    def __init__(self, values=()):
        self.values = list(values)
        self.shapes = []

    def __call__(self, like):
        call = len(self.shapes)
        self.shapes.append(tuple(like.shape))
        return self.values[call].expand(like.shape) if call < len(self.values) else torch.zeros_like(like)


@dataclass
class Quadratic:
    """U = theta^T L theta / 2 for a number or a (P, P) matrix L, with a given additive error of the gradient."""

    curvature: float | torch.Tensor
    gradient_error: torch.Tensor | float = 0.0
    n_data: float = 1.0

    def _force(self, theta):
        if isinstance(self.curvature, torch.Tensor):
            return theta @ self.curvature
        return self.curvature * theta

    def grad(self, theta):
        return self._force(theta) + self.gradient_error

    def value(self, theta):
        return 0.5 * (theta * self._force(theta)).double().sum(1)

    def value_and_grad(self, theta):
        return self.value(theta), self.grad(theta)

    def hvp(self, theta, vector):
        return self._force(vector)

    def fisher(self, theta):
        return torch.full_like(theta, 0.5)

    def fresh(self):
        return self


def affine_map(sampler, *, curvature, step_size, temperature, gradient_variance=0.0, held=None):
    """Return (A, B) of one step from a state of one chain; the last P columns of B are the gradient noise.

    ``held`` gives values of state fields that do not move while adaptation is off; they are not part of the probed state.
    """
    held = held or {}
    control = Control(step_size, temperature, adapt=False, collect=False)
    n_params = len(curvature) if isinstance(curvature, torch.Tensor) else 1
    zeros = torch.zeros(1, n_params, dtype=torch.float64)
    still = Quadratic(curvature)
    template = sampler.init(zeros, still, RecordedNoise(), control)
    moving = [name for name in template._fields if name not in held]
    sizes = [getattr(template, name).numel() for name in moving]

    def state(vector):
        parts = np.split(vector, np.cumsum(sizes)[:-1])
        fields = {name: torch.from_numpy(part.copy()).view(1, -1) for name, part in zip(moving, parts, strict=True)}
        fixed = {
            name: torch.as_tensor(value, dtype=torch.float64).expand_as(getattr(template, name)) for name, value in held.items()
        }
        return template._replace(**fields, **fixed)

    def step(vector, noise, potential=still):
        after = sampler.step(state(vector), potential, noise, control)
        return np.concatenate([getattr(after, name).flatten().numpy() for name in moving])

    nothing = np.zeros(sum(sizes))
    counter = RecordedNoise()
    origin = step(nothing, counter)
    drift = np.column_stack([step(unit, RecordedNoise()) - origin for unit in np.eye(len(nothing))])
    columns = []
    for call, shape in enumerate(counter.shapes):
        for unit in np.eye(shape[1]):
            values = [torch.zeros(s, dtype=torch.float64) for s in counter.shapes]
            values[call] = torch.from_numpy(unit).view(1, -1)
            columns.append(step(nothing, RecordedNoise(values)) - origin)
    for unit in np.eye(n_params):
        error = torch.from_numpy(unit).view(1, -1) * gradient_variance**0.5
        columns.append(step(nothing, RecordedNoise(), Quadratic(curvature, error)) - origin)
    return drift, np.column_stack(columns)


def covariance(sampler, **settings):
    """Return the stationary covariance of the moving state, theta first."""
    drift, diffusion = affine_map(sampler, **settings)
    return scipy.linalg.solve_discrete_lyapunov(drift, diffusion @ diffusion.T)


def variance(sampler, **settings):
    """Return the stationary variance of theta on a 1-D quadratic."""
    return covariance(sampler, **settings)[0, 0]


def spectral_radius(sampler, **settings):
    return np.abs(np.linalg.eigvals(affine_map(sampler, **settings)[0])).max()
