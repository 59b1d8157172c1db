"""MNIST for the scripts of this folder: from a file, or through scikit-learn from OpenML."""

from pathlib import Path

import numpy as np


def load_mnist(path, n_train, n_test):
    """Return X_train, y_train, X_test, y_test: the first rows of the published split, pixels as float32 in [0, 1].

    ``path`` is an .npz file with x_train, y_train, x_test, y_test (also X_train, ...); "openml" downloads the data once.
    """
    if path == "openml":
        from sklearn.datasets import fetch_openml

        x, y = fetch_openml("mnist_784", return_X_y=True, as_frame=False)
        parts = {"x_train": x[:60_000], "y_train": y[:60_000], "x_test": x[60_000:], "y_test": y[60_000:]}
    else:
        with np.load(Path(path)) as file:
            parts = {name.lower(): file[name] for name in file.files}

    def rows(split, n):
        x, y = parts[f"x_{split}"][:n], parts[f"y_{split}"][:n]
        return x.reshape(len(x), -1).astype(np.float32) / 255, y.astype(np.int64)

    return *rows("train", n_train), *rows("test", n_test)
