"""The import table: who may import whom."""

import ast
from pathlib import Path

import pytest

import sklearn_sgmcmc

ROOT = Path(sklearn_sgmcmc.__file__).parent
NAME = "sklearn_sgmcmc"

RANKS = [
    {"_typing", "_parameters", "_checks", "_digest", "_modules", "kernels", "threads"},
    {"samplers", "schedules", "priors", "likelihoods", "network", "batches", "noise", "step_control", "checkpoint"},
    {"posterior", "draws"},
    {"engine", "chains", "predictive"},
    {"sampling", "diagnostics", "pooling"},
    {"estimators", "model_selection", "metrics", "datasets"},
    {"displays"},
]
"""A module may import those of lower ranks and its own package."""

SAME_RANK = {("batches", "network"), ("likelihoods", "network"), ("priors", "network"), ("chains", "engine")}
"""The exceptions: who may import a module of its own rank."""

EXTERNAL = {
    "sklearn": {"estimators", "model_selection", "metrics", "datasets", "displays"},
    "xarray": {"diagnostics"},
    "tqdm": {"engine"},
    "joblib": {"chains", "model_selection"},
    "arviz_base": {"diagnostics"},
    "arviz_stats": {"diagnostics"},
    "pandas": {"datasets"},
    "matplotlib": {"displays"},
}
"""Libraries that only these modules may import."""

NEVER = {"posterior": {"samplers"}, "draws": {"samplers"}}


def module_of(path: Path) -> str:
    """Return the top-level module or package that a file belongs to."""
    return path.relative_to(ROOT).parts[0].removesuffix(".py")


def imports_of(path: Path) -> set[str]:
    """Return the absolute names that a file imports."""
    names: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path} imports relatively"
            names |= {node.module} if node.module != NAME else {f"{NAME}.{alias.name}" for alias in node.names}
    return names


FILES = [path for path in sorted(ROOT.rglob("*.py")) if path.name != "__init__.py" or path.parent != ROOT]


def rank(module: str) -> int:
    return next(index for index, modules in enumerate(RANKS) if module in modules)


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(ROOT)))
def test_module_imports_only_lower_ranks(path):
    module = module_of(path)
    for name in imports_of(path):
        if name.startswith(f"{NAME}."):
            imported = name.split(".")[1]
            allowed = rank(imported) < rank(module) or imported == module or (module, imported) in SAME_RANK
            assert allowed, f"{module} imports {imported}"
            assert imported not in NEVER.get(module, set())
        else:
            allowed = EXTERNAL.get(name.split(".")[0])
            assert allowed is None or module in allowed, f"{module} imports {name}"


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(ROOT)))
def test_module_uses_public_scikit_learn_only(path):
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom) and node.module and node.module.startswith("sklearn."):
            assert not any(part.startswith("_") for part in node.module.split("."))
            assert not any(alias.name.startswith("_") for alias in node.names)
