"""Scikit-learn estimators."""

from sklearn_sgmcmc.estimators._classifier import BayesianMLPClassifier
from sklearn_sgmcmc.estimators._regressor import BayesianMLPRegressor

__all__ = ["BayesianMLPClassifier", "BayesianMLPRegressor"]
