"""Priors of the network's weights and biases, on the scale of standardised inputs.

A prior is a record of hyperparameters that knows no network. Placed on a network's layout it becomes a density: -log p over the
flat parameters (C, P) and its gradient, whose constants are tensors made once, outside the loop.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import torch

from sklearn_sgmcmc._checks import check_flag
from sklearn_sgmcmc._parameters import Parameters
from sklearn_sgmcmc._typing import Coefficient, PerChain, Theta
from sklearn_sgmcmc.network import Layout

Scale: TypeAlias = Coefficient | tuple[float, ...] | list[float]
"""One number, one per chain as a float64 tensor (C, 1), or one per layer of connections, the output layer last."""

HALF_LOG_2PI = 0.5 * math.log(2.0 * math.pi)
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

    initial_scale : standard deviation that random initial weights do not exceed, one number or (P,).
    """

    def __init__(self, scale: torch.Tensor) -> None:
        self.initial_scale = scale.amax(0) if scale.ndim else scale

    def grad(self, theta: Theta) -> Theta:
        """Return the gradient of -log p, shape (C, P)."""
        raise NotImplementedError

    def value(self, theta: Theta) -> PerChain:
        """Return -log p in nats, summed in float64, shape (C,)."""
        raise NotImplementedError


@dataclass(eq=False)
class Prior(Parameters):
    """Base of all priors."""

    def check(self) -> None:
        """Raise ValueError if a field lies outside its domain."""

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
    fan_in: bool = field(default=False, kw_only=True)

    def check(self) -> None:
        """Raise ValueError if a field lies outside its domain."""
        self.check_field("scale", SCALE_RULE, every(lambda scale: (scale >= 1e-6) & (scale <= 1e6)))
        check_flag(f"{type(self).__name__}.fan_in", self.fan_in)

    def placed_scale(self, layout: Layout) -> torch.Tensor:
        """Return the scale of each parameter as it broadcasts against (C, P)."""
        scale = self.per_parameter("scale", layout)
        return scale * torch.where(layout.is_weight, layout.n_in.rsqrt(), 1.0).unsqueeze(0) if self.fan_in else scale


@dataclass(eq=False)
class Normal(ScalePrior):
    """Independent N(0, scale^2) on every weight and bias.

    Parameters
    ----------
    scale : float between 1e-6 and 1e6 or tuple of such floats, default 1
        Standard deviation, in units of a weight between standardised quantities; a tuple has one value per layer of connections,
        len(hidden_layer_sizes) + 1 in all; a (C, 1) tensor has one per chain.
    fan_in : bool, default False
        Whether the scale of connection weights is divided by sqrt(n_in), n_in the inputs of their layer (Neal 1996, section 2.1):
        then the outputs keep their prior scale however wide the network is. Biases keep ``scale``.
    """

    def place(self, layout: Layout) -> Density:
        """Return the density over the parameters of a network."""
        return NormalDensity(self.placed_scale(layout))


class NormalDensity(Density):
    """Independent N(0, s^2)."""

    def __init__(self, scale: torch.Tensor) -> None:
        super().__init__(scale)
        self._precision = Constant(1.0 / (scale * scale))
        self._log_norm = Constant(scale.log() + HALF_LOG_2PI)

    def grad(self, theta: Theta) -> Theta:
        """Return theta / s^2."""
        return theta * self._precision.like(theta)

    def value(self, theta: Theta) -> PerChain:
        """Return sum theta^2 / (2 s^2) + log(s sqrt(2 pi))."""
        theta = theta.double()
        return (0.5 * theta.square() * self._precision.like(theta) + self._log_norm.like(theta)).sum(1)


