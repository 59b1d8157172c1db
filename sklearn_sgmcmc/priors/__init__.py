"""Priors of the network's weights and biases, on the scale of standardised inputs.

A prior is a record of hyperparameters that knows no network. Placed on a network's layout it becomes a density: -log p over the
flat parameters (C, P) and its gradient, whose constants are tensors made once, outside the loop.
"""

from sklearn_sgmcmc._modules import set_modules
from sklearn_sgmcmc.priors._base import Constant, Density, Prior, Scale, ScalePrior, every, hessian_product
from sklearn_sgmcmc.priors._heavy_tailed import Laplace, LaplaceDensity, StudentT, StudentTDensity
from sklearn_sgmcmc.priors._normal import FanInNormal, HierarchicalDensity, HierarchicalNormal, Normal, NormalDensity
from sklearn_sgmcmc.priors._sparse import PriorSwitch, SpikeSlab, SpikeSlabDensity

__all__ = [
    "PRIORS",
    "Constant",
    "Density",
    "FanInNormal",
    "HierarchicalDensity",
    "HierarchicalNormal",
    "Laplace",
    "LaplaceDensity",
    "Normal",
    "NormalDensity",
    "Prior",
    "PriorSwitch",
    "Scale",
    "ScalePrior",
    "SpikeSlab",
    "SpikeSlabDensity",
    "StudentT",
    "StudentTDensity",
    "every",
    "hessian_product",
]

PRIORS: dict[str, type[Prior]] = {
    "normal": Normal,
    "fan_in_normal": FanInNormal,
    "hierarchical_normal": HierarchicalNormal,
    "laplace": Laplace,
    "student_t": StudentT,
    "spike_slab": SpikeSlab,
    "prior_switch": PriorSwitch,
}

set_modules(__name__)
