"""``normals.c``: standard normal numbers, several independent streams in one call."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence

import numpy as np
import torch
from numpy.typing import NDArray

WORDS = 32
"""Numbers of 64 bits in a state: four for each of eight generators."""


class NormalGenerator:
    """The state of a stream of normal numbers, kept and restored as that of a torch.Generator is."""

    def __init__(self, seed: NDArray[np.uint64]) -> None:
        self.words = np.array(seed, dtype=np.uint64)

    def get_state(self) -> torch.Tensor:
        """Return the state as bytes, shape (256,)."""
        return torch.from_numpy(self.words.view(np.uint8).copy())

    def set_state(self, state: torch.Tensor) -> None:
        """Go on from a state; raise ValueError if it is not one of these."""
        if state.dtype != torch.uint8 or state.shape != (8 * WORDS,):
            raise ValueError(
                f"state must be {8 * WORDS} bytes, as get_state gives them, and is a {state.dtype} tensor of shape "
                f"{tuple(state.shape)}: one of torch's generators cannot go on here. Set SKLEARN_SGMCMC_COMPILE alike in both runs."
            )
        self.words.view(np.uint8)[:] = state.numpy()

    @property
    def address(self) -> int:
        """Where C finds the state, as long as this object lives."""
        return int(self.words.ctypes.data)


class Normals:
    """The function of ``normals.c`` for each dtype."""

    def __init__(self, libraries: dict[torch.dtype, ctypes.CDLL]) -> None:
        self._calls = {dtype: library.normals for dtype, library in libraries.items()}
        for call in self._calls.values():
            call.restype = None
            call.argtypes = [ctypes.c_long, ctypes.c_long, ctypes.c_void_p, ctypes.c_void_p]

    @staticmethod
    def addresses(generators: Sequence[NormalGenerator]) -> ctypes.Array[ctypes.c_void_p]:
        """Return where the generators' states are, as ``fill`` wants it."""
        return (ctypes.c_void_p * len(generators))(*(generator.address for generator in generators))

    def fill(self, out: torch.Tensor, n_of_each: int, addresses: ctypes.Array[ctypes.c_void_p]) -> None:
        """Fill a contiguous tensor, ``n_of_each`` numbers from each of the generators, the last of which may have fewer to give."""
        self._calls[out.dtype](out.numel(), n_of_each, ctypes.addressof(addresses), out.data_ptr())


def xoshiro(state: NDArray[np.uint64], n_steps: int) -> NDArray[np.uint64]:
    """Return the words (n_steps, 8) of eight xoshiro256++ generators, the reference of ``normals.c``.

    Source: Blackman & Vigna 2021, figure 4.
    """

    def rotated(x: NDArray[np.uint64], k: int) -> NDArray[np.uint64]:
        return (x << np.uint64(k)) | (x >> np.uint64(64 - k))

    s = state.reshape(4, 8).copy()
    words = []
    for _ in range(n_steps):
        words.append(rotated(s[0] + s[3], 23) + s[0])
        t = s[1] << np.uint64(17)
        for a, b in ((2, 0), (3, 1), (1, 2), (0, 3)):
            s[a] ^= s[b]
        s[2] ^= t
        s[3] = rotated(s[3], 45)
    return np.stack(words)


def box_muller(words: NDArray[np.uint64], dtype: torch.dtype) -> NDArray[np.float64]:
    """Return the normal numbers that two steps' words make, in the order of ``normals.c``, computed in float64."""
    if dtype == torch.float32:
        a, b = words.view(np.uint32)
        u = ((a & np.uint32(0x7FFFFFFF)) + ((b & np.uint32(255)) + 0.5) / 256) / 2**31
        turn = (b & ~np.uint32(255)).view(np.int32) / 2**32
    else:
        a, b = words
        u = 1 - (a & np.uint64(2**52 - 1)) / 2**52
        turn = (b & np.uint64(2**52 - 1)) / 2**52 - 0.5
    radius = np.sqrt(-2 * np.log(u))
    return np.concatenate([radius * np.cos(2 * np.pi * turn), radius * np.sin(2 * np.pi * turn)])


def agrees(normals: Normals) -> bool:
    """Compare the kernel with its reference."""
    seed = np.random.SeedSequence(0).generate_state(WORDS, np.uint64).astype(np.uint64)
    for dtype in normals._calls:
        generator = NormalGenerator(seed)
        n = 128 // dtype.itemsize
        found = torch.empty(2 * n + 3, dtype=dtype)
        normals.fill(found, len(found), normals.addresses([generator]))
        words = xoshiro(seed, 6)
        expected = np.concatenate([box_muller(words[step : step + 2], dtype) for step in (0, 2, 4)])[: len(found)]
        if not np.allclose(found.numpy(), expected, rtol=0, atol=1e-5 if dtype == torch.float32 else 1e-14):
            return False
    return True
