"""What a sampler is: a hyperparameter record with two pure functions, ``init`` and ``step``."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import Any, ClassVar, Literal, Self

import torch

from sklearn_sgmcmc._checks import rounded_down
from sklearn_sgmcmc._parameters import Parameters
from sklearn_sgmcmc._typing import Coefficient, Control, Noise, PerChain, Potential, Theta

Law = Literal["exact", "small step", "biased", "optimiser"]

LARGEST = 1e18
"""Largest coefficient of a sampler, and learning rate: products of two of them lie within float32."""


def map_state(state: Any, change: Callable[[Any], Any]) -> Any:
    """Return a sampler's state with ``change`` applied to each of its fields, all of which have the leading chain axis."""
    return type(state)(*(change(field) for field in state))


class Sampler(Parameters):
    """Base of all samplers.

    A sampler is a dataclass: its fields are its hyperparameters, each a float or a (C, 1) tensor. It knows no data, network,
    schedule or device. ``init`` returns its state, a NamedTuple with ``theta`` (C, P) first whose fields all have the leading chain
    axis. ``step`` never writes to its arguments and never synchronises with the host.

    Attributes
    ----------
    law : "exact", "small step", "biased" or "optimiser"
        Exact at any step size; the target as epsilon -> 0; another law at any fixed hyperparameters; keeps only the last state of
        each chain.
    affine : "yes", "frozen" or "no"
        Whether a step on a Gaussian target is an affine map plus noise, or is one once adaptation is held.
    needs : frozenset of str
        What the potential must offer besides a gradient: "full_batch", "hvp", "fisher", "fresh".
    min_params : int
        The least P.
    default_learning_rate : float
        epsilon * N when the estimator's ``learning_rate`` is None.
    step_is_learning_rate : bool
        Whether the step size is used as it stands, without the division by N (Adam).
    allows_zero_temperature : bool
        Whether tau = 0 is a valid run.
    source : str
        The paper and the algorithm in it.
    use : str
        When to use it, in a sentence.
    """

    law: ClassVar[Law]
    affine: ClassVar[Literal["yes", "frozen", "no"]] = "yes"
    needs: ClassVar[frozenset[str]] = frozenset()
    min_params: ClassVar[int] = 1
    default_learning_rate: ClassVar[float]
    step_is_learning_rate: ClassVar[bool] = False
    allows_zero_temperature: ClassVar[bool] = True
    source: ClassVar[str]
    use: ClassVar[str]
    _largest: ClassVar[float] = LARGEST

    @property
    def stability_limit(self) -> Coefficient | None:
        """Largest step size times curvature at which the chain is stable on a Gaussian; None if curvature does not decide."""
        return 2.0

    @property
    def needs_independent_batches(self) -> bool:
        """Whether the rows of every batch must be drawn independently (a correction for gradient noise is on)."""
        return False

    @property
    def noise_pattern(self) -> Any:
        """What decides how many random numbers a step draws, beyond the class: chains of one batch must agree in it."""
        return None

    def check(self) -> None:
        """Raise ValueError if a field lies outside its domain."""

    def check_run(self, largest_step: Coefficient, least_temperature: Coefficient) -> None:
        """Raise ValueError if the sampler is not defined somewhere on a run with these extremes of each chain's controls."""

    def effective_temperature(self, temperature: float) -> float | None:
        """Return the temperature that the chain really samples at as epsilon -> 0, or None if there is no such number."""
        return temperature

    def at_fixed_step(self) -> Self:
        """Return the sampler for a run whose step size is given: without any adaptation of it."""
        return self

    def runaway(self, state: Any) -> PerChain | None:
        """Return which chains are where the sampler has no stationary law, (C,) booleans; None if it always has one."""
        return None

    runaway_advice: ClassVar[str] = ""

    def gradient_noise_gain(self, state: Any) -> Coefficient | Theta | None:
        """Return k in k eps s2 / (2 tau), the ratio of the gradients' noise (variance s2) to the noise that the sampler injects.

        1 is SGLD's. None means that the sampler absorbs the noise of its gradients. A drift made of past gradients or turned by a
        skew matrix carries more noise than this counts.
        """
        return 1.0

    def drift_gain(self, state: Any) -> Coefficient | Theta:
        """Return k in k eps E[g], the mean move of a slow parameter per step: 1 is SGLD's."""
        return 1.0

    def momentum_variance(self, temperature: float) -> float | None:
        """Return the variance of a momentum in equilibrium as epsilon -> 0; None if the state holds none."""
        return None

    def init(self, theta: Theta, potential: Potential, noise: Noise, control: Control) -> Any:
        """Return the state that starts at ``theta``."""
        raise NotImplementedError

    def step(self, state: Any, potential: Potential, noise: Noise, control: Control) -> Any:
        """Return the state after one step."""
        raise NotImplementedError


