"""Compiled kernels for small networks on a CPU, where calling torch costs more than computing.

``network`` gives outputs and gradients of all chains in one call, ``normals`` the random numbers, ``moments`` averages over draws,
``scaled_rows`` the rows of a table that is too large to copy, ``velocity`` turns the unit velocities of microcanonical dynamics.
They are compiled from C by the machine's own compiler when they are first needed, kept in the user's cache directory, and compared
with torch before they are used. Without a compiler, or with the environment variable SKLEARN_SGMCMC_COMPILE=0, torch does the same
work more slowly, with other random numbers of the same law. ``status()`` says which is the case.
"""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from functools import lru_cache
from typing import TypeVar

import torch

from sklearn_sgmcmc.kernels import _moments, _network, _normals, _rows, _velocity
from sklearn_sgmcmc.kernels._library import REALS, SWITCH, CompilationSwitchedOffError, compiled
from sklearn_sgmcmc.kernels._moments import Moments
from sklearn_sgmcmc.kernels._network import LIKELIHOODS, Model, Network, Rows
from sklearn_sgmcmc.kernels._normals import WORDS, NormalGenerator, Normals
from sklearn_sgmcmc.kernels._rows import ScaledRows
from sklearn_sgmcmc.kernels._velocity import Velocity

__all__ = [
    "LIKELIHOODS",
    "SWITCH",
    "WORDS",
    "Model",
    "Moments",
    "Network",
    "NormalGenerator",
    "Normals",
    "Rows",
    "ScaledRows",
    "Velocity",
    "moments",
    "network",
    "normals",
    "scaled_rows",
    "status",
    "velocity",
]


Kernel = TypeVar("Kernel")


@lru_cache(maxsize=1)
def status() -> str:
    """Return in a sentence whether the compiled kernels are used here, and why not if they are not.

    Returns
    -------
    str
        The same sentence at every call of a process.

    Examples
    --------
    >>> from sklearn_sgmcmc import kernels
    >>> kernels.status().endswith(".")
    True
    """
    return _load_network(torch.float32)[1]


@lru_cache(maxsize=len(REALS))
def network(dtype: torch.dtype) -> Network | None:
    """Return the compiled network for float32 or float64; None where there is none."""
    return _load_network(dtype)[0] if dtype in REALS else None


@lru_cache(maxsize=1)
def normals() -> Normals | None:
    """Return the compiled source of normal numbers, for float32 and float64; None where there is none."""
    return _checked(lambda: Normals({dtype: compiled("normals", real) for dtype, real in REALS.items()}), _normals.agrees)


@lru_cache(maxsize=1)
def moments() -> Moments | None:
    """Return the compiled averages over draws, for float64; None where there are none."""
    return _checked(lambda: Moments(compiled("moments", "double")), _moments.agrees)


@lru_cache(maxsize=1)
def scaled_rows() -> ScaledRows | None:
    """Return what fetches and scales rows of a table, compiled; None where there is none."""
    return _checked(lambda: ScaledRows(compiled("rows", "double")), _rows.agrees)


@lru_cache(maxsize=len(REALS))
def velocity(dtype: torch.dtype) -> Velocity | None:
    """Return the compiled kicks of unit velocities for float32 or float64; None where there are none."""
    if dtype not in REALS:
        return None
    return _checked(lambda: Velocity(compiled("velocity", REALS[dtype])), lambda kernel: _velocity.agrees(kernel, dtype))


def _checked(make: Callable[[], Kernel], agrees: Callable[[Kernel], bool]) -> Kernel | None:
    """Return a kernel that can be compiled and gives the right numbers, else None."""
    try:
        found = make()
    except (OSError, subprocess.SubprocessError, AttributeError):
        return None
    with torch.device("cpu"):  # whatever the caller's default device
        return found if agrees(found) else None


@lru_cache(maxsize=len(REALS))
def _load_network(dtype: torch.dtype) -> tuple[Network | None, str]:
    try:
        kernel = Network(compiled("network", REALS[dtype]))
    except CompilationSwitchedOffError as error:
        return None, f"torch computes the layers: {error}."
    except (OSError, subprocess.SubprocessError, AttributeError) as error:
        return None, f"torch computes the layers: no kernel could be compiled ({error})."
    with torch.device("cpu"):
        agrees = _network.agrees(kernel, dtype)
    if not agrees:
        return None, "torch computes the layers: the compiled kernel gave other numbers than torch."
    return kernel, f"A compiled kernel computes small networks; vectors of {kernel.lanes} numbers in float32."
