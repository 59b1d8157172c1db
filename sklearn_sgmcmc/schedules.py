"""Step size, temperature, adaptation and collection as functions of time. Burn-in, thinning and cycles live only here."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from numbers import Integral
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from sklearn_sgmcmc._parameters import Parameters
from sklearn_sgmcmc._typing import Coefficient, Control


@dataclass(frozen=True)
class Timeline:
    """A run laid out step by step: what the schedule decides for each of its T steps.

    step_size, temperature : (T,) multipliers of the base step size and temperature.
    adapt, collect : (T,) booleans.
    """

    step_size: NDArray[np.float64]
    temperature: NDArray[np.float64]
    adapt: NDArray[np.bool_]
    collect: NDArray[np.bool_]

    def __len__(self) -> int:
        return len(self.step_size)

    def __getitem__(self, steps: slice) -> Timeline:
        """Return the part of the run in ``steps``: what one stage walks."""
        return Timeline(self.step_size[steps], self.temperature[steps], self.adapt[steps], self.collect[steps])

    def last_only(self) -> Timeline:
        """Return the same run with nothing kept but its last state: an optimiser's."""
        collect = np.zeros_like(self.collect)
        collect[-1] = True
        return replace(self, collect=collect, adapt=~collect)

    def controls(self, step_size: Coefficient, temperature: Coefficient) -> Iterator[Control]:
        """Yield the T controls of a run with the given base step size and temperature."""
        columns = (self.step_size.tolist(), self.temperature.tolist(), self.adapt.tolist(), self.collect.tolist())
        last: tuple[float, float, bool, bool] | None = None
        for now in zip(*columns, strict=True):
            if now != last:  # a run at constant step makes only a handful of controls
                control = Control(step_size * now[0], temperature * now[1], now[2], now[3])
                last = now
            yield control


