"""Can a run be trusted? R-hat and effective sample sizes in function space, and what the sampler's last state tells.

Weights of a network may be permuted without changing its function, so chains are compared where it matters: in predictions at a
few reference rows, and in U over all data. arviz-stats computes R-hat and ESS; it is imported when they are first asked for.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from sklearn_sgmcmc._typing import Theta
from sklearn_sgmcmc.batches import Minibatch, RowSource
from sklearn_sgmcmc.posterior import Posterior
from sklearn_sgmcmc.samplers._base import Sampler

REFERENCE_ROWS = 32
"""Most training rows at which predictions are compared."""
QUICK = 10
"""Most quantities that are looked at in ``fit``: each takes as long as a few steps of a small network."""
POTENTIAL_SHARE = 0.1
"""Largest share of a run's gradient work, in rows, that U of the kept draws may take ..."""
LEAST_POTENTIALS = 10
"""... beyond this many draws per chain."""
LEAST_DRAWS = 20
"""Draws per chain below which R-hat is noise: no warning is built on it, and no phase of a schedule is compared."""
NOISE_BATCHES = (8, 32)
"""Least and most minibatches from which the variance of the stochastic gradient is estimated."""


def evenly(n: int, at_most: int) -> NDArray[np.int64]:
    """Return at most so many evenly spaced numbers among 0 ... n - 1, first and last included if there are two."""
    return np.unique(np.linspace(0, n - 1, min(n, at_most)).round().astype(np.int64))


# --- chains compared ---------------------------------------------------------------------------------------------------------


def r_hat(values: NDArray[np.floating]) -> NDArray[np.float64]:
    """Return the rank-normalised split R-hat of quantities (S, C, Q), (Q,); NaN with one chain, or where nothing varies.

    The chains must have the same law: unequal hyperparameters are no lack of mixing. Source: Vehtari et al. 2021.
    """
    if values.shape[0] < 4 or values.shape[1] < 2 or not values.size:
        return np.full(values.shape[2], np.nan)
    from arviz_stats.base import array_stats

    with np.errstate(divide="ignore", invalid="ignore"):
        return np.asarray(array_stats.rhat(_by_chain(values)), dtype=np.float64)


def effective_size(values: NDArray[np.floating], method: str) -> NDArray[np.float64]:
    """Return the "bulk" or "tail" (5 and 95 %) effective sample size of quantities (S, C, Q), (Q,); NaN below four draws."""
    if values.shape[0] < 4 or not values.size:
        return np.full(values.shape[2], np.nan)
    from arviz_stats.base import array_stats

    tail = {"prob": (0.05, 0.95)} if method == "tail" else {}
    with np.errstate(divide="ignore", invalid="ignore"):
        size = np.asarray(array_stats.ess(_by_chain(values), method=method, **tail), dtype=np.float64)
    constant = (values == values[:1, :1]).all(axis=(0, 1))
    return np.where(constant, np.nan, size)


def _by_chain(values: NDArray[np.floating]) -> NDArray[np.float64]:
    """Return (Q, C, S), as arviz-stats wants it."""
    return np.ascontiguousarray(values.transpose(2, 1, 0), dtype=np.float64)


def one_law(step_size: NDArray[np.float64], temperature: NDArray[np.float64]) -> tuple[slice, str]:
    """Return which kept draws have one law, and what to say of the rest; an empty slice if too few have.

    ``step_size`` and ``temperature`` (S,) are those of each kept draw. The longest part at one step size and temperature is taken.
    """
    n_draws = len(step_size)
    what = "the schedule changes the step size or temperature"
    same = np.isclose(np.diff(step_size), 0.0, atol=1e-9 * step_size.max()) & (np.diff(temperature) == 0)
    starts = np.flatnonzero(np.concatenate([[True], ~same]))
    sizes = np.diff(np.append(starts, n_draws))
    longest = int(np.argmax(sizes))
    start, size = int(starts[longest]), int(sizes[longest])
    if not temperature.all():
        return slice(0, 0), "not compared: at temperature 0 each chain seeks an optimum of its own"
    if size == n_draws:
        return slice(0, n_draws), ""
    if size < LEAST_DRAWS:
        return slice(0, 0), f"not compared: {what} from draw to draw, and with it the law"
    return slice(start, start + size), f"compared in draws {start} to {start + size - 1} alone: {what} between the others"


# --- what takes the training rows --------------------------------------------------------------------------------------------


def potential_draws(n_draws: int, n_rows: int, rows_of_run: float) -> NDArray[np.int64]:
    """Return for which draws U over all rows is evaluated: all, or evenly thinned to a tenth of the work of the run."""
    affordable = int(POTENTIAL_SHARE * rows_of_run / n_rows)
    return evenly(n_draws, max(LEAST_POTENTIALS, affordable))


def full_potential(posterior: Posterior, source: RowSource, draws: torch.Tensor) -> NDArray[np.float64]:
    """Return U over all rows at draws (S, C, P), (S, C) float64."""
    return posterior.full_value(draws.flatten(0, 1), source).view(draws.shape[:2]).cpu().numpy()


