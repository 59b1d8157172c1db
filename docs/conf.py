"""The documentation site: Markdown pages, the gallery of examples and the reference made from the docstrings."""

from __future__ import annotations

import inspect
import re
import sys
from pathlib import Path
from typing import Any

DOCS = Path(__file__).resolve().parent
sys.path.insert(0, str(DOCS.parent))

import sklearn_sgmcmc  # noqa: E402

project = "sklearn-sgmcmc"
author = copyright = "The sklearn-sgmcmc developers"
version = release = sklearn_sgmcmc.__version__

extensions = [
    "myst_parser",
    "sphinx.ext.autodoc",
    "sphinx.ext.autosummary",
    "sphinx.ext.mathjax",
    "sphinx.ext.viewcode",
    "numpydoc",
    "sphinx_copybutton",
    "sphinx_gallery.gen_gallery",
]
templates_path = ["_templates"]
exclude_patterns = ["_build", "_templates", "**/GALLERY_HEADER.rst"]
suppress_warnings = ["config.cache"]  # the gallery's settings hold functions

# --- pages ---------------------------------------------------------------------------------------------------------------------

myst_enable_extensions = ["colon_fence", "deflist", "dollarmath"]
myst_heading_anchors = 3
copybutton_prompt_text = r">>> |\.\.\. |\$ "
copybutton_prompt_is_regexp = True

html_theme = "pydata_sphinx_theme"
html_title = "sklearn-sgmcmc"
html_static_path = ["_static"]
html_css_files = ["site.css"]
html_show_sourcelink = False
toc_object_entries_show_parents = "hide"
html_theme_options = {
    "show_prev_next": True,
    "navigation_with_keys": False,
    "header_links_before_dropdown": 6,
    "secondary_sidebar_items": ["page-toc"],
    "footer_start": ["copyright"],
    "footer_end": [],
}
html_sidebars = {"index": [], "install": [], "tutorial": [], "glossary": [], "changelog": []}

LATER = ("streaming", "long_runs", "robustness")
"""Pages that the user guide takes in once they are there."""


def drop_missing_pages(app: Any, docname: str, source: list[str]) -> None:
    """Take the pages that are not there yet out of the user guide's table of contents."""
    if docname == "user_guide":
        missing = [name for name in LATER if not (DOCS / f"{name}.md").exists()]
        source[0] = "\n".join(line for line in source[0].splitlines() if line not in missing) + "\n"


# --- the reference -------------------------------------------------------------------------------------------------------------

autosummary_generate = True
autosummary_imported_members = False
autodoc_typehints = "none"
autodoc_member_order = "bysource"
numpydoc_show_class_members = False
numpydoc_validation_checks = set()  # tests/test_docstrings.py validates


def skip_inherited(app: Any, what: str, name: str, obj: Any, skip: bool, options: Any) -> bool | None:
    """Leave out of a class's page what scikit-learn adds and documents, with links that lead into its own site."""
    home = getattr(getattr(obj, "fget", obj), "__module__", None) or ""
    return True if home.startswith("sklearn.") else None


def keep_equations(app: Any, what: str, name: str, obj: Any, options: Any, lines: list[str]) -> None:
    """Let bars and asterisks of equations in docstrings stand for themselves; literals and examples are left alone."""
    for number, line in enumerate(lines):
        if not line.lstrip().startswith((">>>", "...")):
            parts = re.split(r"(``.*?``)", line)
            parts[::2] = [re.sub(r"(?<!\\)([|*])", r"\\\1", part) for part in parts[::2]]
            lines[number] = "".join(parts)


def module_of_the_source(app: Any, module: str, name: str) -> str | None:
    """Return the module whose file has an object's source; objects name the package that they are imported from."""
    found: Any = sys.modules.get(module)
    for part in name.split("."):
        found = getattr(found, part, None)
    functions = filter(inspect.isfunction, vars(found).values() if inspect.isclass(found) else [inspect.unwrap(found)])
    return next((function.__globals__["__name__"] for function in functions), None)


# --- the gallery ---------------------------------------------------------------------------------------------------------------

SMALL = {
    "correlated_gaussian": "--steps 5000 --chains 40",
    "five_modes": "--steps 2000 --chains 40 --fit-steps 1000",
    "ravines": "--rows 2000 --steps 3000 --tuning-starts 2 --starts 1",
    "landsat_table": "--epochs 3 --runs 3 --thin 30 --averaged 5",
    "nonreversible_mixture": "--steps-2 1200 --steps-10 1100 --trials-2 12 --trials-10 12"
    " --reference-steps 500 --tracking-steps 600",
    "resnet_cifar": "",
}
"""Budgets of the papers' scripts in the gallery. Shown without being run: the two that read MNIST, and landsat.py, which takes
minutes."""


def options_of(gallery_conf: dict[str, Any], script: dict[str, Any]) -> list[str]:
    """Return the command line of an example."""
    name = Path(script["src_file"]).stem
    return [*SMALL[name].split(), "--output", str(DOCS / "_build" / "papers_results")] if name in SMALL else []


sphinx_gallery_conf = {
    "examples_dirs": "../examples",
    "gallery_dirs": "auto_examples",
    "filename_pattern": rf"/(plot_\w+|{'|'.join(SMALL)})\.py",
    "ignore_pattern": r"(^|/)(experiment|mnist)\.py$",
    "reset_argv": options_of,
    "within_subsection_order": "FileNameSortKey",
    "nested_sections": False,
    "backreferences_dir": "generated/backreferences",
    "doc_module": ("sklearn_sgmcmc",),
    "image_scrapers": ("matplotlib",),
    "matplotlib_animations": False,
    "remove_config_comments": True,
    "download_all_examples": False,
    "show_memory": False,
    "parallel": 2,
}


def setup(app: Any) -> None:
    """Connect the hooks; equations are looked at before numpydoc takes the docstrings apart."""
    app.connect("source-read", drop_missing_pages)
    app.connect("autodoc-skip-member", skip_inherited)
    app.connect("autodoc-process-docstring", keep_equations, priority=400)
    app.connect("viewcode-follow-imported", module_of_the_source)
