"""From an estimator's parameters to checked objects: where "one quantity, one owner" is decided."""

from __future__ import annotations

import dataclasses
import math
import numbers
import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal, NamedTuple, TypeVar

import numpy as np
import torch

from sklearn_sgmcmc._checks import check_choice, check_flag, check_integer, check_real
from sklearn_sgmcmc._parameters import Parameters
from sklearn_sgmcmc.network import ACTIVATIONS
from sklearn_sgmcmc.priors import PRIORS, Normal, Prior
from sklearn_sgmcmc.samplers._base import LARGEST, Sampler
from sklearn_sgmcmc.samplers.kinetic import SGHMC
from sklearn_sgmcmc.samplers.microcanonical import MCLMC
from sklearn_sgmcmc.samplers.registry import SAMPLERS
from sklearn_sgmcmc.schedules import SCHEDULES, Constant, Schedule

MINIBATCH_ROWS = 64
"""Rows per step that ``batch_size="auto"`` takes of data too large for all of them."""
FEWEST_STEPS, MOST_STEPS = 1000, 20_000
"""Bounds of the steps of ``max_iter=None`` at full batch, which grow with the rows: the posterior of more rows is stiffer ..."""
MINIBATCH_STEPS = 16_000
"""... and at least this many steps with minibatches."""

LARGEST_ENERGY_ERROR, ENERGY_ERROR_SHARE, FEWEST_ROWS = 0.3, 0.25, 0.1
"""sampler="auto" at full batch: largest energy error per sqrt(P), that per (row / parameter), fewest rows / parameter."""

WARM_UP_ROWS = 64
"""Rows per step of the warm-up."""
WARM_UP_EPOCHS = 50
"""``warm_up="auto"`` takes so many or the estimator's own number of steps, the larger, but no more epochs than ``max_iter``."""

LONGEST_RUN = 10**8
"""Most gradient steps of a run: weeks."""

P = TypeVar("P", bound=Parameters)


Rate = Literal["given", "default", "auto"]
"""Whose the learning rate is: the user's, the sampler's capped by curvature, or that which the run finds."""


def _at_full_batch(rows_per_parameter: float) -> Sampler:
    """Return what sampler="auto" is at full batch.

    The energy error of a microcanonical step is shared by all parameters, and where rows decide on few of them it heats the rows:
    noise levels grow. So it is held down in proportion, until such steps would be too short to be of use.
    """
    if rows_per_parameter < FEWEST_ROWS:
        return SGHMC()
    return MCLMC(energy_error=min(LARGEST_ENERGY_ERROR, ENERGY_ERROR_SHARE * rows_per_parameter), memory=200.0)


