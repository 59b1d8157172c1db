"""The one table of samplers: a row here buys the whole ladder of proofs.

``make`` draws admissible hyperparameters. ``law`` is the closed form of Var theta on the check target U = lam theta^2 / 2 with
gradient noise s2, for the values at which adaptation is ``held``; ``edge`` the largest stable step size times lam, None for the
sampler's own. ``recipe`` declares the continuous-time process (see ``recipes.py``). A sampler whose step is not affine has no law
here but tests of its own, named in ``own``.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial

import numpy as np
import recipes
import torch
from recipes import SKEW

from sklearn_sgmcmc.samplers import (
    ASGLD,
    BAOAB,
    MALA,
    MCLMC,
    MSGLD,
    MSGNHT,
    PSGLD,
    SGD,
    SGHMC,
    SGLD,
    SGNHT,
    SGRLD,
    AdadeltaSGLD,
    Adam,
    AdaMaxSGLD,
    NonReversibleHessian,
    NonReversibleSGLD,
    NonReversibleSPSA,
    NonReversibleSPSA2,
    Santa,
)

ALPHA, SQUARE, FISHER = 0.3, 0.2, 0.7
"""Values at which a thermostat's friction and a preconditioner's averages are held."""


def arma(p1, p2, psi, q):
    """Return the variance of x_t = p1 x_{t-1} + p2 x_{t-2} + v_t + psi v_{t-1}, Var v = q."""
    return q * ((1 + psi**2) * (1 - p2) + 2 * psi * p1) / ((1 + p2) * ((1 - p2) ** 2 - p1**2))


def preconditioned_law(sampler, lam, eps, tau, s2, G=1.0):
    return (2 * tau + eps * s2 * G) / (lam * (2 - eps * G * lam))


def sgld_law(sampler, lam, eps, tau, s2):
    return preconditioned_law(sampler, lam, eps, tau, s2 - getattr(sampler, "gradient_noise_variance", 0.0))


def kinetic_law(h, f, q):
    return q * (2 - f) / (f * h * (4 - 2 * f - h))


def sghmc_law(sampler, lam, eps, tau, s2):
    q = 2 * sampler.friction * eps * tau + eps**2 * (s2 - sampler.gradient_noise_variance)
    return kinetic_law(eps * lam, sampler.friction, q)


def msgld_law(sampler, lam, eps, tau, s2):
    a, b = sampler.bias_factor, sampler.smoothing
    if sampler.variant == "rescaled":  # the printed form at eps / (1 + a) with the noise of eps
        eps, tau = eps / (1 + a), tau * (1 + a)
    h = eps * lam
    p1, p2 = 1 + b - h, -(b * (1 - h) + a * h * (1 - b))
    injected = arma(p1, p2, -b, 2 * eps * tau) + arma(p1, p2, -(b - a * (1 - b)), eps**2 * s2)
    if sampler.variant == "recipe":  # (1 - b) zeta sqrt(2 tau / (a eps)) enters m, and eps a m enters theta one step later
        injected += arma(p1, p2, 0.0, (eps * a * (1 - b)) ** 2 * 2 * tau / (a * eps))
    return injected


def baoab_law(sampler, lam, eps, tau, s2):
    return tau / lam


def obabo_law(sampler, lam, eps, tau, s2):
    return tau / (lam * (1 - eps * lam / 4))


def thermostat_law(sampler, lam, eps, tau, s2):
    return kinetic_law(eps * lam, ALPHA, 2 * sampler.noise_level * eps * tau + eps**2 * s2)


def psgld_metric(sampler):
    return 1 / (sampler.regularizer + SQUARE**0.5)


def psgld_law(sampler, lam, eps, tau, s2):
    return preconditioned_law(sampler, lam, eps, tau, s2, psgld_metric(sampler))


def sgrld_metric(sampler):
    return 1 / (sampler.regularizer + FISHER)  # N = 1


def sgrld_law(sampler, lam, eps, tau, s2):
    return preconditioned_law(sampler, lam, eps, tau, s2, sgrld_metric(sampler))


def santa_metric(sampler):
    return (sampler.regularizer + SQUARE**0.5) ** -0.5


def santa_law(sampler, lam, eps, tau, s2):
    """Euler: SGHMC's at the step eps G^2 with noise 2 a eps tau G^2. SSS: eliminate the velocity from its two lines."""
    G = santa_metric(sampler)
    a = eps**0.5 * G if sampler.noise_level is None else sampler.noise_level
    h, q = eps * G**2 * lam, 2 * a * eps * tau * G**2 + eps**2 * G**4 * s2
    if sampler.scheme == "euler":
        return kinetic_law(h, ALPHA, q)
    c = np.exp(-ALPHA / 2)  # v' = c^2 v - c h theta + c w,  theta' = theta + (v + v') / 2
    return arma(1 + c**2 - c * h / 2, -(c**2 + c * h / 2), 1.0, c**2 * q / 4)


