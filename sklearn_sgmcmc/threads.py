"""How torch computes for us, whatever the caller has set: in one thread, on the CPU by default, in full precision.

Numbers below the normal range are another matter of a thread: a run takes them for 0.

At these shapes more threads gain nothing and fight other processes for the cores. One thread also lets a forked process compute:
OpenMP's threads do not survive a fork, and a second one would be waited for in vain.
"""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

import torch

_turn = threading.Lock()


def _renew() -> None:
    """Make the lock anew in a forked process: the thread that held it is not there."""
    global _turn
    _turn = threading.Lock()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_renew)


@contextmanager
def one_thread() -> Iterator[None]:
    """Let this Python thread's torch calls use one thread for a while, whatever happens inside; other threads keep theirs."""
    before = torch.get_num_threads()
    if before == 1:
        yield
        return
    try:
        _set_here(1)
        yield
    finally:
        _set_here(before)


@contextmanager
def isolated() -> Iterator[None]:
    """Compute in one thread, without the caller's default device and automatic lower precision."""
    with ExitStack() as stack:
        stack.enter_context(one_thread())
        if torch.empty(0).device.type != "cpu":
            stack.enter_context(torch.device("cpu"))
        for kind in ("cpu", "cuda"):
            if torch.is_autocast_enabled(kind):
                stack.enter_context(torch.autocast(kind, enabled=False))
        yield


@contextmanager
def flushed() -> Iterator[None]:
    """Take numbers below the normal range for 0 on this thread for a while: processors are many times as slow with them.

    An optimiser brings a weight there that the prior alone pulls, that of a column without variation or of a unit that never fires.
    """
    with _flush_denormal(True):
        yield


@contextmanager
def exact() -> Iterator[None]:
    """Take numbers below the normal range for what they are on this thread for a while: data may be of that size."""
    with _flush_denormal(False):
        yield


@contextmanager
def _flush_denormal(wanted: bool) -> Iterator[None]:
    before = sys.float_info.min / 2 == 0.0
    if before == wanted:
        yield
        return
    torch.set_flush_denormal(wanted)
    try:
        yield
    finally:
        torch.set_flush_denormal(before)


def _set_here(n_threads: int) -> None:
    """Set the number of this Python thread alone.

    torch keeps a number per Python thread, and one for those that are yet to call it: the last that any thread has set. A fresh
    thread reads that one beforehand and sets it again afterwards.
    """
    known, changed = threading.Event(), threading.Event()

    def keep() -> None:
        of_others = torch.get_num_threads()
        known.set()
        changed.wait()
        torch.set_num_threads(of_others)

    with _turn:
        keeper = threading.Thread(target=keep, daemon=True)
        keeper.start()
        try:
            known.wait()
        finally:
            torch.set_num_threads(n_threads)
            changed.set()
            keeper.join()
