"""Langevin dynamics with an adaptive drift."""

from sklearn_sgmcmc._modules import set_modules
from sklearn_sgmcmc.samplers.drift._adaptive import ASGLD, AdadeltaSGLD, AdaMaxSGLD, AdaptiveDrift, AdaptiveDriftState
from sklearn_sgmcmc.samplers.drift._momentum import MSGLD, DriftState

__all__ = ["ASGLD", "MSGLD", "AdaMaxSGLD", "AdadeltaSGLD", "AdaptiveDrift", "AdaptiveDriftState", "DriftState"]

set_modules(__name__)