def santa_edge(sampler):
    """Euler: SGHMC's. SSS: c^2 + c h / 2 = 1, where the product of the eigenvalues is 1; its gradient is half a step old."""
    G2 = santa_metric(sampler) ** 2
    c = np.exp(-ALPHA / 2)
    return (4 - 2 * ALPHA) / G2 if sampler.scheme == "euler" else 2 * (1 - c**2) / c / G2


@dataclass(frozen=True)
class Row:
    make: Callable
    law: Callable | None = None
    held: dict = field(default_factory=dict)
    edge: Callable | None = None
    exact_gradient: bool = False
    recipe: Callable | None = None
    own: str = ""


TABLE = {
    "sgld": Row(lambda rng: SGLD(), sgld_law, recipe=recipes.overdamped),
    "sgld, noise estimated": Row(lambda rng: SGLD(rng.uniform(0, 0.5)), sgld_law),
    "sgrld, F held": Row(
        lambda rng: SGRLD(regularizer=rng.uniform(0.1, 2)),
        sgrld_law,
        {"fisher": FISHER},
        lambda sampler: 2 / sgrld_metric(sampler),
        recipe=partial(recipes.preconditioned, metric=sgrld_metric),
    ),
    "sgrld, metric of the user's": Row(
        lambda rng: SGRLD(recipes.inverse_metric), own="test_nonlinear.py", recipe=recipes.riemannian
    ),
    "psgld, V held": Row(
        lambda rng: PSGLD(regularizer=rng.uniform(0.01, 0.5)),
        psgld_law,
        {"square": SQUARE},
        lambda sampler: 2 / psgld_metric(sampler),
        recipe=partial(recipes.preconditioned, metric=psgld_metric),
    ),
    "sghmc": Row(lambda rng: SGHMC(friction=rng.uniform(0.05, 1)), sghmc_law, recipe=recipes.kinetic),
    "sghmc, noise estimated": Row(
        lambda rng: SGHMC(friction=rng.uniform(0.5, 1), gradient_noise_variance=rng.uniform(0, 0.5)), sghmc_law
    ),
    "baoab": Row(lambda rng: BAOAB(rng.uniform(0.05, 3)), baoab_law, exact_gradient=True, recipe=recipes.kinetic),
    "obabo": Row(lambda rng: BAOAB(rng.uniform(0.05, 3), "OBABO"), obabo_law, exact_gradient=True, recipe=recipes.kinetic),
    "sgnht, held": Row(
        lambda rng: SGNHT(rng.uniform(0.01, 0.4), thermostat_rate=0.0),
        thermostat_law,
        {"friction": ALPHA},
        lambda sampler: 4 - 2 * ALPHA,
        recipe=recipes.thermostat,
    ),
    "msgnht, held": Row(
        lambda rng: MSGNHT(rng.uniform(0.01, 0.4), thermostat_rate=0.0),
        thermostat_law,
        {"friction": ALPHA},
        lambda sampler: 4 - 2 * ALPHA,
        recipe=recipes.thermostat,
    ),
    "msgld printed": Row(lambda rng: MSGLD(bias_factor=rng.uniform(0, 3), smoothing=rng.uniform(0, 0.9)), msgld_law),
    "msgld rescaled": Row(lambda rng: MSGLD(rng.uniform(0, 3), rng.uniform(0, 0.9), "rescaled"), msgld_law),
    "msgld recipe": Row(lambda rng: MSGLD(rng.uniform(0.1, 3), rng.uniform(0, 0.9), "recipe"), msgld_law, recipe=recipes.momentum),
    "asgld": Row(lambda rng: ASGLD(), own="test_drift.py"),
    "adamax_sgld": Row(lambda rng: AdaMaxSGLD(), own="test_drift.py"),
    "adadelta_sgld": Row(lambda rng: AdadeltaSGLD(), own="test_drift.py"),
    "santa euler, held": Row(
        lambda rng: Santa(noise_level=rng.choice([None, rng.uniform(0.01, 0.4)]), thermostat_rate=0.0),
        santa_law,
        {"friction": ALPHA, "square": SQUARE, "metric": "own"},
        santa_edge,
        recipe=partial(recipes.santa, metric=santa_metric),
    ),
    "santa sss, held": Row(
        lambda rng: Santa("sss", regularizer=rng.uniform(0.01, 0.5), noise_level=rng.choice([None, 0.2]), thermostat_rate=0.0),
        santa_law,
        {"friction": ALPHA, "square": SQUARE, "metric": "own"},
        santa_edge,
        recipe=partial(recipes.santa, metric=santa_metric),
    ),
    "nr_sgld, S = 0": Row(lambda rng: NonReversibleSGLD(skew_scale=0.0), sgld_law, {"skew": 0.0}),
    "nr_sgld": Row(lambda rng: NonReversibleSGLD(), held={"skew": SKEW}, own="test_nonreversible.py", recipe=recipes.nonreversible),
    "nr_sgld_hessian, held": Row(
        lambda rng: NonReversibleHessian(),
        held={"skew": SKEW, "sensitivity": 0.0},
        own="test_nonreversible.py",
        recipe=recipes.nonreversible,
    ),
    "nr_sgld_spsa, held": Row(
        lambda rng: NonReversibleSPSA(),
        held={"skew": SKEW, "minus": 0.0},
        own="test_nonreversible.py",
        recipe=recipes.nonreversible,
    ),
    "nr_sgld_spsa2, held": Row(
        lambda rng: NonReversibleSPSA2(), held={"skew": SKEW}, own="test_nonreversible.py", recipe=recipes.nonreversible
    ),
    "mala": Row(lambda rng: MALA(), own="test_nonlinear.py"),
    "mclmc": Row(lambda rng: MCLMC(), own="test_microcanonical.py"),
    "sgd": Row(lambda rng: SGD(), own="test_samplers.py"),
    "adam": Row(lambda rng: Adam(), own="test_samplers.py"),
}

LAWS = {name: row for name, row in TABLE.items() if row.law is not None}
AFFINE = {name: row for name, row in TABLE.items() if row.law is not None or "skew" in row.held}
RECIPES = {name: row for name, row in TABLE.items() if row.recipe is not None}


def random_settings(index):
    """Return lam, eps, tau, s2 and a generator for the sampler's own fields."""
    rng = np.random.RandomState(index)
    lam = rng.uniform(0.5, 3)
    return lam, rng.uniform(0.01, 0.3) / lam, rng.uniform(0.1, 2), rng.uniform(0, 2), rng


def held(row, sampler):
    """Return the held fields of a row; "own" stands for the metric that belongs to the held average."""
    return {name: santa_metric(sampler) if value == "own" else value for name, value in row.held.items()}


def quadratic(dimension):
    """Return a positive definite curvature matrix that is not diagonal."""
    return torch.tensor([[2.0, 0.6], [0.6, 1.0]], dtype=torch.float64) if dimension == 2 else 1.0
