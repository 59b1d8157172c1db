"""Sampler names. A new sampler is one line here."""

from __future__ import annotations

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
from sklearn_sgmcmc.samplers.riemannian import SGRLD
from sklearn_sgmcmc.samplers.santa import Santa
from sklearn_sgmcmc.samplers.thermostat import MSGNHT, SGNHT

SAMPLERS: dict[str, type[Sampler]] = {
    "sgld": SGLD,
    "mala": MALA,
    "psgld": PSGLD,
    "sgrld": SGRLD,
    "sghmc": SGHMC,
    "baoab": BAOAB,
    "sgnht": SGNHT,
    "msgnht": MSGNHT,
    "msgld": MSGLD,
    "asgld": ASGLD,
    "adamax_sgld": AdaMaxSGLD,
    "adadelta_sgld": AdadeltaSGLD,
    "santa": Santa,
    "nr_sgld": NonReversibleSGLD,
    "nr_sgld_hessian": NonReversibleHessian,
    "nr_sgld_spsa": NonReversibleSPSA,
    "nr_sgld_spsa2": NonReversibleSPSA2,
    "mclmc": MCLMC,
    "sgd": SGD,
    "adam": Adam,
}
