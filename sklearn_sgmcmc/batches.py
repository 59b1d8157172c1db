"""Minibatches: one endless stream of rows per chain, and the sources that turn row numbers into tensors."""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple, Protocol, TypeAlias

import numpy as np
import torch
from numpy.typing import NDArray

from sklearn_sgmcmc import kernels
from sklearn_sgmcmc._typing import Rows, Snapshot
from sklearn_sgmcmc.network import with_constant
from sklearn_sgmcmc.threads import exact

TOGETHER = 2**18
"""Numbers of inputs that are scaled at a time where rows are not scaled beforehand: what the second-level cache holds."""
QUEUE = 2**16
"""Row numbers per chain that are queued at a time: few beside a large permutation, many beside a small one's overhead."""


class Batch(NamedTuple):
    """The rows of one step: x (C, n, d + 1) with a constant last column, target (C, n, columns), weight (C, n)."""

    x: Rows
    target: Rows
    weight: torch.Tensor

    def weighted(self, weight: torch.Tensor) -> Batch:
        """Return the same rows with other weights."""
        return Batch(self.x, self.target, weight)

    def expanded(self, n_chains: int) -> Batch:
        """Return the same rows for every chain, if they are one chain's."""
        return Batch(*(part.expand(n_chains, *part.shape[1:]) for part in self))

    def placed(self) -> tuple[kernels.Rows, None]:
        """Return where a kernel finds the rows."""
        return kernels.Rows(self.x, self.target), None


class TableBatch:
    """A batch whose rows stay in their table until somebody asks for them: a kernel reads them there by their numbers."""

    __slots__ = ("_parts", "index", "source", "weight")

    def __init__(self, source: DenseRows, index: torch.Tensor, weight: torch.Tensor) -> None:
        self.source = source
        self.index = index
        self.weight = weight
        self._parts: tuple[torch.Tensor, ...] | None = None

    def _gathered(self) -> tuple[torch.Tensor, ...]:
        if self._parts is None:
            self._parts = self.source.gather(self.index)
        return self._parts

    @property
    def x(self) -> Rows:
        """Inputs, as of ``Batch``."""
        return self._gathered()[0]

    @property
    def target(self) -> Rows:
        """Targets, as of ``Batch``."""
        return self._gathered()[1]

    def __iter__(self) -> Iterator[torch.Tensor]:
        return iter((self.x, self.target, self.weight))

    def weighted(self, weight: torch.Tensor) -> TableBatch:
        """Return the same rows with other weights."""
        return TableBatch(self.source, self.index, weight)

    def placed(self) -> tuple[kernels.Rows, torch.Tensor]:
        """Return where a kernel finds the table, and the rows' numbers."""
        return self.source.placed(), self.index.contiguous()


Minibatch: TypeAlias = Batch | TableBatch
"""x, target and weight of the rows of one step, in this order when unpacked."""


class RowSource(Protocol):
    """All training rows of a run. The row sets of several fits lie one behind the other."""

    @property
    def n_rows(self) -> int:
        """Number of rows."""

    def take(self, index: torch.Tensor) -> Minibatch:
        """Return the rows with numbers ``index`` (C, n)."""

    def take_ahead(self, queue: Sequence[torch.Tensor]) -> list[Minibatch]:
        """Return the rows of the last few batches of a queue of row numbers (C, n), in its order; how many, the source decides."""


class DenseRows:
    """Rows scaled and cast beforehand; inputs, constant, targets and weights lie side by side and are gathered at once.

    Weights that are all 1 are not gathered: every batch of a size then holds the same tensor of them.
    """

    def __init__(self, x: torch.Tensor, target: torch.Tensor, weight: torch.Tensor) -> None:
        columns = [with_constant(x), target]
        if not bool((weight == 1.0).all()):
            columns.append(weight[:, None])
        self._hold(torch.cat(columns, dim=1), [column.shape[1] for column in columns])

    @classmethod
    def of_table(cls, table: torch.Tensor, parts: list[int]) -> DenseRows:
        """Return rows that lie in a table already: inputs with their constant, targets and, unless all are 1, weights."""
        rows = cls.__new__(cls)
        rows._hold(table, parts)
        return rows

    def _hold(self, table: torch.Tensor, parts: list[int]) -> None:
        self.table = table
        self.parts = parts
        self.ones: torch.Tensor | None = table.new_ones(()) if len(parts) == 2 else None
        self._placed: kernels.Rows | None = None

    def __getstate__(self) -> dict[str, Any]:
        return self.__dict__ | {"_placed": None}  # addresses mean nothing in another process

    @classmethod
    def joined(cls, sources: Sequence[DenseRows]) -> DenseRows:
        """Return the rows of several sources with the same columns, one behind the other."""
        return cls.of_table(torch.cat([source.table for source in sources]), sources[0].parts)

    @property
    def n_rows(self) -> int:
        """Number of rows."""
        return len(self.table)

    def gather(self, index: torch.Tensor) -> tuple[torch.Tensor, ...]:
        """Return the columns of rows ``index`` (C, n): inputs, targets and, where they differ, weights."""
        return torch.embedding(self.table, index).split_with_sizes(self.parts, dim=2)

    def take(self, index: torch.Tensor) -> Minibatch:
        """Return the rows with numbers ``index`` (C, n)."""
        weight = self.ones
        if weight is None:
            x, target, weight = self.gather(index)
            return Batch(x, target, weight.squeeze(2))
        if weight.shape != index.shape:
            self.ones = weight = weight.new_ones(index.shape)
        return TableBatch(self, index, weight)

    def take_ahead(self, queue: Sequence[torch.Tensor]) -> list[Minibatch]:
        """Return the rows of the last batch of a queue of row numbers (C, n)."""
        return [self.take(queue[-1])]

    def placed(self) -> kernels.Rows:
        """Return where a kernel finds the table."""
        if self._placed is None:
            x, target = self.table.split_with_sizes(self.parts, dim=1)
            self._placed = kernels.Rows(x.expand(1, *x.shape), target.expand(1, *target.shape))
        return self._placed


