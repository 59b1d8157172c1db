"""Build ``sklearn_sgmcmc/datasets/data/landsat.npz``.

The values come from the data frame ``Satellite`` of the R package mlbench, as
Debian distributes it (``r-cran-mlbench`` 2.1-3). Its rows keep the order of the
UCI files: the 4435 training rows first, then the 2000 test rows.

Usage::

    pip install rdata
    python tools/build_landsat.py                  # fetches the Debian package
    python tools/build_landsat.py Satellite.rda    # uses a file you already have

The script stops before writing anything if the class counts or the value range
differ from the published ones. Running it again gives the same bytes with the
same NumPy and zlib; another zlib may compress the same arrays differently.
"""

from __future__ import annotations

import argparse
import hashlib
import subprocess
import tempfile
from pathlib import Path

import numpy as np
import pandas as pd
import rdata
from numpy.typing import NDArray

PACKAGE = "r-cran-mlbench"
RDA_IN_PACKAGE = "usr/lib/R/site-library/mlbench/data/Satellite.rda"
OUTPUT = Path(__file__).resolve().parents[1] / "sklearn_sgmcmc" / "datasets" / "data" / "landsat.npz"

N_TRAIN = 4435
SHAPE = (6435, 36)
VALUE_RANGE = (27, 157)

# mlbench names the classes; UCI numbers them and leaves out number 6.
LABEL_OF_LEVEL = {
    "red soil": 1,
    "cotton crop": 2,
    "grey soil": 3,
    "damp grey soil": 4,
    "vegetation stubble": 5,
    "very damp grey soil": 7,
}
TRAIN_COUNTS = {1: 1072, 2: 479, 3: 961, 4: 415, 5: 470, 7: 1038}
TEST_COUNTS = {1: 461, 2: 224, 3: 397, 4: 211, 5: 237, 7: 470}


def fetch_rda(directory: Path) -> Path:
    """Download and unpack the Debian package; return the path of the .rda."""
    subprocess.run(["apt-get", "download", PACKAGE], cwd=directory, check=True)
    (deb,) = directory.glob(f"{PACKAGE}_*.deb")
    unpacked = directory / "unpacked"
    subprocess.run(["dpkg", "-x", str(deb), str(unpacked)], check=True)
    return unpacked / RDA_IN_PACKAGE


def read_rda(path: Path) -> tuple[NDArray[np.uint8], NDArray[np.uint8]]:
    """Return the pixel values and the UCI labels, in file order."""
    frame = rdata.read_rda(path, default_encoding="ascii")["Satellite"]
    levels = frame.pop("classes").astype(str)
    unknown = sorted(set(levels) - set(LABEL_OF_LEVEL))
    _check("class names not in LABEL_OF_LEVEL", unknown, [])
    return _as_bytes(frame), levels.map(LABEL_OF_LEVEL).to_numpy(np.uint8)


def _as_bytes(frame: pd.DataFrame) -> NDArray[np.uint8]:
    values = np.ascontiguousarray(frame.to_numpy(np.float64))  # compresses best
    data = values.astype(np.uint8)
    _check("values that are not whole bytes", int((data != values).sum()), 0)
    return data


def check_data(data: NDArray[np.uint8], target: NDArray[np.uint8]) -> None:
    """Stop unless the arrays have the published shape, range and counts."""
    _check("shape", data.shape, SHAPE)
    _check("value range", (int(data.min()), int(data.max())), VALUE_RANGE)
    _check("training class counts", _count(target[:N_TRAIN]), TRAIN_COUNTS)
    _check("test class counts", _count(target[N_TRAIN:]), TEST_COUNTS)


def _count(target: NDArray[np.uint8]) -> dict[int, int]:
    labels, counts = np.unique(target, return_counts=True)
    return dict(zip(labels.tolist(), counts.tolist(), strict=True))


def _check(what: str, found: object, expected: object) -> None:
    if found != expected:
        raise ValueError(f"Satellite.rda: {what}: found {found!r}, expected {expected!r}. Use the data of {PACKAGE} 2.1-3.")


def main() -> None:
    """Build the file and print its sha256."""
    parser = argparse.ArgumentParser(description="Build the packaged Landsat file.")
    parser.add_argument(
        "rda",
        nargs="?",
        type=Path,
        help=f"path of Satellite.rda; without it, {PACKAGE} is downloaded with apt-get",
    )
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as directory:
        data, target = read_rda(args.rda or fetch_rda(Path(directory)))
    check_data(data, target)
    OUTPUT.parent.mkdir(parents=True, exist_ok=True)
    # numpy stamps every member of the archive with a fixed date.
    np.savez_compressed(OUTPUT, data=data, target=target)
    print(f"{hashlib.sha256(OUTPUT.read_bytes()).hexdigest()}  {OUTPUT.name}")


if __name__ == "__main__":
    main()
