"""The sdist and the wheel hold what they must, install, and work from outside the source tree."""

import os
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]


@pytest.fixture(scope="module")
def built(tmp_path_factory):
    """Return a folder with the sdist and the wheel."""
    folder = tmp_path_factory.mktemp("dist")
    subprocess.run([sys.executable, "-m", "hatchling", "build", "-d", str(folder)], cwd=ROOT, check=True, capture_output=True)
    return folder


def one(folder, pattern):
    (found,) = folder.glob(pattern)
    return found


def test_wheel_is_pure_python_with_types_data_and_kernel_source(built):
    wheel = one(built, "*.whl")
    assert wheel.name.endswith("-py3-none-any.whl")
    names = set(zipfile.ZipFile(wheel).namelist())
    assert {
        f"sklearn_sgmcmc/{name}"
        for name in (
            "py.typed",
            "kernels/network.c",
            "kernels/normals.c",
            "kernels/moments.c",
            "kernels/rows.c",
            "kernels/velocity.c",
            "kernels/vectors.h",
            "kernels/products.h",
            "datasets/data/landsat.npz",
        )
    } <= names
    assert not any(name.startswith(("tests/", "docs/", "examples/")) or name.endswith(".so") for name in names)


def test_sdist_holds_what_the_tests_and_the_docs_need(built):
    with tarfile.open(one(built, "*.tar.gz")) as archive:
        names = {name.split("/", 1)[-1] for name in archive.getnames()}
    folders = {"tests/table.py", "docs/conf.py", "docs/images/msgld_laws.png", "examples/landsat.py", "tools/smoke.py"}
    assert {"pyproject.toml", "README.md", "CONTRIBUTING.md", "CITATION.cff"} | folders <= names


@pytest.mark.slow
@pytest.mark.parametrize("pattern", ["*.whl", "*.tar.gz"])
def test_installation_passes_the_smoke_test_outside_the_source_tree(built, pattern, tmp_path):
    install = ["-m", "pip", "install", "-q", "--no-deps", "--no-build-isolation", "--target", str(tmp_path)]
    subprocess.run([sys.executable, *install, str(one(built, pattern))], check=True)
    environment = {**os.environ, "PYTHONPATH": str(tmp_path)}
    subprocess.run([sys.executable, str(ROOT / "tools" / "smoke.py")], check=True, env=environment)
