"""Docstrings of everything public are whole, by numpydoc's validation; what is public stands in docs/api.rst."""

import importlib
import inspect
import re
from pathlib import Path

import pytest
from numpydoc.validate import validate

import sklearn_sgmcmc
from sklearn_sgmcmc import datasets, displays, likelihoods, metrics, priors, samplers, schedules

ROOT = Path(__file__).resolve().parents[1]

WHOLE = {
    *("GL01", "GL02", "GL03", "GL05", "GL06", "GL07", "GL08", "GL09", "GL10"),  # form and order of sections
    *("SS01", "SS02", "SS03", "SS04", "SS05", "SS06"),  # a summary of one line
    *("PR01", "PR02", "PR03", "PR04", "PR05", "PR06", "PR07", "PR09", "PR10"),  # every parameter, in order, with type and text
    *("RT01", "RT03", "RT05", "YD01"),  # what comes back
}
"""Not asked for: RT02, PR08 (results have names, and texts may begin with a symbol), See Also, a second paragraph."""
SUMMARY = {code for code in WHOLE if code.startswith(("GL", "SS"))}
PROTOCOL = ("samplers", "schedules", "priors", "likelihoods")
"""Methods of objects from these modules are called by the engine: their arguments are described once, at the base."""
RESULTS = {"sklearn_sgmcmc.draws.Draws", "sklearn_sgmcmc.diagnostics.Diagnostics"}
"""Nobody makes these by hand: attributes are described instead of parameters."""
BASES = {f"sklearn_sgmcmc.{name}" for name in ("samplers.Sampler", "schedules.Schedule", "likelihoods.Likelihood")} | {
    f"sklearn_sgmcmc.priors.{name}" for name in ("Prior", "ScalePrior", "Density")
}
"""Those who derive from them have parameters and examples."""


def listed():
    """Return the names in docs/api.rst."""
    module, names = "", []
    for line in (ROOT / "docs" / "api.rst").read_text().splitlines():
        if found := re.match(r"\.\. currentmodule:: (\S+)", line):
            module = found[1]
        elif found := re.fullmatch(r"   ([\w.]+)", line):
            names.append(f"{module}.{found[1]}")
    return names


def load(name):
    """Return the module of a name and the object."""
    module, _, rest = name.rpartition(".")
    return getattr(importlib.import_module(module), rest)


def members(kind):
    """Return the names of the public methods and properties that the package gives to a class."""
    for member in dir(kind):
        found = inspect.getattr_static(kind, member)
        function = getattr(found, "fget", None) or getattr(found, "__func__", found)
        if not member.startswith("_") and inspect.isfunction(function) and function.__module__.startswith("sklearn_sgmcmc"):
            yield member


def complaints(name, codes):
    return [f"{code} {message}" for code, message in validate(name)["errors"] if code in codes]


def test_reference_lists_everything_public():
    def own(module, keep):
        return {f"{module.__name__}.{n}" for n, o in vars(module).items() if not n.startswith("_") and keep(o)}

    public = {f"sklearn_sgmcmc.{name}" for name in sklearn_sgmcmc.__all__ if name != "__version__"}
    public |= {f"{samplers.__name__}.{name}" for name in samplers.__all__ if name != "SAMPLERS"}
    public |= {f"{datasets.__name__}.{name}" for name in datasets.__all__}
    public |= own(schedules, lambda o: inspect.isclass(o) and issubclass(o, schedules.Schedule))
    public |= own(priors, lambda o: inspect.isclass(o) and issubclass(o, priors.Prior))
    public |= own(displays, lambda o: inspect.isclass(o) and issubclass(o, displays._base.Display))
    public |= own(likelihoods, lambda o: inspect.isclass(o) and hasattr(o, "log_density") and hasattr(o, "n_outputs"))
    public |= own(
        metrics, lambda o: getattr(o, "__module__", "") == metrics.__name__ and (inspect.isfunction(o) or inspect.isclass(o))
    )
    public -= {"sklearn_sgmcmc.metrics.unwrap"}
    assert public <= set(listed())


@pytest.mark.parametrize("name", listed())
def test_docstring_is_whole(name):
    codes = WHOLE | {"EX01"}
    codes -= {"PR01"} if name in RESULTS else {"PR01", "EX01"} if name in BASES else set()
    assert not complaints(name, codes)


@pytest.mark.parametrize("name", [name for name in listed() if inspect.isclass(load(name))])
def test_docstrings_of_the_members_are_whole(name):
    codes = SUMMARY if name.split(".")[1] in PROTOCOL else WHOLE
    assert not {member: found for member in members(load(name)) if (found := complaints(f"{name}.{member}", codes))}
