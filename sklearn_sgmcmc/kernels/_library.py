"""From C to a shared library: compiled once per source, compiler and processor, and kept in the user's cache directory."""

from __future__ import annotations

import atexit
import ctypes
import hashlib
import os
import platform
import shutil
import subprocess
import tempfile
from functools import lru_cache
from pathlib import Path

import torch

SWITCH = "SKLEARN_SGMCMC_COMPILE"
HERE = Path(__file__).parent
REALS = {torch.float32: "float", torch.float64: "double"}
FLAGS = ("-O2", "-march=native", "-fno-math-errno", "-std=gnu11", "-shared", "-fPIC")
LONGEST_COMPILATION = 300.0
"""Seconds: one takes a few alone, and many times as long beside other processes. Whoever gives up has other random numbers."""


class CompilationSwitchedOffError(OSError):
    """The environment says that nothing is to be compiled."""


def compiled(name: str, real: str) -> ctypes.CDLL:
    """Return the library of ``name``.c for C's type ``real``.

    Raises OSError or SubprocessError if it cannot be had.
    """
    if os.environ.get(SWITCH, "1") == "0":
        raise CompilationSwitchedOffError(f"{SWITCH}=0")
    made = library(name, real)
    try:
        return ctypes.CDLL(str(made))
    except OSError:  # a full disk may have cut the file short
        made.unlink(missing_ok=True)
        return ctypes.CDLL(str(library(name, real)))


def library(name: str, real: str) -> Path:
    """Return the file, compiled if it is not in the cache."""
    compiler = next(
        (found for name in (os.environ.get("CC", ""), "cc", "gcc", "clang") if name and (found := shutil.which(name))), None
    )
    if compiler is None:
        raise OSError("no C compiler was found")
    source = HERE / f"{name}.c"
    texts = [source.read_bytes(), *(header.read_bytes() for header in sorted(HERE.glob("*.h")))]
    key = hashlib.sha256(b"\0".join([*texts, compiler.encode(), " ".join(FLAGS).encode(), _processor().encode()])).hexdigest()[:16]
    file = f"{name}-{real}-{key}.so"
    cache = _cache()
    if cache is not None and os.access(cache / file, os.R_OK):  # the cache of an image may be read-only
        return cache / file
    folder = cache if cache is not None and _writable(cache) else _of_this_process()
    made = folder / file
    if not made.exists():
        with tempfile.TemporaryDirectory(dir=folder) as aside:  # another process may be compiling the same: the rename is atomic
            new = Path(aside) / made.name
            command = [compiler, *FLAGS, f"-DREAL={real}", str(source), "-o", str(new), "-lm"]
            subprocess.run(command, check=True, capture_output=True, timeout=LONGEST_COMPILATION)
            new.replace(made)
    return made


def _cache() -> Path | None:
    """Return the folder of this user alone for compiled files, None if the user has no home."""
    try:
        base = os.environ.get("XDG_CACHE_HOME") or os.environ.get("LOCALAPPDATA") or Path.home() / ".cache"
    except RuntimeError:
        return None
    return Path(base) / "sklearn_sgmcmc"


def _writable(folder: Path) -> bool:
    """Return whether a folder is there, or could be made, and may be written to."""
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        return os.access(folder, os.W_OK)
    except OSError:
        return False


@lru_cache(maxsize=1)
def _of_this_process() -> Path:
    """Return a folder for compiled files that goes when the process ends."""
    folder = tempfile.mkdtemp(prefix="sklearn_sgmcmc-")
    owner = os.getpid()
    atexit.register(lambda: shutil.rmtree(folder, ignore_errors=True) if os.getpid() == owner else None)  # not by a fork
    return Path(folder)


def _processor() -> str:
    """Return what tells processors apart: code for one may not run on another that shares the home directory."""
    info = Path("/proc/cpuinfo")
    lines = info.read_text(errors="replace").splitlines() if info.exists() else []
    own = [line for line in lines if line.startswith(("flags", "Features", "model name"))]
    return "\n".join([platform.machine(), platform.processor(), *dict.fromkeys(own)])
