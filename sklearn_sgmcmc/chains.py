"""From a posterior and its rows to draws: chains are split into random-number blocks, run where there are workers, and joined."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextvars import ContextVar
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from joblib import Parallel, delayed, effective_n_jobs
from joblib.parallel import get_active_backend

import sklearn_sgmcmc
from sklearn_sgmcmc import kernels
from sklearn_sgmcmc._digest import digest
from sklearn_sgmcmc.batches import Batches, RowSet, RowSource
from sklearn_sgmcmc.checkpoint import Checkpoint
from sklearn_sgmcmc.engine import RunResult, Stage, run
from sklearn_sgmcmc.noise import BLOCK, BlockNoise, blocks_of, noise_generators, row_generators
from sklearn_sgmcmc.samplers._base import map_state
from sklearn_sgmcmc.threads import one_thread


@dataclass(frozen=True)
class ChainJob:
    """All that it takes to run some of the chains of a fit.

    initial_scale : (P,) standard deviations of the initial parameters.
    independent : whether batches are drawn independently instead of by reshuffling.
    entropy : integers from which all random streams are derived.
    checkpoint : where the run is kept, None if nowhere.
    start : where the chains begin: the sampler's state to go on from, or parameters (C, P); None draws parameters at random.
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
    checkpoint: Checkpoint | None = None
    start: Any = None


RUNNER: ContextVar[Callable[[ChainJob], RunResult] | None] = ContextVar("RUNNER", default=None)
"""Who runs the jobs of this context in place of ``sample_chains``: a search, which puts those of many fits together."""


def checkpointed(job: ChainJob, path: Path, parameters: Mapping[str, str], n_jobs: int | None, *, any_streams: bool) -> ChainJob:
    """Return the job with a checkpoint, and with the random streams and the division among workers of one that is there already.

    If ``path`` is a folder, the file gets a name there that belongs to this fit alone. ``parameters`` are those of the fit as text;
    ``any_streams`` says that streams other than the job's are as good. Raises ValueError if the checkpoint is that of another fit
    or cannot be written, or within a batched search.
    """
    if RUNNER.get() is not None:
        raise ValueError(
            f"checkpoint={str(path)!r} in a batched search, whose fits are computed as one batch: set checkpoint=None there, or "
            "use scikit-learn's GridSearchCV with a folder."
        )
    for stage in job.stages:
        stage.check()
    streams = "any" if any_streams else str(job.entropy)
    rows = digest((job.source, job.row_set))
    described = {
        **parameters,
        "random_state": streams,
        "device": job.device.type,
        "X, y or weights (hash)": rows[:12],
        "compiled kernel": str(kernels.network(job.dtype) is not None and job.device.type == "cpu"),
        "torch": torch.__version__,
        "sklearn_sgmcmc": sklearn_sgmcmc.__version__,
    }
    apart = ("source", "row_set", "entropy", "device", "verbose")
    of_job = {field.name: getattr(job, field.name) for field in fields(job) if field.name not in apart}
    of_machine = [described[name] for name in ("device", "compiled kernel", "torch", "sklearn_sgmcmc")]
    fingerprint = digest((rows, of_job, streams, of_machine))
    try:
        file = path / f"{fingerprint[:16]}.npz" if path.is_dir() else path
    except OSError:  # a name that is too long, say: ``begin`` tells
        file = path
    checkpoint = Checkpoint(file.absolute(), fingerprint, described, job.entropy, _groups(job, n_jobs)).begin()
    return replace(job, checkpoint=checkpoint, entropy=checkpoint.entropy)


def _groups(job: ChainJob, n_jobs: int | None) -> tuple[tuple[int, ...], ...]:
    """Return the random-number blocks of each of up to ``n_jobs`` workers."""
    blocks = blocks_of(job.n_chains)
    n_workers = min(_workers(n_jobs), len(blocks))
    return tuple(tuple(group.tolist()) for group in np.array_split(blocks, n_workers))


def sample_chains(job: ChainJob, n_jobs: int | None) -> RunResult:
    """Run all chains of a job, on up to ``n_jobs`` workers; the result does not depend on their number.

    With several workers the first one alone shows a progress bar, and an interruption from the keyboard loses all draws. A worker
    of a search, say, has no workers of its own: joblib would give it threads, and there would be more of them than cores.
    """
    runner = RUNNER.get()
    if runner is not None:
        return runner(job)
    groups = _groups(job, n_jobs) if job.checkpoint is None else job.checkpoint.groups
    if len(groups) == 1:
        return run_blocks(job, groups[0])
    n_workers = min(_workers(n_jobs), len(groups))  # fewer than groups if a run is resumed with fewer than it had
    one = run_blocks if n_workers > 1 else run_whole
    return _join(Parallel(n_jobs=n_workers)(delayed(one)(job, group) for group in groups))


def run_whole(job: ChainJob, blocks: Sequence[int]) -> RunResult:
    """Do what ``run_blocks`` does; raise KeyboardInterrupt if interrupted, whatever has been drawn."""
    result = run_blocks(job, blocks)
    if result.interrupted:
        raise KeyboardInterrupt
    return result


def _workers(n_jobs: int | None) -> int:
    """Return how many workers ``n_jobs`` allows: one inside a worker of another joblib call, which has one core for us."""
    backend, _ = get_active_backend()
    return 1 if (backend.nesting_level or 0) > 0 else int(effective_n_jobs(n_jobs))


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
    theta, state = _start(job, chains, noise)
    stages = tuple(_for_chains(stage, chains) for stage in job.stages)
    verbose = job.verbose if blocks[0] == 0 else 0
    keeper = None if job.checkpoint is None else job.checkpoint.keeper(tuple(blocks))
    steps_per_epoch = job.row_set.size / job.batch_size
    with one_thread():
        return run(stages, theta, batches, noise, start=state, verbose=verbose, steps_per_epoch=steps_per_epoch, keeper=keeper)


def _for_chains(stage: Stage, chains: range) -> Stage:
    """Return the stage with the step sizes of some of the chains, if each chain has its own."""
    step_size = stage.step_size
    if not isinstance(step_size, torch.Tensor):
        return stage
    return replace(stage, step_size=step_size[chains.start : chains.stop])


def _start(job: ChainJob, chains: range, noise: BlockNoise) -> tuple[torch.Tensor, Any]:
    """Return the parameters from which some of the chains begin, and the sampler's state if they go on from one."""
    if job.start is None:
        scale = job.initial_scale.to(device=job.device, dtype=job.dtype)
        return noise(torch.empty(len(chains), len(scale), dtype=job.dtype, device=job.device)) * scale, None
    some = slice(chains.start, chains.stop)
    if isinstance(job.start, torch.Tensor):
        return job.start[some], None
    state = map_state(job.start, lambda field: field[some])
    return state.theta, state


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


def independent_batches(job: ChainJob, n_chains: int) -> Batches:
    """Return independently drawn minibatches for ``n_chains`` chains, from random streams of their own."""
    generators = row_generators((*job.entropy, 1), range(n_chains), job.device)
    return Batches(job.source, [job.row_set] * n_chains, job.batch_size, generators, independent=True)
