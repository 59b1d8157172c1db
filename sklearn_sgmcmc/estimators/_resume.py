"""Where the chains of a fit ended, and how the next call goes on from there."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from sklearn_sgmcmc._digest import digest
from sklearn_sgmcmc._typing import Theta
from sklearn_sgmcmc.batches import Scaling, shared
from sklearn_sgmcmc.chains import ChainJob
from sklearn_sgmcmc.engine import RunResult
from sklearn_sgmcmc.estimators._rows import TrainingRows
from sklearn_sgmcmc.estimators._settings import Settings
from sklearn_sgmcmc.likelihoods import HomoscedasticNoise, Likelihood
from sklearn_sgmcmc.network import MLP
from sklearn_sgmcmc.samplers._base import map_state
from sklearn_sgmcmc.schedules import Constant

WARM, STREAM = 2, 3
"""What follows the integers of a fit's random streams in those of a warm fit and of a call of ``partial_fit``."""
FAR = 20.0
"""Standard deviations between the means of two calls beyond which the function of the first says nothing about the second."""
OWN = 4
"""Integers of a fit's random streams."""


@dataclass(frozen=True)
class Model:
    """What theta means: the network, its likelihood, the classes of a classifier and the scales of X and of a regressor's y."""

    network: MLP
    likelihood: Likelihood
    classes: NDArray[Any] | None
    x_scaling: Scaling
    y_scaling: Scaling | None

    def check_same(self, other: Model, how: str) -> None:
        """Raise ValueError, with the advice ``how``, if parameters of this model are none of the other's."""
        before, now = self.network, other.network
        parts: list[tuple[str, Any, Any]] = [
            ("hidden_layer_sizes", before.widths[1:-1], now.widths[1:-1]),
            ("activation", before.activation, now.activation),
            ("The classes of y", _listed(self.classes), _listed(other.classes)),
            ("noise (the observation model)", type(self.likelihood).__name__, type(other.likelihood).__name__),
            ("The number of targets in y", before.widths[-1], now.widths[-1]),
        ]
        for name, old, new in parts:
            if old != new:
                raise ValueError(f"{name} changed from {old!r} to {new!r}: the chains to go on from have no such network. {how}")

    def carried(self, theta: NDArray[Any], other: Model) -> NDArray[Any]:
        """Return parameters (C, P) with which the other model, of other scales, is the same function as this one.

        Exact, but for the noise levels of a heteroscedastic model, which stay as they are relative to y. Raises ValueError if they
        overflow.
        """
        carried = self._carried(theta, other)
        if not np.isfinite(carried).all():
            raise ValueError(
                f"X or y has units so far from those of the last call that weights overflow {theta.dtype.name}, with which the "
                "chains would go on: give them in the same units, or use warm_start=False to begin anew."
            )
        return carried

    @np.errstate(over="ignore", invalid="ignore")
    def _carried(self, theta: NDArray[Any], other: Model) -> NDArray[Any]:
        """Return what ``carried`` does, with overflows."""
        given = theta
        for old, new in ((self.x_scaling, other.x_scaling), (self.y_scaling, other.y_scaling)):
            if old is None or new is None or all(np.array_equal(a, b) for a, b in zip(old, new, strict=True)):
                continue
            of_inputs = old is self.x_scaling
            theta = (self._to_inputs if of_inputs else self._to_targets)(shared(theta).double(), old, new).numpy()
        return theta.astype(given.dtype)

    def far_message(self, other: Model) -> str | None:
        """Return what to say if the other model's rows lie so far from this one's that the function there is no good start."""
        off = {"X": _distance(self.x_scaling, other.x_scaling, self.x_scaling.scale)}
        if self.y_scaling is not None and other.y_scaling is not None:
            off["y"] = _distance(self.y_scaling, other.y_scaling, other.y_scaling.scale)
        name = max(off, key=lambda name: off[name])
        if off[name] <= FAR:
            return None
        return (
            f"{name} is {off[name]:.3g} standard deviations away from that of the last call, and the chains start at the function "
            "that they had: use warm_start=False to begin anew."
        )

    def _to_inputs(self, theta: Theta, old: Scaling, new: Scaling) -> Theta:
        """Return W x + b in terms of inputs scaled anew: W s'/s for W, and b + W (m' - m)/s for b."""
        theta = theta.clone()
        first = self.network.layers(theta)[0]
        weights = first if len(self.network.widths) == 2 else first.transpose(1, 2)  # (C, units, inputs and the constant): views
        ratio, shift = (torch.from_numpy(part / old.scale) for part in (new.scale, new.mean - old.mean))
        weights[..., -1] += (weights[..., :-1] * shift).sum(-1)
        weights[..., :-1] *= ratio
        return theta

    def _to_targets(self, theta: Theta, old: Scaling, new: Scaling) -> Theta:
        """Return the output layer in terms of targets scaled anew, and the learned noise levels of a homoscedastic model."""
        theta = theta.clone()
        last, n_targets = self.network.layers(theta)[-1], len(old.scale)
        ratio, shift = (torch.from_numpy(part / new.scale) for part in (old.scale, old.mean - new.mean))
        last[:, :n_targets] *= ratio[:, None]
        last[:, :n_targets, -1] += shift
        if isinstance(self.likelihood, HomoscedasticNoise):
            theta[:, self.network.n_params :] += ratio.log()
        return theta


def _distance(old: Scaling, new: Scaling, unit: NDArray[np.float64]) -> float:
    """Return how far the means of two sets of rows lie apart at most, in a unit of each column."""
    with np.errstate(over="ignore"):
        return float((np.abs(new.mean - old.mean) / unit).max())


