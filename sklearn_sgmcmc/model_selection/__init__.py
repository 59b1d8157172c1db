"""Searches over hyperparameters in which the fits of all candidates and folds are chains of a few batches."""

from sklearn_sgmcmc._modules import set_modules
from sklearn_sgmcmc.model_selection._searches import BatchedGridSearchCV, BatchedRandomizedSearchCV

__all__ = ["BatchedGridSearchCV", "BatchedRandomizedSearchCV"]

set_modules(__name__)
