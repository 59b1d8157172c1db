"""Sampler names. A new sampler is one line here."""

from __future__ import annotations

from sklearn_sgmcmc.samplers._base import Sampler
from sklearn_sgmcmc.samplers.drift import MSGLD
from sklearn_sgmcmc.samplers.kinetic import SGHMC
from sklearn_sgmcmc.samplers.langevin import SGLD
from sklearn_sgmcmc.samplers.optimizers import SGD, Adam

SAMPLERS: dict[str, type[Sampler]] = {
    "sgld": SGLD,
    "msgld": MSGLD,
    "sghmc": SGHMC,
    "sgd": SGD,
    "adam": Adam,
}


def make_sampler(name: str) -> Sampler:
    """Return the sampler called ``name`` with its default hyperparameters."""
    return SAMPLERS[name]()