@dataclass(eq=False)
class Schedule(Parameters):
    """Base of all schedules: dimensionless multipliers of the learning rate and of the temperature.

    Attributes
    ----------
    periodic : bool
        Whether the step size returns, so that draws from all parts of a run have one law.
    """

    periodic: ClassVar[bool] = False

    def check(self) -> None:
        """Raise ValueError if a field lies outside its domain."""

    def step_size(self, t: NDArray[np.int64], n_steps: int, steps_per_epoch: float) -> NDArray[np.float64]:
        """Return the step-size multiplier (> 0) at steps ``t`` = 0 ... n_steps - 1."""
        return np.ones(len(t))

    def temperature(self, t: NDArray[np.int64], n_steps: int) -> NDArray[np.float64]:
        """Return the temperature multiplier (>= 0) at steps ``t``."""
        return np.ones(len(t))

    def draw_weight(self, step_size: NDArray[np.float64], temperature: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return how much sampling time each step counts for: draws are kept at equal increments of its sum."""
        return step_size

    def timeline(self, *, n_steps: int, steps_per_epoch: float, burn_in: float, n_draws: int) -> Timeline:
        """Lay out a run of ``n_steps`` that keeps at most ``n_draws`` states after the share ``burn_in`` of its steps.

        If fewer sampling steps than ``n_draws`` are left after burn-in, each of them is kept. Raises ValueError if none is left.
        """
        self.check()
        t = np.arange(n_steps)
        step_size = self.step_size(t, n_steps, steps_per_epoch)
        temperature = self.temperature(t, n_steps)
        first = min(int(burn_in * n_steps), n_steps - 1)
        weight = self.draw_weight(step_size, temperature).copy()
        weight[:first] = 0.0
        if not (weight > 0).any():
            raise ValueError(
                f"schedule={self!r} has no sampling step among the last {n_steps - first} of {n_steps} steps: "
                "increase max_iter (n_steps), lower burn_in, or let it sample for longer."
            )
        collect = _equal_increments(weight, n_draws)
        adapt = t < np.argmax(collect)
        return Timeline(step_size, temperature, adapt, collect)


@dataclass(eq=False)
class Constant(Schedule):
    """The same step size and temperature throughout.

    Examples
    --------
    >>> from sklearn_sgmcmc.schedules import Constant
    >>> run = Constant().timeline(n_steps=4, steps_per_epoch=1.0, burn_in=0.0, n_draws=2)
    >>> run.step_size.tolist(), run.collect.tolist()
    ([1.0, 1.0, 1.0, 1.0], [False, True, False, True])
    """


@dataclass(eq=False)
class StepDecay(Schedule):
    """The step size falls by a factor at regular epochs: eps_0 * factor ** floor(epoch / every).

    Source: Kim, Song & Liang 2020, equation 3.

    Parameters
    ----------
    factor : float in (0, 1], default 0.5
        Dimensionless.
    every : float > 0 or None, default None
        Epochs between falls; None is a tenth of the run, as in the paper's Landsat experiment.

    Examples
    --------
    >>> from sklearn_sgmcmc.schedules import StepDecay
    >>> run = StepDecay(factor=0.5, every=2).timeline(n_steps=6, steps_per_epoch=1.0, burn_in=0.0, n_draws=2)
    >>> run.step_size.tolist()
    [1.0, 1.0, 0.5, 0.5, 0.25, 0.25]
    """

    factor: float = 0.5
    every: float | None = None

    def check(self) -> None:
        """Raise ValueError if a field lies outside its domain."""
        self.check_field("factor", "a number in (0, 1]", lambda value: 0 < value <= 1)
        self.check_field("every", "a number of epochs > 0, or None", lambda value: value is None or value > 0)

    def step_size(self, t: NDArray[np.int64], n_steps: int, steps_per_epoch: float) -> NDArray[np.float64]:
        """Return factor ** floor(epoch / every)."""
        every = max(n_steps / 10.0, 1.0) if self.every is None else self.every * steps_per_epoch
        return np.asarray(self.factor ** np.floor(t / every), dtype=np.float64)


@dataclass(eq=False)
class Polynomial(Schedule):
    """The step size falls as (1 + t / offset) ** -gamma.

    Source: Welling & Teh 2011, a (b + t) ** -gamma with a = eps_0 b ** gamma; gamma in (0.5, 1] makes the sum of the steps
    infinite and that of their squares finite.

    Parameters
    ----------
    gamma : float in (0.5, 1], default 0.55
        Dimensionless.
    offset : float > 0 or None, default None
        b, in steps; None is a tenth of the run.

    Examples
    --------
    >>> from sklearn_sgmcmc.schedules import Polynomial
    >>> run = Polynomial(gamma=1.0, offset=2).timeline(n_steps=4, steps_per_epoch=1.0, burn_in=0.0, n_draws=2)
    >>> run.step_size.round(2).tolist()
    [1.0, 0.67, 0.5, 0.4]
    """

    gamma: float = 0.55
    offset: float | None = None

    def check(self) -> None:
        """Raise ValueError if a field lies outside its domain."""
        self.check_field("gamma", "a number in (0.5, 1]", lambda value: 0.5 < value <= 1)
        self.check_field("offset", "a number of steps > 0, or None", lambda value: value is None or value > 0)

    def step_size(self, t: NDArray[np.int64], n_steps: int, steps_per_epoch: float) -> NDArray[np.float64]:
        """Return (1 + t / offset) ** -gamma."""
        offset = max(n_steps / 10.0, 1.0) if self.offset is None else self.offset
        return np.asarray((1.0 + t / offset) ** -self.gamma, dtype=np.float64)


@dataclass(eq=False)
class Cyclical(Schedule):
    """Cosine cycles: each starts with long noise-free steps that explore and ends with short ones that sample.

    eps_k = (eps_0 / 2) [cos(pi mod(k - 1, L) / L) + 1],   L = ceil(T / n_cycles), k = 1 ... T.

    Source: Zhang et al. 2020 (cyclical SG-MCMC), equation 1 and Algorithm 1. Draws come from the sampling parts only, at equal
    numbers of steps.

    Parameters
    ----------
    n_cycles : int >= 1, default 4
        Cycles in the run, burn-in included.
    exploration : float in [0, 1), default 0.5
        Share of each cycle that runs at temperature 0.

    Examples
    --------
    >>> from sklearn_sgmcmc.schedules import Cyclical
    >>> run = Cyclical(n_cycles=2).timeline(n_steps=8, steps_per_epoch=1.0, burn_in=0.0, n_draws=2)
    >>> run.step_size.round(2).tolist(), run.temperature.tolist()
    ([1.0, 0.85, 0.5, 0.15, 1.0, 0.85, 0.5, 0.15], [0.0, 0.0, 1.0, 1.0, 0.0, 0.0, 1.0, 1.0])
    """

    n_cycles: int = 4
    exploration: float = 0.5

    periodic: ClassVar[bool] = True

    def check(self) -> None:
        """Raise ValueError if a field lies outside its domain."""
        self.check_field("n_cycles", "an integer >= 1", lambda value: isinstance(value, Integral) and int(value) >= 1)
        self.check_field("exploration", "a number in [0, 1)", lambda value: 0 <= value < 1)

    def _phase(self, t: NDArray[np.int64], n_steps: int) -> NDArray[np.float64]:
        length = -(-n_steps // self.n_cycles)
        return np.asarray((t % length) / length, dtype=np.float64)

    def step_size(self, t: NDArray[np.int64], n_steps: int, steps_per_epoch: float) -> NDArray[np.float64]:
        """Return (cos(pi phase) + 1) / 2."""
        return np.asarray((np.cos(np.pi * self._phase(t, n_steps)) + 1.0) / 2.0, dtype=np.float64)

    def temperature(self, t: NDArray[np.int64], n_steps: int) -> NDArray[np.float64]:
        """Return 0 while exploring, 1 while sampling."""
        return np.where(self._phase(t, n_steps) < self.exploration, 0.0, 1.0)

    def draw_weight(self, step_size: NDArray[np.float64], temperature: NDArray[np.float64]) -> NDArray[np.float64]:
        """Count the steps of the sampling parts equally."""
        return (temperature > 0).astype(np.float64)


@dataclass(eq=False)
class Annealed(Schedule):
    """The temperature falls as 1 / (amplitude t ** gamma), t = 1, 2, ..., and is 0 after the exploration: refinement.

    Source: Chen, Carlson, Gan, Li & Carin 2016, section 4: inverse temperatures A t ** gamma, then a limit of zero temperature.

    Parameters
    ----------
    amplitude : float >= 1e-18, default 1
        A, dimensionless.
    gamma : float > 0, default 0.5
        Dimensionless; the paper has 0.3 to 0.8.
    exploration : float in (0, 1], default 0.5
        Share of the run before refinement.

    Examples
    --------
    >>> from sklearn_sgmcmc.schedules import Annealed
    >>> run = Annealed().timeline(n_steps=4, steps_per_epoch=1.0, burn_in=0.0, n_draws=2)
    >>> run.temperature.round(2).tolist()
    [1.0, 0.71, 0.0, 0.0]
    """

    amplitude: float = 1.0
    gamma: float = 0.5
    exploration: float = 0.5

    def check(self) -> None:
        """Raise ValueError if a field lies outside its domain."""
        self.check_field("amplitude", "a number >= 1e-18", lambda value: value >= 1e-18)
        self.check_field("gamma", "a number > 0", lambda value: value > 0)
        self.check_field("exploration", "a number in (0, 1]", lambda value: 0 < value <= 1)

    def temperature(self, t: NDArray[np.int64], n_steps: int) -> NDArray[np.float64]:
        """Return 1 / (A (t + 1) ** gamma) while exploring, then 0."""
        with np.errstate(over="ignore"):  # where the inverse temperature overflows, the temperature is 0
            falling = 1.0 / (self.amplitude * (t + 1.0) ** self.gamma)
        return np.where(t < self.exploration * n_steps, falling, 0.0)


SCHEDULES: dict[str, type[Schedule]] = {
    "constant": Constant,
    "step": StepDecay,
    "polynomial": Polynomial,
    "cyclical": Cyclical,
    "annealed": Annealed,
}


def _equal_increments(weight: NDArray[np.float64], n_draws: int) -> NDArray[np.bool_]:
    """Mark n_draws different steps near those at which the running sum of ``weight`` passes the n_draws-ths of its total."""
    collect = np.zeros(len(weight), dtype=np.bool_)
    candidates = np.flatnonzero(weight > 0)
    if len(candidates) <= n_draws:
        collect[candidates] = True
    else:
        share = np.cumsum(weight[candidates]) / np.sum(weight[candidates]) * n_draws
        marks = np.searchsorted(share, np.arange(1, n_draws + 1) - 1e-9 * n_draws)
        order = np.arange(n_draws)
        marks = np.maximum.accumulate(marks - order) + order  # two marks on one step: the second moves to the next
        collect[candidates[np.minimum(marks, len(candidates) - n_draws + order)]] = True
    return collect
