"""SG-MCMC samplers: each a small object with ``init`` and ``step``."""

from sklearn_sgmcmc.samplers._base import Sampler
from sklearn_sgmcmc.samplers.drift import MSGLD
from sklearn_sgmcmc.samplers.kinetic import SGHMC
from sklearn_sgmcmc.samplers.langevin import SGLD
from sklearn_sgmcmc.samplers.optimizers import SGD, Adam
from sklearn_sgmcmc.samplers.registry import SAMPLERS, make_sampler

__all__ = ["MSGLD", "SAMPLERS", "SGD", "SGHMC", "SGLD", "Adam", "Sampler", "make_sampler"]
