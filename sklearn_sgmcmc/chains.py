"""From a posterior and its rows to draws: chains are split into random-number blocks, run where there are workers, and joined."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from joblib import Parallel, delayed, effective_n_jobs

from sklearn_sgmcmc.batches import Batches, RowSet, RowSource
from sklearn_sgmcmc.engine import RunResult, Stage, run
from sklearn_sgmcmc.noise import BLOCK, BlockNoise, noise_generators, row_generators
from sklearn_sgmcmc.threads import one_thread


@dataclass(frozen=True)
class ChainJob:
    """All that it takes to run some of the chains of a fit.

    initial_scale : (P,) standard deviations of the initial parameters.
    independent : whether batches are drawn independently instead of by reshuffling.
    entropy : integers from which all random streams are derived.
    """

    stages: tuple[Stage, ...]
    source: RowSource
    row_set: RowSet
    batch_size: int
    independent: bool
    initial_scale: torch.Tensor
    n_chains: int
    entropy: tuple[int, ...]
    device: torch.device
    dtype: torch.dtype
    verbose: int


RUNNER: ContextVar[Callable[[ChainJob], RunResult] | None] = ContextVar("RUNNER", default=None)
"""Who runs the jobs of this context in place of ``sample_chains``: a search, which puts those of many fits together."""


def sample_chains(job: ChainJob, n_jobs: int | None) -> RunResult:
    """Run all chains of a job, on up to ``n_jobs`` workers; the result does not depend on their number.

    With several workers the first one alone shows a progress bar, and an interruption from the keyboard loses all draws.
    """
    runner = RUNNER.get()
    if runner is not None:
        return runner(job)
    n_blocks = -(-job.n_chains // BLOCK)
    n_workers = min(effective_n_jobs(n_jobs), n_blocks)
    groups = [group.tolist() for group in np.array_split(np.arange(n_blocks), n_workers)]
    if n_workers == 1:
        return run_blocks(job, groups[0])
    results = Parallel(n_jobs=n_workers)(delayed(run_blocks)(job, group) for group in groups)
    return _join(results)


def run_blocks(job: ChainJob, blocks: Sequence[int]) -> RunResult:
    """Run the chains of the given random-number blocks as one batch."""
    chains = range(blocks[0] * BLOCK, min((blocks[-1] + 1) * BLOCK, job.n_chains))
    noise = BlockNoise(noise_generators(job.entropy, blocks, job.device))
    batches = Batches(
        job.source,
        [job.row_set] * len(chains),
        job.batch_size,
        row_generators(job.entropy, chains, job.device),
        independent=job.independent,
    )
    scale = job.initial_scale.to(device=job.device, dtype=job.dtype)
    theta = noise(torch.empty(len(chains), len(scale), dtype=job.dtype, device=job.device)) * scale
    verbose = job.verbose if blocks[0] == 0 else 0
    with one_thread():
        return run(job.stages, theta, batches, noise, verbose=verbose, steps_per_epoch=job.row_set.size / job.batch_size)


def _join(results: Sequence[RunResult]) -> RunResult:
    """Put the chains of several runs side by side; a run that ended early has a shorter curve."""
    longest = max(len(result.potential_curve) for result in results)
    curves = []
    for result in results:
        missing = longest - len(result.potential_curve)
        curves.append(torch.nn.functional.pad(result.potential_curve, (0, 0, 0, missing), value=torch.nan))
    fewest = min(len(result.draws) for result in results)
    return RunResult(
        draws=torch.cat([result.draws[:fewest] for result in results], dim=1),
        potential_curve=torch.cat(curves, dim=1),
        diverged_at=torch.cat([result.diverged_at for result in results]),
        ran_away=torch.cat([result.ran_away for result in results]),
        step_size=torch.cat([result.step_size for result in results]),
        state=_join_states([result.state for result in results]),
        n_steps=max(result.n_steps for result in results),
        interrupted=any(result.interrupted for result in results),
    )


def _join_states(states: Sequence[Any]) -> Any:
    """Return the samplers' last states as one; None if runs ended in different stages, whose states do not fit together."""
    fields = list(zip(*states, strict=True))
    if any(part.shape[1:] != parts[0].shape[1:] for parts in fields for part in parts):
        return None
    return type(states[0])(*(torch.cat(parts) for parts in fields))


def check_batches(job: ChainJob, n_chains: int) -> Batches:
    """Return independently drawn minibatches for ``n_chains`` chains, from random streams of their own."""
    generators = row_generators((*job.entropy, 1), range(n_chains), job.device)
    return Batches(job.source, [job.row_set] * n_chains, job.batch_size, generators, independent=True)
