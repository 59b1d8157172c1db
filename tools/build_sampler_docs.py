"""Write the generated parts of the README, ``docs/samplers.md`` and ``docs/add_a_sampler.md``, and the figure of MSGLD's laws.

Usage::

    python tools/build_sampler_docs.py             # needs the test and plot extras

The parts stand between ``<!-- generated: name -->`` and ``<!-- end -->``; ``tests/test_docs.py`` fails if they are not current.
"""

from __future__ import annotations

import inspect
import re
import sys
from pathlib import Path

import numpy as np

from sklearn_sgmcmc.samplers import MSGLD, SAMPLERS, langevin

ROOT = Path(__file__).resolve().parents[1]
DOCS = ROOT / "docs"
NEEDS = {
    "full_batch": "all rows at every step",
    "hvp": "Hessian products",
    "fisher": "Fisher information",
    "fresh": "extra minibatches",
}


def overview() -> str:
    """Return the table of all samplers, from the registry's facts."""
    lines = ["| name | object | law | step | needs | when to use it | source |", "|---|---|---|---|---|---|---|"]
    for name, kind in SAMPLERS.items():
        sampler = kind()
        needs = "; ".join(NEEDS[need] for need in sorted(kind.needs)) or "-"
        cells = (f"[`{name}`](#{name})", f"`{kind.__name__}`", sampler.law, f"{sampler.default_learning_rate:g}", needs, kind.use)
        lines.append("| " + " | ".join((*cells, kind.source)) + " |")
    return "\n".join(lines)


def short_overview() -> str:
    """Return the README's table: name, law and use."""
    lines = ["| `sampler=` | law | when to use it |", "|---|---|---|"]
    lines += [f"| [`{name}`](docs/samplers.md#{name}) | {kind().law} | {kind.use} |" for name, kind in SAMPLERS.items()]
    return "\n".join(lines)


def sections() -> str:
    """Return one section per sampler: its docstring."""
    parts = []
    for name, kind in SAMPLERS.items():
        doc = inspect.getdoc(kind) or ""
        parts.append(f"### {name}\n\n`{kind.__name__}` in `{kind.__module__}`.\n\n```text\n{doc}\n```")
    return "\n\n".join(parts)


def source_of_sgld() -> str:
    """Return the file of SGLD."""
    return f"```python\n{inspect.getsource(langevin).rstrip()}\n```"


PARTS = {
    ROOT / "README.md": {"samplers": short_overview},
    DOCS / "samplers.md": {"overview": overview, "sections": sections},
    DOCS / "add_a_sampler.md": {"sgld": source_of_sgld},
}


def filled(path: Path) -> str:
    """Return the text of a page with its generated parts made anew."""
    text = path.read_text()
    for name, make in PARTS[path].items():
        pattern = rf"(<!-- generated: {name} -->\n).*?(<!-- end -->)"
        text, count = re.subn(pattern, lambda match, make=make: f"{match[1]}{make()}\n{match[2]}", text, flags=re.DOTALL)
        assert count == 1, f"{path} has {count} parts called {name}"
    return text


def plot_msgld_laws(path: Path) -> None:
    """Draw the exact variance of MSGLD's three forms on a Gaussian, found by probing the shipped step."""
    import matplotlib.pyplot as plt

    sys.path.insert(0, str(ROOT / "tests"))
    from laws import variance

    steps = np.logspace(-4, -1, 40)
    colours = {"printed": "#D55E00", "rescaled": "#E69F00", "recipe": "#0072B2"}
    figure, axes = plt.subplots(2, figsize=(5.6, 6.8), sharex=True, sharey=True, layout="constrained")
    for ax, (a, b) in zip(axes, ((1.0, 0.9), (10.0, 0.99)), strict=True):
        for variant, colour in colours.items():
            law = [variance(MSGLD(a, b, variant), curvature=1.0, step_size=h, temperature=1.0) for h in steps]
            ax.plot(steps, law, color=colour, label=variant)
        ax.axhline(1.0, color="black", linewidth=0.8, linestyle="--", label="target")
        ax.axhline(1 / (1 + a), color="grey", linewidth=0.8, linestyle=":", label="temperature 1 / (1 + a)")
        ax.set(xscale="log", yscale="log", ylabel="variance / target", title=f"bias factor a = {a:g}, smoothing b = {b:g}")
    axes[1].set_xlabel("step size times curvature")
    axes[1].legend()
    figure.savefig(path, dpi=150)


if __name__ == "__main__":
    for page in PARTS:
        page.write_text(filled(page))
    plot_msgld_laws(DOCS / "images" / "msgld_laws.png")
