"""Pages that are made from the code are current."""

import importlib.util
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]


def builder():
    spec = importlib.util.spec_from_file_location("build_sampler_docs", ROOT / "tools" / "build_sampler_docs.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("page", ["samplers.md", "add_a_sampler.md"])
def test_generated_parts_of_the_page_are_current(page):
    path = ROOT / "docs" / page
    assert builder().filled(path) == path.read_text(), "run python tools/build_sampler_docs.py"
