"""The description of the shared parameters and attributes, written once for both estimators."""

from __future__ import annotations

from typing import TypeVar

T = TypeVar("T")

SHARED_PARAMETERS = """\
hidden_layer_sizes : int or sequence of int, default (50,)
        Widths of the hidden layers; () is a Bayesian linear model.
    activation : str, default "relu"
        "relu", "tanh", "logistic", "identity", "silu" or "gelu".
    sampler : str or Sampler, default "auto"
        "auto" is ``MCLMC(energy_error=min(0.3, N / (4 P)), memory=200)`` at full batch with N rows and P network parameters, or
        "sghmc" if N < P / 10, unless a given learning rate or bias factor, temperature 0, a prior that is not normal or a schedule
        other than "constant" stands against it; otherwise it is "sghmc" for regression and "msgld" for classification.
        ``sampler_`` tells which. By name: "sgld", "mala", "psgld", "sgrld",
        "sghmc", "baoab", "sgnht", "msgnht", "msgld", "asgld", "adamax_sgld", "adadelta_sgld", "santa", "nr_sgld",
        "nr_sgld_hessian", "nr_sgld_spsa", "nr_sgld_spsa2", "mclmc" (of shorter steps, nearer to the posterior), or the optimisers
        "sgd" and "adam" (a deep ensemble: the last state of each chain is kept). The fields of a Sampler object can be searched as
        ``sampler__friction``.
    bias_factor : float >= 0 or None, default None
        Weight a of the adaptive drift, dimensionless; for "asgld" and its kin in units of N. 0 is plain SGLD bit for bit, and is
        accepted by every sampler. None is the sampler's own (1 for "msgld", 0.01 for "asgld").
    temperature : float >= 0 or None, default None
        The target is the posterior to the power 1 / temperature. None is 1. For a biased sampler (printed MSGLD, that of a
        classifier with minibatches and sampler="auto") it sets the injected noise; ``effective_temperature_`` tells what is
        sampled. Predictions use the untempered likelihood. Below 1 the hierarchical prior and a learned noise level may
        collapse; ``fit`` then warns.
    learning_rate : float > 0, "auto" or None, default "auto"
        Step on the mean loss: the step size is learning_rate / N, N the total weight of the training rows. "auto" finds the longest
        safe one of each chain during burn-in and freezes it before the first kept draw: "mclmc" the one with its energy error;
        samplers with a stability limit an eighth of it over the largest curvature along the path (more for minibatches of a
        classifier: a half for printed "msgld"), as long as the noise of the minibatches stays below 0.4 times the injected noise,
        in the median parameter. With minibatches it is 1.5 times the sampler's default at most, and the default for kinetic
        samplers; samplers without a stability limit take their default always. None is the sampler's default
        (``sampler.default_learning_rate``: 0.2 for "sgld" and "msgld", 0.03 for "sghmc"), cut where the curvature demands it. A
        number is never altered. See ``learning_rate_``.
    schedule : str or Schedule, default "constant"
        "constant", "step", "polynomial", "cyclical" or "annealed": dimensionless multipliers of learning rate and temperature.
    warm_up : int >= 0 or "auto", default "auto"
        Epochs in which each chain is first taken to a mode of its own, by Adam on minibatches of 64 rows with a learning rate that
        falls from 0.003 to 0 as half a cosine. "auto" is 50 epochs or 1,000 steps (16,000 with minibatches; 500 for a classifier),
        whichever is more, but no more than ``max_iter`` epochs, and none for an optimiser. ``partial_fit`` warms up on the chunk of
        its first call, "auto" for 1,000 steps (500 for a classifier) at most.
    max_iter : int >= 1 or None, default None
        Epochs after the warm-up; at full batch an epoch is one step. None is 15 steps per row (10 for a classifier), at least 1,000
        and at most 20,000, at full batch, and as many epochs as give 16,000 steps otherwise.
    burn_in : float in [0, 1), default 0.5
        Share of the steps after the warm-up before the first kept draw.
    n_draws : int >= 1, default 50
        Draws kept per chain, evenly spaced.
    n_chains : int >= 1, default 4
        Independent chains, computed as one batch.
    batch_size : int >= 1 or "auto", default "auto"
        Rows per step. "auto" takes all rows if at most 1,000 of at most 20,000 are distinct (2,500 of 50,000 for regression), of
        at most 131,072 numbers in all, and 64 otherwise.
    prior : str or Prior, default "hierarchical_normal" (regression) or "fan_in_normal" (classification)
        Prior of weights and biases: "hierarchical_normal" (one standard deviation per layer, learned from the data),
        "fan_in_normal" (N(0, 1), narrower for weights of layers of more than 64 inputs), "normal", "laplace", "student_t",
        "spike_slab" (most weights near 0; those in the spike are pruned from predictions) or "prior_switch" (normal, then spike and
        slab). An object may have scales per layer or by fan-in, and its fields can be searched as ``prior__scale``.
    prior_scale : float > 0 or None, default None
        Scale of a prior given by name (the standard deviation of a normal one or of a slab); None is its own (1).
    standardize : bool, default True
        Whether inputs are centred and divided by their training standard deviation.
    n_jobs : int or None, default None
        Worker processes; chains are divided among them in blocks of four. Results do not depend on it.
    device : str or torch.device, default "auto"
        "auto" takes a GPU when there is one.
    dtype : "float32" or "float64", default "float32"
        Arithmetic of the chains. Draws are stored in float32.
    random_state : int, RandomState or None, default None
        An integer makes fits bit-equal.
    warm_start : bool, default False
        Whether a further ``fit`` starts each chain where the last call left it, without warm-up. On the same rows with the same
        settings the chains simply go on: the same step, no burn-in, new draws. Otherwise the network's function is kept, also
        where the scales of X and y have changed, and ``burn_in`` holds: only the start differs from that of a fresh fit. ``draws_``
        and ``n_iter_`` are those of the last call. A changed network, number of chains, of features or set of classes is an error.
    verbose : int, default 0
        0 is silent, 1 shows one progress bar: with several workers, that of the first. Ctrl-C keeps the draws made so far
        (with one worker), warns and raises KeyboardInterrupt.
    checkpoint : path or None, default None
        File in which the run is kept while it lasts, written every half minute at most: a fit that was killed or interrupted, and
        is run again with the same parameters and data, goes on from there, to the same draws. It is removed after a successful fit.
        A folder that exists holds a file for each fit: for those of a search. A file of another fit is a ValueError. See
        ``docs/long_runs.md``."""