def scale(coefficient: Coefficient, tensor: torch.Tensor) -> torch.Tensor:
    """Return ``coefficient * tensor`` in the tensor's dtype.

    Coefficients are formed in float64 and rounded once, so that a float and a (C, 1) tensor give the same bits.
    """
    if isinstance(coefficient, torch.Tensor):
        return coefficient.to(tensor.dtype) * tensor
    return coefficient * tensor


def add_scaled(tensor: torch.Tensor, coefficient: Coefficient, other: torch.Tensor) -> torch.Tensor:
    """Return ``tensor + coefficient * other`` in one pass over memory.

    Both forms round once (a fused multiply-add), so that a float and a (C, 1) tensor give the same bits.
    """
    if isinstance(coefficient, torch.Tensor):
        return torch.addcmul(tensor, other, coefficient.to(tensor.dtype))
    return torch.add(tensor, other, alpha=coefficient)


def accumulate(own: torch.Tensor, coefficient: Coefficient, other: torch.Tensor) -> torch.Tensor:
    """Return ``add_scaled`` of the three, written over ``own``: a tensor that the step has made and nobody else holds."""
    if isinstance(coefficient, torch.Tensor):
        return own.addcmul_(other, coefficient.to(own.dtype))
    return own.add_(other, alpha=coefficient)


def average(memory: Coefficient, old: torch.Tensor, new: torch.Tensor) -> torch.Tensor:
    """Return the moving average ``memory * old + (1 - memory) * new``."""
    weight = 1.0 - memory
    return torch.lerp(old, new, weight.to(old.dtype) if isinstance(weight, torch.Tensor) else weight)


def plus(coefficient: Coefficient, tensor: torch.Tensor) -> torch.Tensor:
    """Return ``coefficient + tensor`` in the tensor's dtype."""
    if isinstance(coefficient, torch.Tensor):
        return coefficient.to(tensor.dtype) + tensor
    return coefficient + tensor


def sqrt(coefficient: Coefficient) -> Coefficient:
    """Return the square root of a coefficient."""
    return coefficient.sqrt() if isinstance(coefficient, torch.Tensor) else _by_torch(torch.sqrt, coefficient)


def exp(coefficient: Coefficient) -> Coefficient:
    """Return the exponential of a coefficient."""
    return coefficient.exp() if isinstance(coefficient, torch.Tensor) else _by_torch(torch.exp, coefficient)


@lru_cache(maxsize=4096)
def _by_torch(function: Callable[[torch.Tensor], torch.Tensor], value: float) -> float:
    """Return torch's value of a function, which is not always the last bit of the math module's: a float must equal a tensor."""
    return float(function(torch.tensor(value, dtype=torch.float64)))


def ratio(numerator: Coefficient, denominator: Coefficient) -> Coefficient:
    """Return numerator / denominator, and 0 where the denominator is 0."""
    if isinstance(numerator, torch.Tensor) or isinstance(denominator, torch.Tensor):
        below = torch.as_tensor(denominator, dtype=torch.float64)
        return torch.where(below > 0, numerator / below, 0.0)
    return numerator / denominator if denominator > 0 else 0.0


def check_noise_correction(sampler: Any, budget: Coefficient, largest_step: Coefficient, least_temperature: Coefficient) -> None:
    """Raise ValueError if eps V exceeds ``budget`` tau, the noise of the gradients what may be injected, somewhere on a run."""
    values = (sampler.gradient_noise_variance, budget, largest_step, least_temperature)
    variance, share, step, tau = (torch.as_tensor(value, dtype=torch.float64) for value in values)
    if not bool((step * variance <= share * tau).all()):
        largest = float((share * tau / variance).min())
        raise ValueError(
            f"{type(sampler).__name__}.gradient_noise_variance={sampler.gradient_noise_variance!r} times step_size must not exceed "
            f"{float(share.min()):g} * temperature all along the run, whose least temperature is {float(tau.min()):g}; "
            f"the largest admissible step_size is {rounded_down(largest)} (a learning_rate of N times that)."
        )


def in_unit_interval(value: Coefficient) -> bool | torch.Tensor:
    """Return whether 0 <= value < 1."""
    return (value >= 0) & (value < 1)


def positive(value: Coefficient) -> bool | torch.Tensor:
    """Return whether value > 0."""
    return value > 0


def not_negative(value: Coefficient) -> bool | torch.Tensor:
    """Return whether value >= 0."""
    return value >= 0
