"""Checkpoints: a run is kept in a file, from which it goes on bit for bit after whatever has ended it.

A file is numpy's ``.npz``, with arrays named ``part.name`` and one named ``header``, JSON as bytes; nothing in it is code. It is
written beside its predecessor, flushed to the disk and renamed: at any moment a whole one is there.
"""

from __future__ import annotations

import dataclasses
import glob
import json
import os
import tempfile
import time
import warnings
import zipfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple, Protocol, Self

import numpy as np
import torch
from numpy.typing import NDArray

from sklearn_sgmcmc._typing import Snapshot

FORMAT = 1
"""Of the files; one of another format is refused."""
INTERVAL = 30.0
"""Least number of seconds between two writes ..."""
SHARE = 0.01
"""... which take at most this share of the time."""


class Resumable(Protocol):
    """A part of a run that changes from step to step."""

    def state(self) -> Snapshot:
        """Return all that the part needs to go on from here."""

    def restore(self, state: Snapshot) -> None:
        """Go on from where ``state``, on the device of the run, was taken."""


class Saved(NamedTuple):
    """Where a run stood after ``step`` steps, the last of them in stage number ``stage``: the snapshots of its parts."""

    stage: int
    step: int
    parts: dict[str, Snapshot]


@dataclass(frozen=True)
class Checkpoint:
    """The checkpoint of a fit: one file, and one beside it for each worker if there are several.

    fingerprint : hash of all that decides the draws: a file with another one belongs to another fit.
    described : the same as text, by name, as far as it can be said: to tell in what another fit differs.
    entropy : integers from which all random streams are derived.
    groups : the blocks of chains of each worker.
    """

    path: Path
    fingerprint: str
    described: dict[str, str]
    entropy: tuple[int, ...]
    groups: tuple[tuple[int, ...], ...]

    def begin(self) -> Self:
        """Return the checkpoint of this very fit that is there already; if there is none, write the first and return this one.

        Raises ValueError if what is there belongs to another fit or is no checkpoint, or if nothing can be written there.
        """
        try:
            found = self.path.exists()
            if found:
                tempfile.TemporaryFile(dir=self.path.parent).close()
                self._clear(".*.tmp")
            else:
                self._clear(".*")
                _replace(self.path, self.header(), {})
        except OSError as error:
            raise ValueError(
                f"checkpoint={str(self.path)!r} cannot be written ({error.strerror}): name a file in a folder that exists and "
                "that you may write to."
            ) from error
        return self._known() if found else self

    def keeper(self, blocks: tuple[int, ...]) -> Keeper:
        """Return what keeps the run of some blocks of chains."""
        alone = len(self.groups) == 1
        path = self.path if alone else self.path.with_name(f"{self.path.name}.blocks-{blocks[0]}-{blocks[-1]}")
        return Keeper(path, self.header())

    def header(self) -> dict[str, Any]:
        """Return what every file of the fit says of it."""
        of_fit = {field.name: getattr(self, field.name) for field in dataclasses.fields(self) if field.name != "path"}
        header: dict[str, Any] = json.loads(json.dumps({"format": FORMAT, "progress": None} | of_fit))  # lists for tuples
        return header

    def remove(self) -> None:
        """Remove all files: the fit has come to its end."""
        try:
            self.path.unlink(missing_ok=True)
            self._clear(".*")
        except OSError as error:
            warnings.warn(f"checkpoint={str(self.path)!r} could not be removed: {error}.", RuntimeWarning, stacklevel=3)

    def _clear(self, ending: str) -> None:
        """Remove files beside the first one that this module has left there."""
        kinds = (".tmp", ".blocks-")
        for path in self.path.parent.glob(glob.escape(self.path.name) + ending):
            if any(kind in path.name[len(self.path.name) :] for kind in kinds):
                path.unlink(missing_ok=True)

    def _known(self) -> Self:
        """Return what lies at the path if it belongs to this fit."""
        header, _ = _load(self.path)
        if header["fingerprint"] != self.fingerprint:
            was = header["described"]
            differ = [
                f"{name} is {value} and was {was.get(name)}" for name, value in self.described.items() if value != was.get(name)
            ]
            raise ValueError(
                f"checkpoint={str(self.path)!r} belongs to another fit: {', '.join(differ) or 'its steps are laid out otherwise'}. "
                "Repeat that fit to resume it; to start this one, remove the file or name another. Fits of a search need the name "
                "of a folder that exists in place of a file's."
            )
        groups = tuple(tuple(group) for group in header["groups"])
        return dataclasses.replace(self, entropy=tuple(header["entropy"]), groups=groups)


