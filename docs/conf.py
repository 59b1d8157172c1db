"""The documentation site: Markdown pages, the gallery of examples and the reference made from the docstrings."""

from __future__ import annotations

import html
import inspect
import io
import re
import sys
import textwrap
import warnings
from pathlib import Path
from typing import Any

import matplotlib as mpl
from docutils import nodes
from matplotlib.font_manager import FontProperties
from matplotlib.mathtext import math_to_image

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

html_math_renderer = "outlines"
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


def write_math(translator: Any, node: Any) -> None:
    """Write an equation as an SVG of outlines made by matplotlib: it needs no script, no network and no font of the reader's."""
    tex = " ".join(node.astext().split())
    block = isinstance(node, nodes.math_block)
    picture = io.StringIO()
    with mpl.rc_context({"mathtext.fontset": "stix", "svg.fonttype": "path", "svg.hashsalt": tex}):
        depth = math_to_image(f"${tex}$", picture, format="svg", prop=FontProperties(size=15 if block else 13), dpi=72)
    head = f'<svg class="math" role="img" aria-label="{html.escape(tex)}" style="vertical-align: -{depth:.1f}pt"'
    rest = picture.getvalue().partition("<svg")[2]
    unused = r'<metadata>.*?</metadata>|<style.*?</style>|<g id="patch_1">.*?</g>|<!--.*?-->| id="(figure|text)_1"'
    drawn = head + re.sub(unused, "", rest, flags=re.DOTALL)
    translator.body.append(f'<div class="equation">{drawn}</div>' if block else drawn)
    raise nodes.SkipNode


def lead_into_the_gallery(app: Any, page: str, source: list[str]) -> None:
    """Let links to the files of examples, as the Markdown has them for its readers in the repository, lead to their pages."""
    source[0] = re.sub(r"\]\(\.\./examples/((?:\w+/)*\w+)\.py\)", r"](auto_examples/\1)", source[0])
    source[0] = source[0].replace("](../examples/)", "](auto_examples/index)")


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
    "landsat_table": "--epochs 3 --runs 3 --thin 30 --averaged 5",
    "nonreversible_mixture": "--steps-2 1200 --steps-10 1100 --trials-2 12 --trials-10 12"
    " --reference-steps 500 --tracking-steps 600",
    "resnet_cifar": "",
}
"""Budgets of the papers' scripts in the gallery. Shown without being run: the two that read MNIST, and ravines.py and
landsat.py, which take minutes."""


def options_of(gallery_conf: dict[str, Any], script: dict[str, Any]) -> list[str]:
    """Return the command line of an example."""
    name = Path(script["src_file"]).stem
    return [*SMALL[name].split(), "--output", str(DOCS / "_build" / "papers_results")] if name in SMALL else []


def shorten_warnings(gallery_conf: dict[str, Any], file_name: str) -> None:
    """Let warnings of examples be shown without the path of the file, in lines of the width of a page."""
    warnings.formatwarning = lambda message, category, *_: textwrap.fill(f"{category.__name__}: {message}", 96) + "\n"


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
    "write_computation_times": False,
    "image_srcset": ["2x"],
    "reset_modules": ("matplotlib", shorten_warnings),
    "parallel": 2,
}


def setup(app: Any) -> None:
    """Connect the hooks; equations are looked at before numpydoc takes the docstrings apart."""
    app.add_html_math_renderer("outlines", inline_renderers=(write_math, None), block_renderers=(write_math, None))
    app.connect("source-read", lead_into_the_gallery)
    app.connect("autodoc-skip-member", skip_inherited)
    app.connect("autodoc-process-docstring", keep_equations, priority=400)
    app.connect("viewcode-follow-imported", module_of_the_source)