@dataclass(eq=False)
class Laplace(ScalePrior):
    """Independent double exponentials, density exp(-|w| / b) / (2 b), on every weight and bias: many small weights, some large.

    The gradient sign(w) / b jumps at 0, so that no draw is exactly 0.

    Parameters
    ----------
    scale : float between 1e-6 and 1e6 or tuple of such floats, default 1
        b, in units of a weight between standardised quantities (the standard deviation is b sqrt 2); a tuple as for ``Normal``.
    fan_in : bool, default False
        Whether b is divided by sqrt(n_in) for connection weights, as for ``Normal``.
    """

    def place(self, layout: Layout) -> Density:
        """Return the density over the parameters of a network."""
        return LaplaceDensity(self.placed_scale(layout))


class LaplaceDensity(Density):
    """Independent exp(-|w| / b) / (2 b)."""

    def __init__(self, scale: torch.Tensor) -> None:
        super().__init__(scale)
        self._rate = Constant(1.0 / scale)
        self._log_norm = Constant((2.0 * scale).log())

    def grad(self, theta: Theta) -> Theta:
        """Return sign(theta) / b."""
        return theta.sign() * self._rate.like(theta)

    def value(self, theta: Theta) -> PerChain:
        """Return sum |theta| / b + log(2 b)."""
        theta = theta.double()
        return (theta.abs() * self._rate.like(theta) + self._log_norm.like(theta)).sum(1)


@dataclass(eq=False)
class StudentT(ScalePrior):
    """Independent Student t, density proportional to (1 + w^2 / (df s^2)) ** (-(df + 1) / 2): heavy tails leave large weights be.

    Parameters
    ----------
    scale : float between 1e-6 and 1e6 or tuple of such floats, default 1
        s, in units of a weight between standardised quantities; a tuple as for ``Normal``.
    df : float in [0.1, 1e6], default 4
        Degrees of freedom, dimensionless: 1 is the Cauchy law; the variance s^2 df / (df - 2) is finite for df > 2.
    fan_in : bool, default False
        Whether s is divided by sqrt(n_in) for connection weights, as for ``Normal``.
    """

    df: Coefficient = 4.0

    def check(self) -> None:
        """Raise ValueError if a field lies outside its domain."""
        super().check()
        self.check_field("df", "a number in [0.1, 1e6]", lambda df: (df >= 0.1) & (df <= 1e6))

    def place(self, layout: Layout) -> Density:
        """Return the density over the parameters of a network."""
        return StudentTDensity(self.placed_scale(layout), self.per_parameter("df", layout))


class StudentTDensity(Density):
    """Independent Student t with scale s and df degrees of freedom."""

    def __init__(self, scale: torch.Tensor, df: torch.Tensor) -> None:
        super().__init__(scale)
        self._power = Constant(df + 1.0)
        self._spread = Constant(df * scale * scale)
        self._log_norm = Constant(
            scale.log() + 0.5 * (df * math.pi).log() + torch.lgamma(df / 2.0) - torch.lgamma((df + 1.0) / 2.0)
        )

    def grad(self, theta: Theta) -> Theta:
        """Return (df + 1) theta / (df s^2 + theta^2)."""
        return theta * self._power.like(theta) / (theta.square() + self._spread.like(theta))

    def value(self, theta: Theta) -> PerChain:
        """Return sum (df + 1) / 2 log(1 + theta^2 / (df s^2)) + log of the normalising constant."""
        theta = theta.double()
        tail = torch.log1p(theta.square() / self._spread.like(theta))
        return (0.5 * self._power.like(theta) * tail + self._log_norm.like(theta)).sum(1)


PRIORS: dict[str, type[Prior]] = {"normal": Normal, "laplace": Laplace, "student_t": StudentT}


def every(holds: Callable[[torch.Tensor], torch.Tensor]) -> Callable[[Any], torch.Tensor]:
    """Return the rule that a value is a number, one per layer or one per chain, and that ``holds`` for each."""

    def rule(value: Any) -> torch.Tensor:
        values = torch.as_tensor(value, dtype=torch.float64)
        n_axes = values.ndim if isinstance(value, torch.Tensor) else int(isinstance(value, tuple | list))
        return holds(values) & (values.ndim == n_axes)

    return rule
