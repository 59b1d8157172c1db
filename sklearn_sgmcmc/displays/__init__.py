"""Figures of uncertainty, by scikit-learn's conventions for displays.

Each display is made by ``from_estimator`` or ``from_predictions``, keeps what it shows as attributes, and draws on ``ax`` or on a
new figure; ``plot`` draws it again. Estimators may stand in Pipelines and fitted searches. matplotlib is imported to draw.
"""

from sklearn_sgmcmc.displays._base import OKABE_ITO
from sklearn_sgmcmc.displays._calibration import CoverageDisplay, ReliabilityDisplay
from sklearn_sgmcmc.displays._chains import ConvergenceDisplay, PotentialDisplay, TraceDisplay
from sklearn_sgmcmc.displays._classes import ProbabilitySpreadDisplay, RejectionDisplay
from sklearn_sgmcmc.displays._features import DecisionMapDisplay, PredictiveBandDisplay

__all__ = [
    "OKABE_ITO",
    "ConvergenceDisplay",
    "CoverageDisplay",
    "DecisionMapDisplay",
    "PotentialDisplay",
    "PredictiveBandDisplay",
    "ProbabilitySpreadDisplay",
    "RejectionDisplay",
    "ReliabilityDisplay",
    "TraceDisplay",
]