def _listed(classes: NDArray[Any] | None) -> list[Any] | None:
    return None if classes is None else classes.tolist()


@dataclass(frozen=True)
class Stream:
    """What ``partial_fit`` remembers between two calls, besides the state of the chains. Plain numpy.

    n_total : the total weight of the one data set that chunks are minibatches of; None while tracking.
    n_data : (C, 1) N of the last step.
    steps, seen : steps and weight of the rows since the law began.
    draw_steps : (S,) the steps of the kept draws; those of a fit come before step 1. ``every`` is their distance.
    curve_every : calls between two entries of ``potential_curve_``.
    strays : (C,) calls in a row after which a chain was too hot or without a law.
    curvature, direction : what step control knows, per datum; ``looks`` are its step and that of its next look.
    factor : (C, 1) what it multiplies the step by.
    """

    n_total: float | None
    n_data: NDArray[np.float64]
    steps: int
    seen: float
    draw_steps: NDArray[np.int64]
    every: int
    curve_every: int
    strays: NDArray[np.int64]
    factor: NDArray[np.float64]
    curvature: NDArray[np.float64] | None = None
    direction: NDArray[Any] | None = None
    looks: tuple[int, int] = (0, 0)


@dataclass(frozen=True)
class LastState:
    """Where chains stand between two calls. Plain numpy, and none of the training rows.

    model : what the parameters mean.
    state : the sampler's state; its fields are arrays with the leading chain axis.
    sampler : the repr of the sampler that it belongs to.
    step_size : (C, 1) float64, before the schedule's multiplier.
    n_data : total weight N of the rows of a fit.
    n_chains : those asked for; fewer are left where some diverged.
    entropy : the integers of the first fit's random streams; each later call adds its own number, counted in ``calls``.
    key : digest of the rows and of all that makes the law; a fit with the same one simply goes on.
    stream : what ``partial_fit`` remembers besides.
    """

    model: Model
    state: Any
    sampler: str
    step_size: NDArray[np.float64]
    n_data: float
    n_chains: int
    entropy: tuple[int, ...]
    calls: int = 0
    key: str = ""
    stream: Stream | None = None

    @property
    def n_left(self) -> int:
        """Chains that go on: all that were asked for, but those that diverged."""
        return self.n_chains if self.state is None else len(self.state.theta)

    def check(self, model: Model, settings: Settings, how: str) -> None:
        """Raise ValueError, with the advice ``how``, if the parameters of these chains are none of the model's."""
        self.model.check_same(model, how)
        if settings.n_chains != self.n_chains:
            raise ValueError(f"n_chains={settings.n_chains} was {self.n_chains} before: the chains go on. {how}")

    def tensors(self, device: torch.device) -> Any:
        """Return the sampler's state on a device."""
        return map_state(self.state, lambda field: shared(field).to(device))

    def settings(self, settings: Settings, key: str) -> Settings:
        """Return the settings of a warm fit: no warm-up, and no burn-in if the law stays the same."""
        same = key == self.key and isinstance(settings.schedule, Constant)
        burn_in = 0.0 if same else settings.burn_in
        return settings._replace(n_chains=self.n_left, warm_up=0, burn_in=burn_in)

    def resumed(self, job: ChainJob, settings: Settings, model: Model, key: str) -> ChainJob:
        """Return the job of a warm fit: from the sampler's last state at its last step if the law is the same, else from theta."""
        job = replace(job, entropy=(*self.entropy, WARM, self.calls + 1))
        if key != self.key or not isinstance(settings.schedule, Constant):
            theta = torch.from_numpy(self.model.carried(self.state.theta, model))
            return replace(job, start=theta.to(device=job.device, dtype=job.dtype))
        stage = job.stages[-1]
        timeline = replace(stage.timeline, adapt=np.zeros_like(stage.timeline.adapt))
        step_size = shared(self.step_size).to(job.device)
        return replace(
            job, stages=(replace(stage, timeline=timeline, step_size=step_size, caution=None),), start=self.tensors(job.device)
        )


def last_state(
    settings: Settings,
    model: Model,
    job: ChainJob,
    result: RunResult,
    alive: torch.Tensor,
    *,
    n_data: float,
    n_chains: int,
    key: str,
) -> LastState | None:
    """Return where the chains of a fit ended; None where a run was interrupted in workers whose states do not fit together."""
    if result.state is None:
        return None
    state = map_state(result.state, lambda field: field[alive].cpu().numpy())
    if hasattr(state, "accepted"):
        state = state._replace(accepted=np.zeros_like(state.accepted))  # counted anew in every fit
    step_size = result.step_size / getattr(result.state, "step_factor", 1.0)  # the state has its own
    warm = len(job.entropy) > OWN
    return LastState(
        model=model,
        state=state,
        sampler=repr(settings.sampler),
        step_size=step_size[alive].cpu().numpy(),
        n_data=n_data,
        n_chains=n_chains,
        entropy=job.entropy[:OWN],
        calls=job.entropy[-1] if warm else 0,
        key=key,
    )


def law_key(settings: Settings, rows: TrainingRows, model: Model) -> str:
    """Return a digest of the rows and of what makes the law of a fit: equal only if the same chains would go on."""
    law = (settings.sampler, settings.temperature, settings.learning_rate, settings.rate, settings.schedule, settings.prior)
    made_of = (model.network, model.likelihood, model.x_scaling, model.y_scaling)
    return digest((law, settings.dtype, settings.device, rows, made_of))