def gradient_variance(posterior: Posterior, theta: Theta, batches: Iterator[Minibatch], n_batches: int) -> torch.Tensor:
    """Return the variance s2 of the stochastic gradient over minibatches at fixed parameters, (C, P) float64."""
    mean = torch.zeros_like(theta, dtype=torch.float64)
    squares = mean.clone()
    for count in range(1, n_batches + 1):
        g = posterior.bind(next(batches)).grad(theta).double()
        shift = g - mean
        mean = mean + shift / count
        squares = squares + shift * (g - mean)
    return squares / (n_batches - 1)


def noise_ratio(
    sampler: Sampler, state: Any, variance: torch.Tensor, step_size: torch.Tensor, temperature: float
) -> torch.Tensor | None:
    """Return k eps s2 / (2 tau), (C, P): gradient noise over injected noise, k the sampler's gain; None if it absorbs noise."""
    gain = sampler.gradient_noise_gain(state)
    if gain is None:
        return None
    corrected = (variance - getattr(sampler, "gradient_noise_variance", 0.0)).clamp_min(0.0)
    return gain * step_size * corrected / (2.0 * temperature)


# --- what a fitted estimator keeps, and answers --------------------------------------------------------------------------------


@dataclass(frozen=True)
class Measured:
    """What can be measured only while the rows and the last state of a run are there. Plain numbers and arrays.

    compared : which kept draws have one law; ``note`` says why not all of them.
    potential_draws : (S',) numbers of the kept draws at which U was evaluated.
    noise_ratio : median and maximum over parameters and chains of the gradient-noise ratio; None if the sampler absorbs it.
    acceptance_rate, kinetic_temperature, friction : (C,), None where the sampler has no such thing.
    dropped_chains : see ``Diagnostics``.
    law : what the draws of a stream are draws of.
    """

    compared: slice
    note: str
    potential_draws: NDArray[np.int64]
    noise_ratio: tuple[float, float] | None = None
    acceptance_rate: NDArray[np.float64] | None = None
    kinetic_temperature: NDArray[np.float64] | None = None
    friction: NDArray[np.float64] | None = None
    dropped_chains: tuple[tuple[int, int], ...] = ()
    law: str = ""


@dataclass(frozen=True)
class Diagnostics:
    """How far the chains of a fit agree, and how its sampler fared.

    Attributes
    ----------
    names : list of str, length Q
        "potential" first, then noise levels and predictions at the reference rows.
    r_hat : ndarray of shape (Q,)
        Rank-normalised split R-hat: 1 if the chains agree; NaN where it is not defined.
    ess_bulk, ess_tail : ndarrays of shape (Q,)
        Effective sample sizes, of all chains together.
    n_draws, n_chains : int
        Compared draws per chain, and chains.
    note : str
        Why not all draws, or none, were compared; else empty.
    gradient_noise_ratio : tuple of two floats, or None
        Median and maximum over parameters of k eps s2 / (2 tau), gradient noise over injected noise: 0 at full batch, None where
        the sampler absorbs gradient noise or injects none.
    acceptance_rate, kinetic_temperature, friction : ndarrays of shape (n_chains,), or None
        Share of accepted proposals; mean squared momentum over its equilibrium value; mean friction.
    warnings : list of str
        What ``fit`` warned of.
    dropped_chains : tuple of pairs of ints
        Number of each chain that diverged, from 0, and the step, the warm-up included, by which it was seen to; -1 if the whole run
        alone showed it, being far too hot. These chains are in no other attribute and in no prediction.
    law : str
        After ``partial_fit``, what the draws are draws of; empty after ``fit``, whose draws are the posterior's of its rows.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from sklearn_sgmcmc import BayesianMLPClassifier
    >>> X, y = load_iris(return_X_y=True)
    >>> model = BayesianMLPClassifier((5,), sampler="sgld", max_iter=300, n_draws=20, random_state=0).fit(X, y)
    >>> found = model.diagnostics()
    >>> found.names[0], found.r_hat.shape == found.ess_bulk.shape
    ('potential', True)
    """

    names: list[str]
    r_hat: NDArray[np.float64]
    ess_bulk: NDArray[np.float64]
    ess_tail: NDArray[np.float64]
    n_draws: int
    n_chains: int
    note: str
    gradient_noise_ratio: tuple[float, float] | None
    acceptance_rate: NDArray[np.float64] | None
    kinetic_temperature: NDArray[np.float64] | None
    friction: NDArray[np.float64] | None
    warnings: list[str] = field(default_factory=list)
    dropped_chains: tuple[tuple[int, int], ...] = ()
    law: str = ""


