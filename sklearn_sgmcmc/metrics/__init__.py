"""How good is the uncertainty? Functions on arrays, and scorers for ``scoring=``.

Arrays of targets are (n_rows,) or (n_rows, n_outputs); those of a mixture have the draws in front, as ``predict_mixture`` returns
them. Names that end in ``_loss``, ``_score``, ``_error`` and ``crps`` are losses: smaller is better.
"""

from sklearn_sgmcmc._modules import set_modules
from sklearn_sgmcmc.metrics._averages import Average
from sklearn_sgmcmc.metrics._classes import brier_loss, expected_calibration_error, reliability_curve
from sklearn_sgmcmc.metrics._distributions import (
    gaussian_crps,
    gaussian_log_loss,
    mixture_crps,
    mixture_log_loss,
    probability_integral_transform,
    sharpness,
)
from sklearn_sgmcmc.metrics._intervals import interval_coverage, interval_score, interval_width
from sklearn_sgmcmc.metrics._scorers import (
    UncertaintyScorer,
    coverage_scorer,
    log_density_scorer,
    neg_brier_loss_scorer,
    neg_calibration_error_scorer,
    neg_crps_scorer,
    neg_interval_score_scorer,
    neg_log_loss_scorer,
    unwrap,
)

__all__ = [
    "Average",
    "UncertaintyScorer",
    "brier_loss",
    "coverage_scorer",
    "expected_calibration_error",
    "gaussian_crps",
    "gaussian_log_loss",
    "interval_coverage",
    "interval_score",
    "interval_width",
    "log_density_scorer",
    "mixture_crps",
    "mixture_log_loss",
    "neg_brier_loss_scorer",
    "neg_calibration_error_scorer",
    "neg_crps_scorer",
    "neg_interval_score_scorer",
    "neg_log_loss_scorer",
    "probability_integral_transform",
    "reliability_curve",
    "sharpness",
    "unwrap",
]

set_modules(__name__)
