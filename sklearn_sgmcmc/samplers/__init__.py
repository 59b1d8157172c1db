"""SG-MCMC samplers: each a small object with ``init`` and ``step``."""

from sklearn_sgmcmc.samplers._base import Sampler
from sklearn_sgmcmc.samplers.adaptive_nonreversible import NonReversibleHessian, NonReversibleSPSA, NonReversibleSPSA2
from sklearn_sgmcmc.samplers.drift import ASGLD, MSGLD, AdadeltaSGLD, AdaMaxSGLD
from sklearn_sgmcmc.samplers.kinetic import BAOAB, SGHMC
from sklearn_sgmcmc.samplers.langevin import SGLD
from sklearn_sgmcmc.samplers.metropolis import MALA
from sklearn_sgmcmc.samplers.microcanonical import MCLMC
from sklearn_sgmcmc.samplers.nonreversible import NonReversibleSGLD
from sklearn_sgmcmc.samplers.optimizers import SGD, Adam
from sklearn_sgmcmc.samplers.preconditioned import PSGLD
from sklearn_sgmcmc.samplers.registry import SAMPLERS
from sklearn_sgmcmc.samplers.riemannian import SGRLD
from sklearn_sgmcmc.samplers.santa import Santa
from sklearn_sgmcmc.samplers.thermostat import MSGNHT, SGNHT

__all__ = [
    "ASGLD",
    "BAOAB",
    "MALA",
    "MCLMC",
    "MSGLD",
    "MSGNHT",
    "PSGLD",
    "SAMPLERS",
    "SGD",
    "SGHMC",
    "SGLD",
    "SGNHT",
    "SGRLD",
    "AdaMaxSGLD",
    "AdadeltaSGLD",
    "Adam",
    "NonReversibleHessian",
    "NonReversibleSGLD",
    "NonReversibleSPSA",
    "NonReversibleSPSA2",
    "Sampler",
    "Santa",
]
