"""What a saved model consists of: parameters, numpy arrays and plain Python values, with the versions that wrote them.

No tensor, function or class of this package but the estimator, its sampler and what the user passed is in the file: it loads on a
machine without a GPU, and after a change of the internals.
"""

from __future__ import annotations

import dataclasses
import warnings
from typing import Any

from sklearn.exceptions import InconsistentVersionWarning

import sklearn_sgmcmc
from sklearn_sgmcmc.batches import Scaling
from sklearn_sgmcmc.diagnostics import Measured
from sklearn_sgmcmc.likelihoods import Categorical, FixedNoise, HeteroscedasticNoise, HomoscedasticNoise
from sklearn_sgmcmc.network import MLP

FORMAT = 1
"""Version of what ``packed`` returns; raised whenever an older release could not read it any more."""

KINDS: dict[str, type[Any]] = {
    kind.__name__: kind for kind in (Categorical, FixedNoise, HeteroscedasticNoise, HomoscedasticNoise, MLP, Measured, Scaling)
}
"""Classes of fitted attributes that are saved by name and fields."""


def packed(attributes: dict[str, Any]) -> dict[str, Any]:
    """Return the attributes of an estimator as they are saved."""
    parts = {name: (type(value).__name__, _fields(value)) for name, value in attributes.items() if type(value) in KINDS.values()}
    plain = {name: value for name, value in attributes.items() if name not in parts}
    return plain | {"_parts": parts, "_format": FORMAT, "_package_version": sklearn_sgmcmc.__version__}


def unpacked(saved: dict[str, Any], estimator: str) -> dict[str, Any]:
    """Return the attributes of the named estimator from what ``packed`` returned.

    Raises ValueError if the format is newer than this release; warns, as scikit-learn does, if another release has written it.
    """
    attributes = dict(saved)
    found, parts = attributes.pop("_format", 0), attributes.pop("_parts", {})
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
    return attributes | {name: KINDS[kind](**fields) for name, (kind, fields) in parts.items()}


def _fields(value: Any) -> dict[str, Any]:
    """Return the fields of a named tuple or a dataclass."""
    if isinstance(value, tuple):
        return dict(value._asdict())  # type: ignore[attr-defined]
    return {field.name: getattr(value, field.name) for field in dataclasses.fields(value)}
