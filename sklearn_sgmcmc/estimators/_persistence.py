"""What a saved model consists of: parameters, numpy arrays and plain Python values, with the versions that wrote them.

No tensor, function or class of this package but the estimator, its sampler and what the user passed is in the file: it loads on a
machine without a GPU, and after a change of the internals.
"""

from __future__ import annotations

import dataclasses
import sys
import warnings
from itertools import chain
from typing import Any

from sklearn.exceptions import InconsistentVersionWarning

import sklearn_sgmcmc
from sklearn_sgmcmc.batches import Scaling
from sklearn_sgmcmc.diagnostics import Measured
from sklearn_sgmcmc.estimators._resume import LastState, Model, Stream
from sklearn_sgmcmc.likelihoods import Categorical, FixedNoise, HeteroscedasticNoise, HomoscedasticNoise
from sklearn_sgmcmc.network import MLP
from sklearn_sgmcmc.samplers import SAMPLERS

FORMAT = 1
"""Version of what ``packed`` returns; raised whenever an older release could not read it any more."""

LIKELIHOODS = (Categorical, FixedNoise, HeteroscedasticNoise, HomoscedasticNoise)
STATES = {
    value
    for sampler in SAMPLERS.values()
    for value in vars(sys.modules[sampler.__module__]).values()
    if isinstance(value, type) and hasattr(value, "_fields") and value.__name__.endswith("State")
}
KINDS: dict[str, type[Any]] = {
    kind.__name__: kind for kind in chain(LIKELIHOODS, STATES, (MLP, Measured, Scaling, LastState, Model, Stream))
}
"""Classes of fitted attributes, and of their fields, that are saved by name and fields."""
PART = "sklearn_sgmcmc part"
"""Key of the class's name in the dictionary that an object of such a class is saved as."""


def packed(attributes: dict[str, Any]) -> dict[str, Any]:
    """Return the attributes of an estimator as they are saved."""
    plain = {name: _plain(value) for name, value in attributes.items()}
    return plain | {"_format": FORMAT, "_package_version": sklearn_sgmcmc.__version__}


def unpacked(saved: dict[str, Any], estimator: str) -> dict[str, Any]:
    """Return the attributes of the named estimator from what ``packed`` returned.

    Raises ValueError if the format is newer than this release; warns, as scikit-learn does, if another release has written it.
    """
    attributes = dict(saved)
    found = attributes.pop("_format", 0)
    version = attributes.pop("_package_version", "unknown")
    here = sklearn_sgmcmc.__version__
    if found > FORMAT:
        raise ValueError(
            f"This {estimator} was saved by sklearn-sgmcmc {version} in format {found}, and sklearn-sgmcmc {here} reads formats up "
            f"to {FORMAT}: upgrade sklearn-sgmcmc, or fit and save the model again here."
        )
    if version != here:
        message = InconsistentVersionWarning(
            estimator_name=estimator,
            current_sklearn_version=f"{here} of sklearn-sgmcmc",
            original_sklearn_version=f"{version} of sklearn-sgmcmc",
        )
        warnings.warn(message, stacklevel=3)
    return {name: _restored(value) for name, value in attributes.items()}


def _plain(value: Any) -> Any:
    """Return an object of one of ``KINDS`` as a dictionary, any other as it is."""
    kind = type(value)
    if KINDS.get(kind.__name__) is not kind:
        return value
    names = kind._fields if isinstance(value, tuple) else [field.name for field in dataclasses.fields(value)]
    return {PART: kind.__name__} | {name: _plain(getattr(value, name)) for name in names}


def _restored(value: Any) -> Any:
    """Return what ``_plain`` made a dictionary of."""
    if not (isinstance(value, dict) and PART in value):
        return value
    fields = dict(value)
    return KINDS[fields.pop(PART)](**{name: _restored(field) for name, field in fields.items()})
