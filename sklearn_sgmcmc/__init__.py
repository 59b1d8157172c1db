"""Bayesian neural networks that behave like scikit-learn estimators."""

from sklearn_sgmcmc.estimators import BayesianMLPClassifier, BayesianMLPRegressor

__version__ = "0.1.0"
__all__ = ["BayesianMLPClassifier", "BayesianMLPRegressor", "__version__"]
