"""Many jobs as one: the chains of several fits, each with rows and hyperparameters of its own, computed as one batch."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import fields, replace
from functools import partial
from numbers import Integral
from typing import Any, cast

import numpy as np
import torch

from sklearn_sgmcmc._parameters import Parameters
from sklearn_sgmcmc.batches import Batches, DenseRows, RowSet
from sklearn_sgmcmc.chains import ChainJob, run_whole
from sklearn_sgmcmc.engine import RunResult, Stage, run
from sklearn_sgmcmc.noise import BlockNoise, blocks_of, noise_generators, row_generators
from sklearn_sgmcmc.posterior import Posterior
from sklearn_sgmcmc.priors import Prior
from sklearn_sgmcmc.samplers._base import Sampler, map_state
from sklearn_sgmcmc.schedules import Timeline
from sklearn_sgmcmc.step_control import Caution
from sklearn_sgmcmc.threads import one_thread

CHAINS = 64
"""Most chains of a batch: from here on more of them gain nothing, and leave the cache."""
ROWS = 64 * CHAINS
"""Most rows of all chains' minibatches together, for the same reason."""
PER_CHAIN = re.compile(r"\b(Coefficient|Scale)\b")
"""How the fields are declared that may hold one value per chain."""


class CannotPoolError(Exception):
    """Jobs differ in more than numbers that each chain may have of its own."""


class PooledNoise:
    """The noise of several jobs side by side; jobs with the same random streams share one draw."""

    def __init__(self, jobs: Sequence[ChainJob]) -> None:
        self.streams: dict[tuple[Any, ...], BlockNoise] = {}
        self.parts = []
        for job in jobs:
            key = (job.entropy, job.n_chains)
            if key not in self.streams:
                self.streams[key] = BlockNoise(noise_generators(job.entropy, blocks_of(job.n_chains), job.device))
            self.parts.append(key)

    def __call__(self, like: torch.Tensor) -> torch.Tensor:
        """Return independent standard normal numbers shaped like ``like`` (C, ...), equal where jobs share their streams."""
        drawn = {(entropy, n_chains): stream(like[:n_chains]) for (entropy, n_chains), stream in self.streams.items()}
        return torch.cat([drawn[key] for key in self.parts])