class Keeper:
    """Writes a run to its file now and then."""

    def __init__(self, path: Path, header: dict[str, Any]) -> None:
        self.path = path
        self.header = header
        self.next = time.monotonic() + INTERVAL
        self.warned = False

    def due(self) -> bool:
        """Return whether it is time to write."""
        return time.monotonic() >= self.next

    def write(self, stage: int, step: int, state: Any, parts: Mapping[str, Resumable | None]) -> None:
        """Write the sampler's state and the parts of a run; warn, once, if that is not possible."""
        start = time.monotonic()
        snapshots = {"sampler": state._asdict()} | {name: part.state() for name, part in parts.items() if part is not None}
        arrays = {
            f"{name}.{key}": value.detach().cpu().numpy() for name, snapshot in snapshots.items() for key, value in snapshot.items()
        }
        try:
            _replace(self.path, self.header | {"progress": {"stage": stage, "step": step}}, arrays)
        except OSError as error:
            if not self.warned:
                warnings.warn(
                    f"checkpoint={str(self.path)!r} could not be written after step {step} ({error.strerror}): the run goes on, "
                    "and will try again. Until then, one that is killed goes on from the last file that was written.",
                    RuntimeWarning,
                    stacklevel=3,
                )
            self.warned = True
        now = time.monotonic()
        self.next = now + max(INTERVAL, (now - start) / SHARE)

    def read(self, device: torch.device) -> Saved | None:
        """Return where the run stood, None if it has not begun; raise ValueError if the file is not of this run."""
        if not self.path.exists():
            return None
        header, arrays = _load(self.path, whole=True)
        progress = header["progress"]
        if any(header[name] != self.header[name] for name in ("fingerprint", "entropy", "groups")):
            raise ValueError(f"checkpoint file {str(self.path)!r} belongs to another fit: remove it, and fit again.")
        if progress is None:
            return None
        parts: dict[str, Snapshot] = {}
        for name, array in arrays.items():
            part, _, key = name.partition(".")
            parts.setdefault(part, {})[key] = torch.from_numpy(array).to(device)
        return Saved(progress["stage"], progress["step"], parts)


def _replace(path: Path, header: Mapping[str, Any], arrays: Mapping[str, NDArray[Any]]) -> None:
    """Put a file in the place of the one at ``path``: on the disk there is always one or the other, whole."""
    number, name = tempfile.mkstemp(prefix=f"{path.name}.", suffix=".tmp", dir=path.parent)
    try:
        with os.fdopen(number, "wb") as file:
            text = np.frombuffer(json.dumps(header).encode(), dtype=np.uint8)
            named: dict[str, Any] = {"header": text, **arrays}
            np.savez(file, **named)
            file.flush()
            os.fsync(file.fileno())
        Path(name).replace(path)
    finally:
        Path(name).unlink(missing_ok=True)
    if hasattr(os, "O_DIRECTORY"):
        folder = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)


def _load(path: Path, *, whole: bool = False) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
    """Return a file's header and, if asked, its arrays; raise ValueError if it is damaged or something else."""
    try:
        with np.load(path, allow_pickle=False) as file:
            header = json.loads(file["header"].tobytes())
            arrays = {name: file[name] for name in file.files if name != "header"} if whole else {}
            if not {"format", "fingerprint", "described", "entropy", "groups", "progress"} <= set(header):
                raise KeyError("header")
    except (OSError, ValueError, LookupError, TypeError, AttributeError, EOFError, zipfile.BadZipFile) as error:
        raise ValueError(
            f"checkpoint={str(path)!r} is no checkpoint, or is damaged ({type(error).__name__}: {str(error)[:100]}): "
            "remove the file to start anew, or name another."
        ) from error
    if header["format"] != FORMAT:
        raise ValueError(
            f"checkpoint={str(path)!r} has format {header['format']}, and this version reads {FORMAT}: finish that fit with the "
            "version that began it, or remove the file."
        )
    return header, arrays
