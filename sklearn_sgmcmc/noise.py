"""Random numbers: every chain belongs to a block of four, and every block has a generator of its own.

Numbers are drawn block by block, one call each, so that a chain's numbers depend on the seed, its position and the size of its
block alone: not on how many chains are computed together, on worker processes, or on the number of threads. On a CPU the numbers
come from ``kernels/normals.c``; on a GPU, or without a C compiler, from torch: other numbers of the same law.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast

import numpy as np
import torch
from numpy.typing import NDArray

from sklearn_sgmcmc import kernels
from sklearn_sgmcmc._typing import Snapshot
from sklearn_sgmcmc.kernels import NormalGenerator

BLOCK = 4
"""Chains per random-number block."""

_NOISE, _ROWS = 0, 1  # first spawn key of the two kinds of streams


def blocks_of(n_chains: int) -> range:
    """Return the numbers of the blocks of so many chains; the last one may be short."""
    return range(-(-n_chains // BLOCK))


class BlockNoise:
    """Fresh N(0, 1) numbers for a batch of chains, from one generator per block of four chains; all are of one kind."""

    def __init__(self, generators: Sequence[torch.Generator | NormalGenerator]) -> None:
        self.generators = generators
        self._addresses = None
        if isinstance(generators[0], NormalGenerator):
            self._addresses = kernels.Normals.addresses([g for g in generators if isinstance(g, NormalGenerator)])

    def __call__(self, like: torch.Tensor) -> torch.Tensor:
        """Return independent standard normal numbers shaped like ``like`` (C, ...)."""
        out = torch.empty_like(like) if like.is_contiguous() else torch.empty_like(like, memory_format=torch.contiguous_format)
        alone = len(self.generators) == 1
        if not alone and len(blocks_of(len(out))) != len(self.generators):
            raise ValueError(f"{len(out)} chains are not {len(self.generators)} blocks of {BLOCK}.")
        if self._addresses is not None:
            compiled = kernels.normals()
            assert compiled is not None
            compiled.fill(out, out.numel() if alone else BLOCK * out.stride(0), self._addresses)
            return out
        for of_block, generator in zip([out] if alone else torch.split(out, BLOCK), self.generators, strict=True):
            of_block.normal_(generator=cast(torch.Generator, generator))
        return out

    def state(self) -> Snapshot:
        """Return where the streams of numbers are."""
        return {"generators": torch.stack([generator.get_state() for generator in self.generators])}

    def restore(self, state: Snapshot) -> None:
        """Go on from where ``state`` was taken."""
        for generator, of_block in zip(self.generators, state["generators"].cpu(), strict=True):
            generator.set_state(of_block.clone())


def noise_generators(
    entropy: Sequence[int], blocks: Sequence[int], device: torch.device
) -> Sequence[torch.Generator | NormalGenerator]:
    """Return the noise generators of the given blocks of chains."""
    if device.type == "cpu" and kernels.normals() is not None:
        return [NormalGenerator(_seed(entropy, (_NOISE, block), kernels.WORDS)) for block in blocks]
    return [_generator(entropy, (_NOISE, block), device) for block in blocks]


def row_generators(entropy: Sequence[int], chains: Sequence[int], device: torch.device) -> list[torch.Generator]:
    """Return the generators of the given chains' minibatches."""
    return [_generator(entropy, (_ROWS, chain), device) for chain in chains]


def _generator(entropy: Sequence[int], key: tuple[int, ...], device: torch.device) -> torch.Generator:
    return torch.Generator(device=device).manual_seed(int(_seed(entropy, key, 1)[0]))


def _seed(entropy: Sequence[int], key: tuple[int, ...], n_words: int) -> NDArray[np.uint64]:
    return np.random.SeedSequence(entropy, spawn_key=key).generate_state(n_words, np.uint64).astype(np.uint64)
