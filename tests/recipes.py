"""Continuous-time processes by the complete recipe of Ma, Chen & Fox 2015.

dz = [-(D + Q) grad H + tau Gamma] dt + N(0, 2 tau D dt),   Gamma_i = sum_j d(D + Q)_ij / dz_j,

leaves exp(-H / tau) invariant for any D >= 0 and skew Q. H contains U(theta), so that
theta has the law exp(-U / tau). A sampler is declared by H, D and Q alone; drift and Gamma are derived from them.
"""

from collections.abc import Callable
from dataclasses import dataclass, field, replace

import torch

from sklearn_sgmcmc.samplers import MSGNHT, SGNHT

SKEW = 0.6
"""Value at which the free entry of a 2 x 2 skew matrix is held."""


@dataclass(frozen=True)
class Process:
    """H, D and Q of z = the named state fields, one after another, ``size`` numbers in all.

    State fields are z times ``unit`` (a power of the time step).
    ``tuned`` gives the sampler whose step of length dt approximates the process; ``step_size`` its eps.
    """

    names: tuple
    size: int
    energy: Callable
    diffusion: Callable
    curl: Callable
    tuned: Callable
    step_size: Callable
    unit: dict = field(default_factory=dict)


def blocks(rows):
    return torch.cat([torch.cat(row, dim=1) for row in rows], dim=0)


def eye(P, value=1.0):
    return value * torch.eye(P, dtype=torch.float64)


def zero(rows, columns=None):
    return torch.zeros(rows, rows if columns is None else columns, dtype=torch.float64)


def overdamped(sampler, potential, P):
    return preconditioned(sampler, potential, P, metric=lambda sampler: 1.0)


def preconditioned(sampler, potential, P, *, metric):
    return Process(
        ("theta",), P, potential, lambda z: eye(P, metric(sampler)), lambda z: zero(P), lambda dt: sampler, lambda dt: dt
    )


def inverse_metric(theta):
    """K = I + theta theta^T / 2: every entry varies, and Gamma = (P + 1) theta / 2."""
    return torch.eye(theta.shape[1], dtype=theta.dtype) + 0.5 * theta[:, :, None] * theta[:, None, :]


def riemannian(sampler, potential, P):
    return Process(
        ("theta",), P, potential, lambda z: inverse_metric(z[None])[0], lambda z: zero(P), lambda dt: sampler, lambda dt: dt
    )


def nonreversible(sampler, potential, P):
    S = SKEW * torch.tensor([[0.0, -1.0], [1.0, 0.0]], dtype=torch.float64)
    return Process(("theta",), P, potential, lambda z: eye(P), lambda z: S, lambda dt: sampler, lambda dt: dt)


def momentum(sampler, potential, P):
    """The recipe form of MSGLD, with (1 - b) = c dt: k = a / c."""
    a, c = sampler.bias_factor, 2.0
    return Process(
        ("theta", "mean_gradient"),
        2 * P,
        lambda z: potential(z[:P]) + 0.5 * a / c * z[P:].square().sum(),
        lambda z: blocks([[eye(P), zero(P)], [zero(P), eye(P, c**2 / a)]]),
        lambda z: blocks([[zero(P), eye(P, c)], [eye(P, -c), zero(P)]]),
        lambda dt: replace(sampler, smoothing=1.0 - c * dt),
        lambda dt: dt,
    )


def kinetic(sampler, potential, P):
    """Friction rate 1.5: f = 1.5 dt, and dt = sqrt(eps)."""
    rate = 1.5
    return Process(
        ("theta", "momentum"),
        2 * P,
        lambda z: potential(z[:P]) + 0.5 * z[P:].square().sum(),
        lambda z: blocks([[zero(P), zero(P)], [zero(P), eye(P, rate)]]),
        lambda z: blocks([[zero(P), eye(P, -1.0)], [eye(P), zero(P)]]),
        lambda dt: replace(sampler, friction=rate * dt),
        lambda dt: dt**2,
    )


def thermostat(sampler, potential, P, *, metric=1.0, noise=1.5, tuned=None):
    """alpha is a rate; H has the thermostats' P_a / 2 (alpha - A)^2, P_a parameters each. ``metric`` couples theta and r."""
    shared = isinstance(sampler, SGNHT) and not isinstance(sampler, MSGNHT)
    n_thermostats = 1 if shared else P
    stiffness = P if shared else 1

    def coupling(z):
        r = z[P : 2 * P]
        return r[:, None] / P if shared else torch.diag(r)

    def curl(z):
        couple, none = coupling(z), zero(P, n_thermostats)
        return blocks(
            [[zero(P), eye(P, -metric), none], [eye(P, metric), zero(P), couple], [none.T, -couple.T, zero(n_thermostats)]]
        )

    def diffusion(z):
        none = zero(P, n_thermostats)
        return blocks([[zero(P), zero(P), none], [zero(P), eye(P, noise), none], [none.T, none.T, zero(n_thermostats)]])

    return Process(
        ("theta", "momentum", "friction"),
        2 * P + n_thermostats,
        lambda z: potential(z[:P]) + 0.5 * z[P : 2 * P].square().sum() + 0.5 * stiffness * (z[2 * P :] - noise).square().sum(),
        diffusion,
        curl,
        tuned or (lambda dt: replace(sampler, noise_level=noise * dt, thermostat_rate=None)),
        lambda dt: dt**2,
        {"friction": 1},
    )


def santa(sampler, potential, P, *, metric):
    G = metric(sampler)
    published = sampler.noise_level is None  # a = sqrt(eps) G, a rate of G
    noise = G if published else 1.5
    return thermostat(
        sampler,
        potential,
        P,
        metric=G,
        noise=noise,
        tuned=lambda dt: replace(sampler, thermostat_rate=None, noise_level=None if published else noise * dt),
    )