class Scaling(NamedTuple):
    """Column means and scales (d,) in float64."""

    mean: NDArray[np.float64]
    scale: NDArray[np.float64]

    def apply(self, x: NDArray[Any], dtype: np.dtype[Any] | type, name: str = "X", option: str = "standardize") -> NDArray[Any]:
        """Return (x - mean) / scale, formed in float64 and then cast.

        Raises ValueError, in terms of the argument ``name`` and the parameter ``option``, if that does not fit into the dtype.
        """
        with np.errstate(over="ignore", invalid="ignore"):
            scaled = np.asarray((x.astype(np.float64) - self.mean) / self.scale).astype(dtype)
        if not np.isfinite(scaled).all():
            raise ValueError(
                f"{name} has values that overflow {np.dtype(dtype).name} once scaled: they lie too far from the training rows, "
                f"or {option}=False left them in extreme units. Check the units of {name}, or use {option}=True."
            )
        return scaled


class LazyRows:
    """Rows of a sparse matrix, or of an array too large to copy: gathered, scaled and cast for a few batches at a time.

    The numbers are those of ``DenseRows``: the mean is subtracted after a batch is made dense. ``target`` and ``weight`` may be of
    other types than ``dtype``. On a GPU every few batches cost a copy from the host.
    """

    def __init__(
        self, x: Any, scaling: Scaling, target: torch.Tensor, weight: torch.Tensor, dtype: torch.dtype, device: torch.device
    ) -> None:
        self.x = x
        self.table = None if hasattr(x, "toarray") else shared(x)
        self.mean, self.scale = (torch.from_numpy(np.ascontiguousarray(part)) for part in scaling)
        self.target = target
        self.weight = None if bool((weight == 1.0).all()) else weight
        self.dtype = dtype
        self.device = device

    @property
    def n_rows(self) -> int:
        """Number of rows."""
        return int(self.x.shape[0])

    def take_ahead(self, queue: Sequence[torch.Tensor]) -> list[Minibatch]:
        """Return the rows of the last few batches of a queue of row numbers (C, n): a single one is all overhead."""
        n_steps = max(1, TOGETHER // (queue[-1].numel() * self.x.shape[1]))
        return self._fetched(torch.stack(list(queue[-n_steps:])))

    def take(self, index: torch.Tensor) -> Minibatch:
        """Return the rows with numbers ``index`` (C, n)."""
        return self._fetched(index[None])[0]

    def _fetched(self, index: torch.Tensor) -> list[Minibatch]:
        """Return the batches of several steps (steps, C, n), whose rows lie side by side in a table of their own."""
        numbers = index.flatten().cpu().long()
        d, n_targets = self.x.shape[1], self.target.shape[1]
        parts = [d + 1, n_targets] if self.weight is None else [d + 1, n_targets, 1]
        table = torch.empty(len(numbers), sum(parts), dtype=self.dtype)
        self._write_scaled(numbers, table)
        table[:, d + 1 : d + 1 + n_targets] = torch.embedding(self.target, numbers)
        if self.weight is not None:
            table[:, -1] = self.weight[numbers]
        rows = DenseRows.of_table(table.to(self.device), parts)
        return [rows.take(step) for step in torch.arange(len(numbers), device=self.device).view(index.shape)]

    @exact()
    def _write_scaled(self, numbers: torch.Tensor, table: torch.Tensor) -> None:
        """Write scaled inputs and their constant into the first columns of ``table``."""
        kernel, d = kernels.scaled_rows(), self.x.shape[1]
        if kernel is not None and self.table is not None:
            kernel.write(self.table, numbers, self.mean, self.scale, table)
            return
        rows = dense_rows(self.x, numbers.numpy()) if self.table is None else torch.embedding(self.table, numbers)
        table[:, :d] = torch.as_tensor(rows).double().sub_(self.mean).div_(self.scale)
        table[:, d] = 1.0


def shared(x: NDArray[Any]) -> torch.Tensor:
    """Return a tensor that shares the memory of an array, read-only ones included: it is never written to."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="The given NumPy array is not writable", category=UserWarning)
        return torch.from_numpy(x)


def dense_rows(x: Any, rows: NDArray[np.int64] | slice) -> NDArray[Any]:
    """Return rows of an array or a CSR matrix as a dense array in row order."""
    chosen = x[rows]
    return np.ascontiguousarray(chosen.toarray() if hasattr(chosen, "toarray") else chosen)


class RowSet(NamedTuple):
    """The rows of one chain: ``size`` of them from ``start`` on."""

    start: int
    size: int


class Batches:
    """An endless stream of minibatches of constant size, one row set and one generator per chain.

    ``independent=False`` walks through one random permutation of a chain's rows after another, without a gap between them.
    ``independent=True`` draws every row of every batch independently with replacement, as corrections for gradient noise need.
    If the batch is as large as every row set and not independent, all rows come in their own order and no random number is used.
    """

    def __init__(
        self,
        source: RowSource,
        row_sets: Sequence[RowSet],
        batch_size: int,
        generators: Sequence[torch.Generator],
        *,
        independent: bool = False,
    ) -> None:
        self.source = source
        self.row_sets = row_sets
        self.batch_size = batch_size
        self.generators = generators
        self.independent = independent
        self.device = generators[0].device
        kind = torch.int32 if source.n_rows < 2**31 else torch.int64
        self.left = [torch.empty(0, dtype=kind, device=self.device) for _ in row_sets]
        self.queue: list[torch.Tensor] = []
        self.ready: list[Minibatch] = []
        self.whole = self._whole() if all(rows.size <= batch_size for rows in row_sets) and not independent else None

    def __iter__(self) -> Batches:
        return self

    def resized(self, batch_size: int) -> Batches:
        """Return a stream of batches of another size, from the same rows and generators."""
        return Batches(self.source, self.row_sets, batch_size, self.generators, independent=self.independent)

    def __next__(self) -> Minibatch:
        """Return the next minibatch of every chain."""
        if self.whole is not None:
            return self.whole
        if not self.ready:
            if not self.queue:
                self._refill()
            self.ready = self.source.take_ahead(self.queue)
        self.queue.pop()
        return self.ready.pop()

    def state(self) -> Snapshot:
        """Return where the streams of rows are: the generators, the rows left over, and the batches of the next steps."""
        return {
            "generators": torch.stack([generator.get_state() for generator in self.generators]),
            "left": torch.cat(self.left),
            "lengths": torch.tensor([len(left) for left in self.left]),
            "queue": torch.stack(self.queue) if self.queue else torch.empty(0, dtype=torch.int64),
        }

    def restore(self, state: Snapshot) -> None:
        """Go on from where ``state`` was taken."""
        for generator, of_chain in zip(self.generators, state["generators"].cpu(), strict=True):
            generator.set_state(of_chain.clone())
        self.left = list(state["left"].split_with_sizes(state["lengths"].tolist()))
        self.queue, self.ready = list(state["queue"].unbind()), []

    def _whole(self) -> Minibatch:
        """Return all rows; chains with the same rows share their memory."""
        distinct = set(self.row_sets)
        if len({rows.size for rows in distinct}) > 1:
            raise ValueError("Chains at full batch must have the same number of rows: group them by size.")
        if len(distinct) > 1:
            return self.source.take(torch.stack([self._all_rows(rows) for rows in self.row_sets]))
        return Batch(*self.source.take(self._all_rows(self.row_sets[0])[None])).expanded(len(self.row_sets))

    def _all_rows(self, rows: RowSet) -> torch.Tensor:
        return torch.arange(rows.start, rows.start + rows.size, device=self.device)

    def _refill(self) -> None:
        """Queue the row numbers of the next steps: an epoch's, but at least 64 and at most ``QUEUE`` numbers per chain."""
        n_steps = max(64, min(QUEUE, max(rows.size for rows in self.row_sets)) // self.batch_size)
        length = n_steps * self.batch_size
        queue = []
        for chain, (rows, generator) in enumerate(zip(self.row_sets, self.generators, strict=True)):
            stream = self._stream(self.left[chain], rows, generator, length)
            queue.append(stream[:length])
            self.left[chain] = stream[length:]
        steps = torch.stack(queue).view(len(queue), n_steps, self.batch_size).transpose(0, 1).contiguous()
        self.queue = list(steps.unbind())[::-1]

    def _stream(self, left: torch.Tensor, rows: RowSet, generator: torch.Generator, length: int) -> torch.Tensor:
        """Return at least ``length`` row numbers of one chain, starting with those ``left`` over."""
        if self.independent:
            return torch.randint(rows.size, (length,), generator=generator, device=self.device).add_(rows.start)
        n_permutations = max(0, -(-(length - len(left)) // rows.size))
        permutations = [
            torch.randperm(rows.size, generator=generator, device=self.device, dtype=left.dtype).add_(rows.start)
            for _ in range(n_permutations)
        ]
        return torch.cat([left, *permutations])