SHARED_ATTRIBUTES = """\
draws_ : ndarray of shape (n_draws, n_chains, n_params), float32
        Kept parameters, without the chains that diverged.
    potential_curve_ : ndarray of shape (n_looks, n_chains)
        -log posterior in nats along the run, estimated on the current minibatch.
    potential_ : ndarray of shape (n_evaluated, n_chains)
        U = -log posterior in nats over all training rows, at the kept draws or, where that would be a tenth of the work, at evenly
        thinned ones. See ``diagnostics`` and ``summary``.
    learning_rate_ : float, or ndarray of shape (n_chains,)
        Learning rate of the kept draws before the schedule's multiplier; one per chain where chains found their own.
    sampler_ : Sampler
        What drew the draws.
    keep_mask_ : ndarray of bool, shaped like ``draws_``
        Which parameters of each draw the prior's spike does not claim; only after a fit with a prior that has a spike.
    sparsity_ : float in [0, 1]
        Share of connection weights kept, averaged over draws; only there as well.
    effective_temperature_ : float or None
        Temperature that the sampler targets as the step size goes to zero; None where there is no such number.
    n_iter_ : int
        Epochs run after the warm-up.
    n_steps_ : int
        Gradient steps run after the warm-up.
    n_features_in_ : int
        Number of features seen in ``fit``.
    feature_names_in_ : ndarray of shape (n_features,)
        Their names, if all are strings."""


STREAM_LAWS = """\
Without ``n_total`` the chains track a stream. A chunk t steps ago counts (1 - r)^t, r = k learning_rate, with k the
        sampler's drift gain (1 for "sgld", 1 / friction for "sghmc"). N, the sum of these weights and at most (rows per step) / r,
        is the number of rows that the draws know of; draws are from the last 1 / r steps. With ``n_total`` = N the chunks are
        minibatches of one data set of total weight N that is passed again and again: after 20 / learning_rate steps the draws, from
        the last half of all steps, have its posterior, up to the sampler's bias and the noise of the minibatches. ``summary()`` and
        ``diagnostics().law`` say what the draws are draws of; never of rows that are not seen any more.

        The first call warms the chains up on its chunk (``warm_up``); there is no burn-in. The learning rate is the sampler's
        default, cut where the curvature demands it, unless a number is given. The scales of X and y are those of the first call
        for good: let its chunk be large. After ``fit`` the chains go on from where it left them; ``fit`` begins anew."""

STREAM_ARGUMENTS = """\
sample_weight : array of shape (n_rows,), optional
            Counts: a row of weight k stands for k rows. Not negative, not all zero.
        n_total : float or None, default None
            Total weight (with unit weights, rows) of the one data set whose minibatches the chunks are; None tracks.

        Returns
        -------
        self

        Raises
        ------
        ValueError
            If a parameter or an input lies outside its domain or does not go with the calls before, or if every chain diverges; the
            model is then left as it was."""

SHARED = {
    "<shared parameters>": SHARED_PARAMETERS,
    "<shared attributes>": SHARED_ATTRIBUTES,
    "<laws>": STREAM_LAWS,
    "<shared arguments>": STREAM_ARGUMENTS,
}


def shared_docs(described: T) -> T:
    """Fill the shared parts into the docstring of a class or function."""
    assert described.__doc__ is not None
    for mark, text in SHARED.items():
        described.__doc__ = described.__doc__.replace(mark, text)
    return described
