"""Pages that are made from the code are current, and the code in pages runs."""

import importlib.util
import re
import sys
import types
import warnings
from functools import cache
from pathlib import Path

import matplotlib as mpl
import pytest
from sklearn.exceptions import ConvergenceWarning

mpl.use("Agg")
ROOT = Path(__file__).resolve().parents[1]
PAGES = {str(path.relative_to(ROOT)): path for path in (ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md")))}
BLOCK = re.compile(r"^```python\n(.*?)^```", re.DOTALL | re.MULTILINE)
SLOW = {"README.md", "docs/grid_search.md", "docs/priors.md", "docs/tutorial.md", "docs/uncertainty.md"}
"""Pages that compute for ten seconds or more."""


@cache
def builder():
    spec = importlib.util.spec_from_file_location("build_sampler_docs", ROOT / "tools" / "build_sampler_docs.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("page", ["README.md", "docs/samplers.md", "docs/add_a_sampler.md"])
def test_generated_parts_of_the_page_are_current(page):
    assert builder().filled(ROOT / page) == (ROOT / page).read_text(), "run python tools/build_sampler_docs.py"


@pytest.mark.parametrize(
    "page",
    [
        pytest.param(name, marks=[pytest.mark.slow] if name in SLOW else [])
        for name, path in PAGES.items()
        if BLOCK.search(path.read_text())
    ],
)
def test_code_of_the_page_runs_from_top_to_bottom(page, monkeypatch, tmp_path):
    import matplotlib.pyplot as plt

    monkeypatch.chdir(tmp_path)  # pages may write files
    module = types.ModuleType("page")
    monkeypatch.setitem(sys.modules, "page", module)  # where dataclasses look for the names in their annotations
    text = PAGES[page].read_text()
    for found in BLOCK.finditer(text):
        above = text[: found.start(1)].count("\n")  # so that a traceback names the line of the page
        code = compile("\n" * above + found[1], str(PAGES[page]), "exec")
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)  # pages have small budgets
            exec(code, module.__dict__)
    plt.close("all")


@pytest.mark.parametrize("page", PAGES)
def test_links_between_pages_lead_somewhere(page):
    text = re.sub(r"```.*?```", "", PAGES[page].read_text(), flags=re.DOTALL)
    for target in re.findall(r"\]\(([^)#\s]+)(?:#[^)]*)?\)", text):
        if not target.startswith(("http", "mailto:")):
            assert (PAGES[page].parent / target).exists(), target
