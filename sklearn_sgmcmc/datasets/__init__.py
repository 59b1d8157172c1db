"""Real data sets shipped with the package."""

from sklearn_sgmcmc.datasets._landsat import load_landsat

__all__ = ["load_landsat"]
