"""The joblib backends of clusters: the same bits as one process."""

import joblib
import numpy as np
import pytest
from sklearn.datasets import load_iris

from sklearn_sgmcmc import BayesianMLPClassifier

X, y = load_iris(return_X_y=True)
SETTINGS = {"batch_size": 30, "max_iter": 4, "n_draws": 4, "n_chains": 8, "learning_rate": 0.01, "random_state": 0}


def fit(n_jobs=None):
    return BayesianMLPClassifier((8,), n_jobs=n_jobs, **SETTINGS).fit(X, y)


@pytest.mark.filterwarnings("ignore::UserWarning", "ignore::ResourceWarning", "ignore::DeprecationWarning", "ignore::FutureWarning")
class TestClusters:
    """Chains of one fit go to the workers of a cluster in blocks."""

    def test_dask(self):
        distributed = pytest.importorskip("distributed")
        alone = fit()
        with (
            distributed.LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=None) as cluster,
            distributed.Client(cluster),
            joblib.parallel_config(backend="dask"),
        ):
            many = fit(n_jobs=2)
        np.testing.assert_array_equal(many.draws_, alone.draws_)
        np.testing.assert_array_equal(many.predict_proba(X), alone.predict_proba(X))

    @pytest.mark.slow
    def test_ray(self):
        ray = pytest.importorskip("ray")
        from ray.util.joblib import register_ray

        alone = fit()
        ray.init(num_cpus=2, include_dashboard=False, log_to_driver=False, ignore_reinit_error=True)
        try:
            register_ray()
            with joblib.parallel_config(backend="ray"):
                many = fit(n_jobs=2)
        finally:
            ray.shutdown()
        np.testing.assert_array_equal(many.draws_, alone.draws_)

    @pytest.mark.parametrize("backend", ["loky", "threading", pytest.param("multiprocessing", marks=pytest.mark.slow)])
    def test_joblibs_own(self, backend):
        alone = fit()
        with joblib.parallel_config(backend=backend):
            many = fit(n_jobs=2)
        np.testing.assert_array_equal(many.draws_, alone.draws_)