class Settings(NamedTuple):
    """The checked parameters of one fit; objects are copies that the fit may alter."""

    hidden: tuple[int, ...]
    activation: str
    sampler: Sampler
    automatic: bool
    temperature: float
    learning_rate: float
    rate: Rate
    schedule: Schedule
    prior: Prior
    warm_up: int | None
    least_warm_up: tuple[int, int]
    steps_per_row: int
    max_iter: int | None
    burn_in: float
    n_draws: int
    n_chains: int
    batch_size: int | None
    device: torch.device
    dtype: torch.dtype
    n_jobs: int | None
    verbose: int
    checkpoint: Path | None

    def at(self, *, full_batch: bool, rows_per_parameter: float) -> Settings:
        """Return the settings with what sampler="auto" stands for.

        The sampler for full batches where nothing stands against it: it needs all rows at every step, a positive temperature
        throughout, a smooth prior, no bias factor, and to choose its step. The estimator's own otherwise.
        """
        steady = isinstance(self.schedule, Constant) and self.temperature > 0 and self.rate == "auto"
        smooth = all(isinstance(prior, Normal) for _, prior in self.prior.phases)
        if not (self.automatic and full_batch and steady and smooth):
            return self
        sampler = _at_full_batch(rows_per_parameter)
        return self._replace(sampler=sampler, learning_rate=sampler.default_learning_rate)

    def n_steps(self, n_rows: int, batch_size: int) -> int:
        """Return the number of gradient steps of a run over ``n_rows`` rows in batches."""
        full = batch_size >= n_rows
        if self.max_iter is not None and self.max_iter * max(1, n_rows // batch_size) > LONGEST_RUN:
            raise ValueError(f"max_iter={self.max_iter} makes more than {LONGEST_RUN:g} gradient steps; use fewer epochs.")
        if self.max_iter is None:
            least = min(max(self.steps_per_row * n_rows, FEWEST_STEPS), MOST_STEPS) if full else MINIBATCH_STEPS
            return max(1, -(-self.epochs(n_rows, batch_size, least) * n_rows // batch_size))
        return self.max_iter if full else max(1, -(-self.max_iter * n_rows // batch_size))

    def warm_up_steps(self, n_rows: int, *, full_batch: bool) -> int:
        """Return the number of steps of the warm-up over ``n_rows`` rows, of a run at full batch or with minibatches."""
        if self.warm_up is not None:
            return -(-self.warm_up * n_rows // min(n_rows, WARM_UP_ROWS))
        if self.sampler.law == "optimiser":
            return 0
        steps_per_epoch = n_rows / min(n_rows, WARM_UP_ROWS)
        n_steps = max(self.least_warm_up[0 if full_batch else 1], math.ceil(WARM_UP_EPOCHS * steps_per_epoch))
        return n_steps if self.max_iter is None else min(n_steps, math.ceil(self.max_iter * steps_per_epoch))

    def first_steps(self, n_rows: int) -> int:
        """Return the number of steps of a stream's warm-up on its first chunk: "auto" does not pass it over and over."""
        n_steps = self.warm_up_steps(n_rows, full_batch=True)
        return n_steps if self.warm_up is not None else min(n_steps, self.least_warm_up[0])

    def unit(self, n_data: float) -> float:
        """Return learning_rate / step_size: N, the total weight, or 1 for a sampler that steps by the learning rate itself."""
        return 1.0 if self.sampler.step_is_learning_rate else n_data

    @staticmethod
    def epochs(n_rows: int, batch_size: int, n_steps: int) -> int:
        """Return the epochs that ``n_steps`` steps take, rounded up."""
        return max(1, -(-n_steps * min(batch_size, n_rows) // n_rows))


def resolve(estimator: Any) -> Settings:
    """Check the shared parameters of an estimator and return what they stand for."""
    check_flag("standardize", estimator.standardize)
    automatic = isinstance(estimator.sampler, str) and estimator.sampler == "auto"
    sampler = _sampler(estimator.sampler, estimator._automatic if automatic else None, estimator.bias_factor)
    temperature = _temperature(estimator.temperature, sampler)
    rate = _rate(estimator.learning_rate)
    if rate == "given":
        sampler = _at_fixed_step(estimator.sampler, sampler, estimator.learning_rate)
    fix = f"'auto' finds one, None uses the sampler's default, {sampler.default_learning_rate}"
    return Settings(
        hidden=_hidden(estimator.hidden_layer_sizes),
        activation=check_choice("activation", estimator.activation, ACTIVATIONS),
        sampler=sampler,
        automatic=automatic and estimator.bias_factor is None,
        temperature=temperature,
        learning_rate=check_real(
            "learning_rate",
            estimator.learning_rate,
            rule=f"a number in (0, {LARGEST:g}], 'auto' or None",
            fix=fix,
            high=LARGEST,
            open_low=True,
        )
        if rate == "given"
        else sampler.default_learning_rate,
        rate=rate,
        schedule=_object("schedule", estimator.schedule, Schedule, SCHEDULES),
        prior=_prior(estimator.prior, estimator.prior_scale),
        warm_up=_warm_up(estimator.warm_up),
        least_warm_up=estimator._least_warm_up,
        steps_per_row=estimator._steps_per_row,
        max_iter=None
        if estimator.max_iter is None
        else check_integer("max_iter", estimator.max_iter, low=1, fix="None chooses the number of epochs from the data"),
        burn_in=_burn_in(estimator.burn_in),
        n_draws=check_integer("n_draws", estimator.n_draws, low=1, fix="50 is the default"),
        n_chains=check_integer("n_chains", estimator.n_chains, low=1, fix="4 is the default"),
        batch_size=_batch_size(estimator.batch_size, sampler),
        device=_device(estimator.device),
        dtype=getattr(torch, check_choice("dtype", estimator.dtype, ("float32", "float64"))),
        n_jobs=_n_jobs(estimator.n_jobs),
        verbose=_verbose(estimator.verbose),
        checkpoint=_checkpoint(estimator.checkpoint),
    )


def _object(name: str, value: Any, base: type[P], registry: Mapping[str, type[P]]) -> P:
    """Return a named object, or a copy of the one given."""
    if isinstance(value, base) and type(value) is not base:
        for field, content in value.get_params().items():
            if isinstance(content, torch.Tensor) and field != "skew":
                raise ValueError(
                    f"{name}.{field.replace('__', '.')} is a tensor with one value per chain: an estimator's chains share one "
                    "value. Give a number, or search over numbers."
                )
        return dataclasses.replace(value)  # type: ignore[type-var]  # every Parameters class is a dataclass
    if not isinstance(value, str) or value not in registry:
        raise ValueError(
            f"{name}={value!r} is not known; choose one of {', '.join(map(repr, sorted(registry)))} "
            f"or pass a {base.__name__} object."
        )
    return registry[value]()


def _sampler(value: Any, automatic: Sampler | None, bias_factor: Any) -> Sampler:
    sampler = _object("sampler", automatic or value, Sampler, SAMPLERS)
    sampler.check()
    if bias_factor is not None:
        bias_factor = check_real("bias_factor", bias_factor, rule="a number >= 0 or None", fix="0 is plain SGLD")
        sampler = _with_bias(value, sampler, bias_factor)
    sampler.check()
    return sampler


def _at_fixed_step(value: Any, sampler: Sampler, learning_rate: Any) -> Sampler:
    """Return the sampler without adaptation of a step size that is given; an object that asks for both is refused."""
    fixed = sampler.at_fixed_step()
    changed = [name for name, own in sampler.get_params(deep=False).items() if getattr(fixed, name) is not own]
    if changed and not isinstance(value, str):
        raise ValueError(
            f"learning_rate={learning_rate!r} is given, and sampler.{changed[0]}={getattr(sampler, changed[0])!r} adapts it: one "
            f"quantity has one owner. Leave learning_rate='auto', or set sampler__{changed[0]}=None."
        )
    return fixed


def _rate(value: Any) -> Rate:
    if isinstance(value, str) and value == "auto":
        return "auto"
    return "default" if value is None else "given"


def _with_bias(value: Any, sampler: Sampler, bias_factor: float) -> Sampler:
    """Return the sampler with the estimator's bias factor, unless it has none or owns another."""
    if not hasattr(sampler, "bias_factor"):
        if bias_factor == 0:
            return sampler
        with_bias = ", ".join(repr(name) for name, kind in SAMPLERS.items() if "bias_factor" in kind.__dataclass_fields__)  # type: ignore[attr-defined]
        raise ValueError(
            f"bias_factor={bias_factor} needs a sampler with a bias term, and sampler={value!r} has none: "
            f"use bias_factor=0 or None, or one of {with_bias}."
        )
    if isinstance(value, str):
        return dataclasses.replace(sampler, bias_factor=bias_factor)  # type: ignore[type-var]
    if sampler.bias_factor != bias_factor:
        raise ValueError(
            f"bias_factor={bias_factor} and sampler.bias_factor={sampler.bias_factor} differ: one quantity has one owner. "
            "Leave bias_factor=None and set (or search) sampler__bias_factor."
        )
    return sampler


def _temperature(value: Any, sampler: Sampler) -> float:
    if sampler.law == "optimiser":
        if value is not None and not (np.ndim(value) == 0 and value == 0):
            raise ValueError(
                f"temperature={value!r} means nothing to {type(sampler).__name__}, an optimiser without noise: "
                "use temperature=None or 0, or a sampler."
            )
        return 0.0
    if value is None:
        return 1.0
    rule = f"a number in [0, {LARGEST:g}] or None"
    return check_real("temperature", value, rule=rule, fix="1 is the Bayesian posterior", high=LARGEST)


def _prior(value: Any, scale: Any) -> Prior:
    prior = _object("prior", value, Prior, PRIORS)
    prior.check()
    if scale is not None:
        scale = check_real("prior_scale", scale, rule="a number > 0 or None", fix="None is the prior's own, 1.0", open_low=True)
        if not hasattr(prior, "scale"):
            parts = " and ".join(
                f"{name}={part!r}" for name, part in prior.get_params(deep=False).items() if isinstance(part, Prior)
            )
            raise ValueError(
                f"prior_scale={scale} and prior={value!r}: the scales belong to its parts, {parts}. "
                "Leave prior_scale=None and set (or search) prior__before__scale and prior__after__scale."
            )
        own = prior.scale
        if not isinstance(value, str) and own != scale:
            raise ValueError(
                f"prior_scale={scale} and prior.scale={own} differ: one quantity has one owner. "
                "Leave prior_scale=None and set (or search) prior__scale."
            )
        prior.set_params(scale=scale)
    prior.check()
    return prior


def _hidden(value: Any) -> tuple[int, ...]:
    """Return the hidden widths of an int or a sequence of ints."""
    widths = (value,) if isinstance(value, numbers.Integral) else value
    try:
        if not isinstance(widths, tuple | list | np.ndarray):
            raise TypeError
        return tuple(check_integer("width", width, low=1, fix="") for width in widths)
    except (TypeError, ValueError):
        raise ValueError(
            f"hidden_layer_sizes={value!r} must be an integer or a sequence of integers >= 1; () is a linear model."
        ) from None


def _warm_up(value: Any) -> int | None:
    if isinstance(value, str) and value == "auto":
        return None
    return check_integer("warm_up", value, low=0, fix="'auto' chooses the number of epochs, 0 is none")


def _burn_in(value: Any) -> float:
    rule, fix = "a share of the steps with 0 <= burn_in < 1", "0.5 is the default"
    return check_real("burn_in", value, rule=rule, fix=fix, high=1.0, open_high=True)


def _n_jobs(value: Any) -> int | None:
    if value is None:
        return None
    if isinstance(value, bool | np.bool_) or not isinstance(value, numbers.Integral) or value == 0:
        raise ValueError(f"n_jobs={value!r} must be None or an integer other than 0; -1 takes all cores.")
    return int(value)


def _batch_size(value: Any, sampler: Sampler) -> int | None:
    if isinstance(value, str) and value == "auto":
        return sys.maxsize if "full_batch" in sampler.needs else None
    return check_integer("batch_size", value, low=1, fix="'auto' takes all rows of small data")


def _device(value: Any) -> torch.device:
    if isinstance(value, str) and value == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        device = torch.device(value)
        torch.zeros(1, device=device).item()
    except (RuntimeError, TypeError, AssertionError, ImportError) as error:
        reason = str(error).partition("\n")[0].partition(". ")[0]
        raise ValueError(f"device={value!r} cannot be used here ({reason}); 'auto' takes a GPU when there is one.") from None
    return device


def _verbose(value: Any) -> int:
    if isinstance(value, bool | np.bool_):
        return int(value)
    return check_integer("verbose", value, low=0, fix="0 is silent, 1 shows a progress bar")


def _checkpoint(value: Any) -> Path | None:
    if value is None:
        return None
    path = os.fspath(value) if isinstance(value, str | os.PathLike) else ""
    if not isinstance(path, str) or not path or "\0" in path:
        raise ValueError(f"checkpoint={value!r} must be the path of a file or a folder, or None; None keeps no checkpoint.")
    return Path(path)
