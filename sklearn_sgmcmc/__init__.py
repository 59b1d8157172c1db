"""Bayesian neural networks that behave like scikit-learn estimators."""

from sklearn_sgmcmc.estimators import BayesianMLPClassifier, BayesianMLPRegressor
from sklearn_sgmcmc.model_selection import BatchedGridSearchCV, BatchedRandomizedSearchCV

__version__ = "0.1.0"
__all__ = ["BatchedGridSearchCV", "BatchedRandomizedSearchCV", "BayesianMLPClassifier", "BayesianMLPRegressor", "__version__"]

for _public in (BayesianMLPClassifier, BayesianMLPRegressor):
    _public.__module__ = __name__  # saved models name them so, wherever in the package they are