def diagnose(
    measured: Measured, potential: NDArray[np.float64], values: NDArray[np.floating], names: Sequence[str], warnings: Sequence[str]
) -> Diagnostics:
    """Compare the chains by U (S', C) at some draws and by quantities (S, C, Q) at all."""
    chosen = values[measured.compared]
    of_potential = compared_potential(measured, potential)
    parts = (of_potential, chosen)
    return Diagnostics(
        names=["potential", *names],
        r_hat=np.concatenate([r_hat(part) for part in parts]),
        ess_bulk=np.concatenate([effective_size(part, "bulk") for part in parts]),
        ess_tail=np.concatenate([effective_size(part, "tail") for part in parts]),
        n_draws=len(chosen),
        n_chains=values.shape[1],
        note=measured.note,
        gradient_noise_ratio=measured.noise_ratio,
        acceptance_rate=measured.acceptance_rate,
        kinetic_temperature=measured.kinetic_temperature,
        friction=measured.friction,
        warnings=list(warnings),
        dropped_chains=measured.dropped_chains,
        law=measured.law,
    )


def compared_potential(measured: Measured, potential: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return U at the draws that have one law, (S'', C, 1)."""
    number = measured.potential_draws
    return potential[(number >= measured.compared.start) & (number < measured.compared.stop), :, None]


def summary(head: Sequence[tuple[str, str]], found: Diagnostics) -> str:
    """Return a plain-text table: what was run (``head``), how the chains agree, how the sampler fared, and the warnings."""
    of_law = [("law of the draws", found.law)] if found.law else []
    rows = [*head, *of_law, *_agreement(found), *_sampler_facts(found)]
    width = max(len(name) for name, _ in rows)
    lines = [f"{name:<{width}}  {text}" for name, text in rows]
    lines += [f"warning: {text}" for text in found.warnings] or ["no warnings"]
    return "\n".join(lines)


def _agreement(found: Diagnostics) -> list[tuple[str, str]]:
    rows = [("chains compared", found.note or f"{found.n_draws} draws of each of {found.n_chains} chains")]
    if not found.n_draws:
        return rows
    sizes = np.stack([found.ess_bulk, found.ess_tail])
    rows.append(("potential", f"R-hat {_number(found.r_hat[0])}, ESS bulk {_number(sizes[0, 0])}, tail {_number(sizes[1, 0])}"))
    of_functions = found.r_hat[1:]
    for name, pick, lowest in (("worst", np.nanmax, np.nanmin), ("median", np.nanmedian, np.nanmedian)):
        worst = _number(pick(of_functions) if not np.isnan(of_functions).all() else np.nan)
        bulk, tail = (_number(lowest(size[1:]) if not np.isnan(size[1:]).all() else np.nan) for size in sizes)
        rows.append((f"predictions, {name}", f"R-hat {worst}, ESS bulk {bulk}, tail {tail}"))
    return rows


def _sampler_facts(found: Diagnostics) -> list[tuple[str, str]]:
    rows = []
    if found.dropped_chains:
        each = (f"{chain} ({f'by step {step}' if step >= 0 else 'in the end'})" for chain, step in found.dropped_chains[:8])
        more = ", ..." if len(found.dropped_chains) > 8 else ""
        rows.append(("chains dropped", f"{len(found.dropped_chains)}: {', '.join(each)}{more}"))
    if found.gradient_noise_ratio is not None:
        median, largest = found.gradient_noise_ratio
        inflation = f"sd up to x {np.sqrt(1 + median):.3g} and {np.sqrt(1 + largest):.3g}" if largest else "full batch"
        rows.append(("gradient-noise ratio", f"median {median:.2g}, maximum {largest:.2g}: {inflation}"))
    named = {
        "acceptance rate": found.acceptance_rate,
        "kinetic temperature": found.kinetic_temperature,
        "mean friction": found.friction,
    }
    rows += [(name, per_chain(values)) for name, values in named.items() if values is not None]
    return rows


def per_chain(values: NDArray[np.floating]) -> str:
    """Return one number, or those of up to eight chains, or their range."""
    if len(values) > 8:
        return f"{values.min():.3g} to {values.max():.3g}"
    texts = [f"{value:.3g}" for value in values]
    return texts[0] if len(set(texts)) == 1 else ", ".join(texts)


def _number(value: float) -> str:
    return "-" if np.isnan(value) else f"{value:.3f}" if value < 10 else f"{value:.0f}"


def to_data_tree(
    quantities: Mapping[str, tuple[list[str], NDArray[np.float64], list[Any]]],
    potential: NDArray[np.float64],
    potential_draws: NDArray[np.int64],
) -> Any:
    """Return ArviZ's data tree of named quantities, each (dimensions, values (C, S, ...), labels of the last), and of U (S', C)."""
    try:
        import arviz_base
        from xarray import DataTree
    except ImportError as error:
        raise ImportError("to_arviz() needs arviz-base; install it with: pip install 'sklearn-sgmcmc[arviz]'.") from error
    posterior = arviz_base.dict_to_dataset(
        {name: values for name, (_, values, _) in quantities.items()},
        dims={name: dims for name, (dims, _, _) in quantities.items()},
        coords={dims[-1]: labels for dims, _, labels in quantities.values()},
    )
    statistics = arviz_base.dict_to_dataset({"potential": potential.T}, coords={"draw": potential_draws})
    return DataTree.from_dict({"posterior": posterior, "sample_stats": statistics})
