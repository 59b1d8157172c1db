"""The bases: a prior is a record of hyperparameters, and a density is a prior placed on a network."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import numpy as np
import torch

from sklearn_sgmcmc._checks import check_real
from sklearn_sgmcmc._parameters import Parameters
from sklearn_sgmcmc._typing import Coefficient, PerChain, Theta
from sklearn_sgmcmc.network import Layout

Scale: TypeAlias = Coefficient | tuple[float, ...] | list[float]
"""One number, one per chain as a float64 tensor (C, 1), or one per layer of connections, the output layer last."""

HALF_LOG_2PI = 0.5 * math.log(2.0 * math.pi)
PEAK = 0.5
"""Width of a peak's core as a share of its scale: steps within it keep eps times the curvature below 1/8 at temperature 1."""
SCALE_RULE = "a number between 1e-6 and 1e6, or one such number per layer"


class Constant:
    """A float64 tensor that broadcasts against theta (C, P), with one copy per dtype and device; a 0-d one is a plain float."""

    def __init__(self, value: torch.Tensor) -> None:
        self.value = value if value.ndim else float(value)
        self._copies: dict[tuple[torch.dtype, torch.device], torch.Tensor] = {}

    def like(self, theta: Theta) -> Coefficient:
        """Return the constant in the dtype and on the device of ``theta``."""
        if not isinstance(self.value, torch.Tensor):
            return self.value
        key = (theta.dtype, theta.device)
        if key not in self._copies:
            self._copies[key] = self.value.to(device=theta.device, dtype=theta.dtype)
        return self._copies[key]


class Density:
    """A prior placed on a network: -log p over its parameters.

    Attributes
    ----------
    initial_scale : tensor, 0-d or (P,)
        Standard deviation that random initial weights do not exceed.
    threshold : tensor of shape (1, P) or (C, P), float64, or None
        Absolute values below which a parameter belongs to the prior's spike; 0 for those that have none, None if no parameter has
        one.
    prune : bool
        Whether predictions set the parameters below their threshold to 0.
    narrowest_core : float
        Least width of a core that steps must resolve (a spike's standard deviation, the width of a peak), inf if the density has
        none but its curvature.
    """

    threshold: torch.Tensor | None = None
    prune: bool = False
    narrowest_core: float = math.inf

    def __init__(self, scale: torch.Tensor) -> None:
        self.initial_scale = scale.amax(0) if scale.ndim else scale

    def grad(self, theta: Theta) -> Theta:
        """Return the gradient of -log p, shape (C, P): ``precision`` times theta, or what a density says instead."""
        precision = self.precision(theta)
        if precision is None:
            raise NotImplementedError
        return precision * theta

    def add_grad(self, gradient: Theta, theta: Theta) -> None:
        """Add the gradient of -log p to ``gradient``."""
        gradient.add_(self.grad(theta))

    def precision(self, theta: Theta) -> torch.Tensor | None:
        """Return p, two-dimensional and broadcastable to (C, P), if the gradient is p theta; else None."""
        return None

    def value_and_precision(self, theta: Theta) -> tuple[PerChain, torch.Tensor | None]:
        """Return both."""
        return self.value(theta), self.precision(theta)

    def hvp(self, theta: Theta, vectors: torch.Tensor) -> torch.Tensor:
        """Return the Hessian of -log p times vectors (C, F, P): as it stands, for independent parameters."""
        return hessian_product(self.value, theta, torch.ones_like(theta))[:, None] * vectors

    def value(self, theta: Theta) -> PerChain:
        """Return -log p in nats, summed in float64, shape (C,)."""
        raise NotImplementedError


def hessian_product(value: Callable[[Theta], PerChain], theta: Theta, vector: Theta) -> Theta:
    """Return the Hessian of a function (C, P) -> (C,) times a vector, (C, P), by automatic differentiation."""
    with torch.enable_grad():
        leaf = theta.detach().requires_grad_()
        gradient = torch.autograd.grad(value(leaf).sum(), leaf, create_graph=True)[0]
        return torch.autograd.grad((gradient * vector).sum(), leaf)[0]


@dataclass(eq=False)
class Prior(Parameters):
    """Base of all priors."""

    def check(self) -> None:
        """Raise ValueError if a field lies outside its domain."""

    @property
    def phases(self) -> tuple[tuple[float, Prior], ...]:
        """The prior of each part of a run, with the share of the steps at which it begins."""
        return ((0.0, self),)

    @property
    def for_mode(self) -> Prior:
        """The prior under which a mode is sought before sampling begins: itself, unless its mode is where no draw would be."""
        return self

    def place(self, layout: Layout) -> Density:
        """Return the density over the parameters of a network; raise ValueError if a field does not fit its layers."""
        raise NotImplementedError

    def per_parameter(self, name: str, layout: Layout) -> torch.Tensor:
        """Return a field in float64 as it broadcasts against (C, P): 0-d, (C, 1), or (1, P) where it has one value per layer."""
        value = getattr(self, name)
        if not isinstance(value, tuple | list):
            return torch.as_tensor(value, dtype=torch.float64)
        if len(value) != layout.n_layers:
            raise ValueError(
                f"{type(self).__name__}.{name}={value!r} has {len(value)} values, and the network has {layout.n_layers} layers of "
                f"connections: give one per layer, len(hidden_layer_sizes) + 1 = {layout.n_layers} values, or one number for all."
            )
        return torch.tensor(value, dtype=torch.float64)[layout.layer].unsqueeze(0)


@dataclass(eq=False)
class ScalePrior(Prior):
    """Base of the priors of independent parameters that differ in scale alone."""

    scale: Scale = 1.0
    fan_in: bool | float = field(default=False, kw_only=True)

    def check(self) -> None:
        """Raise ValueError if a field lies outside its domain."""
        self.check_field("scale", SCALE_RULE, every(lambda scale: (scale >= 1e-6) & (scale <= 1e6)))
        if not isinstance(self.fan_in, bool | np.bool_):
            fix = "True is 1 and False keeps the scale in all layers"
            check_real(f"{type(self).__name__}.fan_in", self.fan_in, rule="True, False or a number >= 1", fix=fix, low=1.0)

    def placed_scale(self, layout: Layout) -> torch.Tensor:
        """Return the scale of each parameter as it broadcasts against (C, P)."""
        scale = self.per_parameter("scale", layout)
        if not self.fan_in:
            return scale
        factor = torch.where(layout.is_weight, (layout.n_in / float(self.fan_in)).clamp_min(1.0).rsqrt(), 1.0)
        return scale if bool((factor == 1.0).all()) else scale * factor.unsqueeze(0)


def every(holds: Callable[[torch.Tensor], torch.Tensor]) -> Callable[[Any], torch.Tensor]:
    """Return the rule that a value is a number, one per layer or one per chain, and that ``holds`` for each."""

    def rule(value: Any) -> torch.Tensor:
        values = torch.as_tensor(value, dtype=torch.float64)
        n_axes = values.ndim if isinstance(value, torch.Tensor) else int(isinstance(value, tuple | list))
        return holds(values) & (values.ndim == n_axes)

    return rule
