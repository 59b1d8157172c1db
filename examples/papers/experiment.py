"""What the scripts of this folder share: a budget on the command line, cells that are computed once, a table and a figure."""

import argparse
import dataclasses
import time
from pathlib import Path

import numpy as np
from matplotlib import rcParams

from sklearn_sgmcmc.displays import OKABE_ITO

rcParams["legend.handlelength"] = 3.5
rcParams["axes.spines.top"] = rcParams["axes.spines.right"] = False
COLOURS = (*OKABE_ITO[:6], "#000000", "#7F7F7F")  # the eighth of Okabe and Ito, yellow, is too pale for a line
LINES = ("-", "--", "-.", ":", (0, (5, 1)), (0, (3, 1, 1, 1, 1, 1)), (0, (1, 1)), (0, (8, 2)))


def style(number):
    """Return colour and line style of the number-th curve: they differ without colour too."""
    return {"color": COLOURS[number % len(COLOURS)], "linestyle": LINES[number % len(LINES)]}


def parse(description, default, full, argv=None):
    """Return the budget that the command line asks for, and the folder for results.

    ``default`` and ``full`` are one dataclass: every field becomes an option.
    """
    parser = argparse.ArgumentParser(description=description.strip().partition("\n")[0])
    parser.add_argument("--full", action="store_true", help="the paper's budget")
    parser.add_argument("--output", type=Path, default=Path("papers_results"), help="folder for finished cells and figures")
    for field in dataclasses.fields(default):
        value = getattr(default, field.name)
        parser.add_argument(f"--{field.name.replace('_', '-')}", type=type(value), help=f"default {value}")
    given = vars(parser.parse_args(argv))
    budget = full if given.pop("full") else default
    output = given.pop("output")
    return dataclasses.replace(budget, **{name: value for name, value in given.items() if value is not None}), output


class Cells:
    """The parts of one experiment at one budget. A finished part is a file, and a rerun reads it instead of computing it again.

    A part is a dictionary of arrays; ``seconds`` is added to it.
    """

    def __init__(self, output, name, budget):
        self.figures = output
        settings = ",".join(f"{key}={value}" for key, value in dataclasses.asdict(budget).items())
        self.folder = output / name / settings.replace("/", "_")
        self.folder.mkdir(parents=True, exist_ok=True)

    def __call__(self, name, compute, *arguments):
        """Return the part ``name``, from its file or as compute(*arguments)."""
        path = self.folder / f"{name}.npz"
        if not path.exists():
            print(f"  {name} ...", end="", flush=True)
            start = time.perf_counter()
            part = compute(*arguments)
            part["seconds"] = time.perf_counter() - start
            unfinished = path.with_suffix(".part")
            with unfinished.open("wb") as file:
                np.savez_compressed(file, **part)
            unfinished.rename(path)  # a run that is stopped leaves no half of a part
            print(f" {part['seconds']:.1f} s", flush=True)
        with np.load(path) as part:
            return dict(part)

    def save(self, figure, name):
        """Save a figure and say where."""
        path = self.figures / f"{name}.png"
        figure.savefig(path, dpi=150)
        print(f"Figure: {path}")


def table(header, rows):
    """Print a table in Markdown."""
    rows = [[str(cell) for cell in row] for row in [header, *rows]]
    widths = [max(len(row[column]) for row in rows) for column in range(len(header))]
    lines = ["| " + " | ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)) + " |" for row in rows]
    rule = "|" + "|".join("-" * (width + 2) for width in widths) + "|"
    print("\n".join([lines[0], rule, *lines[1:]]), flush=True)


def with_error(values, digits=3):
    """Return mean (standard error) over runs."""
    values = np.asarray(values, dtype=float)
    if len(values) < 2:
        return f"{values.mean():.{digits}f}"
    return f"{values.mean():.{digits}f} ({values.std(ddof=1) / len(values) ** 0.5:.{digits}f})"
