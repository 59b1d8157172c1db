"""Random numbers: every chain belongs to a block of four, and every block has a generator of its own.

Numbers are drawn block by block, one call each, so that a chain's numbers depend on the seed, its position and the size of its
block alone: not on how many chains are computed together, on worker processes, or on the number of threads.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch

from sklearn_sgmcmc._typing import Snapshot

BLOCK = 4
"""Chains per random-number block."""

_NOISE, _ROWS = 0, 1  # first spawn key of the two kinds of streams


class BlockNoise:
    """Fresh N(0, 1) numbers for a batch of chains, from one generator per block of four chains."""

    def __init__(self, generators: Sequence[torch.Generator]) -> None:
        self.generators = generators

    def __call__(self, like: torch.Tensor) -> torch.Tensor:
        """Return independent standard normal numbers shaped like ``like`` (C, ...)."""
        out = torch.empty(like.shape, dtype=like.dtype, device=like.device)
        if len(self.generators) == 1:
            return out.normal_(generator=self.generators[0])
        for of_block, generator in zip(torch.split(out, BLOCK), self.generators, strict=True):
            of_block.normal_(generator=generator)
        return out

    def state(self) -> Snapshot:
        """Return where the streams of numbers are."""
        return {"generators": torch.stack([generator.get_state() for generator in self.generators])}

    def restore(self, state: Snapshot) -> None:
        """Go on from where ``state`` was taken."""
        for generator, of_block in zip(self.generators, state["generators"].cpu(), strict=True):
            generator.set_state(of_block.clone())


def noise_generators(entropy: Sequence[int], blocks: Sequence[int], device: torch.device) -> list[torch.Generator]:
    """Return the noise generators of the given blocks of chains."""
    return [_generator(entropy, (_NOISE, block), device) for block in blocks]


def row_generators(entropy: Sequence[int], chains: Sequence[int], device: torch.device) -> list[torch.Generator]:
    """Return the generators of the given chains' minibatches."""
    return [_generator(entropy, (_ROWS, chain), device) for chain in chains]


def _generator(entropy: Sequence[int], key: tuple[int, ...], device: torch.device) -> torch.Generator:
    seed = np.random.SeedSequence(entropy, spawn_key=key).generate_state(1, np.uint64)
    return torch.Generator(device=device).manual_seed(int(seed[0]))