def groups(jobs: Sequence[ChainJob]) -> Iterator[list[int]]:
    """Yield the numbers of jobs that can run as one batch, all jobs in all; a job like no other is a group of its own."""
    found: list[list[int]] = []
    for number, job in enumerate(jobs):
        for group in found:
            most = min(CHAINS, ROWS // job.batch_size)
            if sum(jobs[member].n_chains for member in group) + job.n_chains > most:
                continue
            try:
                pooled_stages([jobs[group[0]], job])
                _check_rows([jobs[group[0]], job])
            except CannotPoolError:
                continue
            group.append(number)
            break
        else:
            found.append([number])
    yield from found


def run_together(jobs: Sequence[ChainJob]) -> list[RunResult]:
    """Run the jobs of one of ``groups`` as one batch; each gets bit for bit the result that it would have alone.

    Raises KeyboardInterrupt if interrupted: then no job has a result.
    """
    if len(jobs) == 1:
        return [_alone(jobs[0])]
    stages = pooled_stages(jobs)
    source, row_sets = _pooled_rows(jobs)
    sizes = [job.n_chains for job in jobs]
    first = jobs[0]
    generators = [g for job in jobs for g in row_generators(job.entropy, range(job.n_chains), job.device)]
    per_chain = [rows for rows, size in zip(row_sets, sizes, strict=True) for _ in range(size)]
    batches = Batches(source, per_chain, first.batch_size, generators, independent=first.independent)
    noise = PooledNoise(jobs)
    scale = torch.cat([job.initial_scale.expand(job.n_chains, -1) for job in jobs]).to(device=first.device, dtype=first.dtype)
    with one_thread():
        result = run(stages, noise(torch.empty_like(scale)) * scale, batches, noise)
    if result.interrupted:
        raise KeyboardInterrupt
    parts = [_part(result, slice(stop - size, stop)) for stop, size in zip(np.cumsum(sizes).tolist(), sizes, strict=True)]
    # alone, a run ends when its last chain has diverged: there its result is another
    return [_alone(job) if bool((part.diverged_at >= 0).all()) else part for job, part in zip(jobs, parts, strict=True)]


def _alone(job: ChainJob) -> RunResult:
    return run_whole(job, blocks_of(job.n_chains))


def _part(result: RunResult, chains: slice) -> RunResult:
    """Return the result of some of the chains."""
    return replace(
        result,
        draws=result.draws[:, chains],
        potential_curve=result.potential_curve[:, chains],
        diverged_at=result.diverged_at[chains],
        ran_away=result.ran_away[chains],
        step_size=result.step_size[chains],
        state=None if result.state is None else map_state(result.state, lambda field: field[chains]),
    )


# --- rows --------------------------------------------------------------------------------------------------------------------


def _check_rows(jobs: Sequence[ChainJob]) -> None:
    """Raise CannotPoolError unless the jobs' rows can lie in one table and their batches have one shape."""
    kinds = set()
    for job in jobs:
        if not isinstance(job.source, DenseRows):
            raise CannotPoolError
        full = job.batch_size >= job.row_set.size
        kinds.add((tuple(job.source.parts), job.batch_size, full, job.independent, job.device, job.dtype))
    if len(kinds) > 1:
        raise CannotPoolError


def _pooled_rows(jobs: Sequence[ChainJob]) -> tuple[DenseRows, list[RowSet]]:
    """Return the rows of all jobs one behind the other, equal tables once, and where those of each job lie."""
    tables: list[DenseRows] = []
    starts: list[int] = []
    row_sets = []
    for job in jobs:
        rows = cast(DenseRows, job.source)
        number = next((number for number, other in enumerate(tables) if torch.equal(other.table, rows.table)), len(tables))
        if number == len(tables):
            starts.append(starts[-1] + tables[-1].n_rows if tables else 0)
            tables.append(rows)
        row_sets.append(RowSet(starts[number] + job.row_set.start, job.row_set.size))
    return DenseRows.joined(tables), row_sets


# --- hyperparameters ---------------------------------------------------------------------------------------------------------


def pooled_stages(jobs: Sequence[ChainJob]) -> tuple[Stage, ...]:
    """Return stages for all chains of the jobs: numbers in which they differ become (C, 1) tensors.

    Raises CannotPoolError where the jobs differ in anything else.
    """
    if len({len(job.stages) for job in jobs}) > 1:
        raise CannotPoolError
    sizes = torch.tensor([job.n_chains for job in jobs])
    return tuple(_pooled(stages, sizes, jobs[0].device) for stages in zip(*(job.stages for job in jobs), strict=True))


def _pooled(values: Sequence[Any], sizes: torch.Tensor, device: torch.device) -> Any:
    """Return one object for several of a kind."""
    first = values[0]
    if any(type(value) is not type(first) for value in values):
        raise CannotPoolError
    if isinstance(first, partial):
        arguments = zip(*(value.args for value in values), strict=True)
        return partial(_pooled([value.func for value in values], sizes, device), *(_pooled(a, sizes, device) for a in arguments))
    if isinstance(first, Stage | Posterior | Parameters | Caution):
        return _pooled_record(values, sizes, device)
    if not all(_same(value, first) for value in values):
        raise CannotPoolError
    return first


def _pooled_record(records: Sequence[Any], sizes: torch.Tensor, device: torch.device) -> Any:
    """Return a record whose fields stand for those of several."""
    first = records[0]
    if isinstance(first, Sampler) and any(sampler.noise_pattern != first.noise_pattern for sampler in records):
        raise CannotPoolError
    device = torch.device("cpu") if isinstance(first, Prior) else device  # a prior is placed on the host
    merged = {}
    for field in fields(first):
        column = [getattr(record, field.name) for record in records]
        numeric = all(isinstance(value, float | Integral) for value in column)  # a float32 computes otherwise alone
        if numeric and PER_CHAIN.search(str(field.type)):
            merged[field.name] = _per_chain(column, sizes, device)
        else:
            merged[field.name] = _pooled(column, sizes, device)
    return replace(first, **merged)


def _per_chain(numbers: Sequence[Any], sizes: torch.Tensor, device: torch.device) -> Any:
    """Return a number, or a (C, 1) float64 tensor if the jobs differ in it."""
    if all(number == numbers[0] for number in numbers):
        return numbers[0]
    return torch.tensor([float(n) for n in numbers], dtype=torch.float64).repeat_interleave(sizes)[:, None].to(device)


def _same(one: Any, other: Any) -> bool:
    """Return whether two values are equal, arrays element by element."""
    if isinstance(one, torch.Tensor):
        return torch.equal(one, other)
    if isinstance(one, np.ndarray):
        return np.array_equal(one, other)
    if isinstance(one, Timeline):
        return all(np.array_equal(getattr(one, field.name), getattr(other, field.name)) for field in fields(one))
    return bool(one is other or one == other)
