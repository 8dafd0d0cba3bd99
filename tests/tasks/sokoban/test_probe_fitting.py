"""Probes on signals that were planted, and thresholds against plain counting."""

import jax
import numpy as np
import pytest
import scipy.optimize
import scipy.special

from allocsearch.tasks.sokoban.probe_fitting import (
    Probe,
    calibrate,
    fit_probe,
    probabilities,
)
from allocsearch.tasks.sokoban.probe_labels import CLASSES

N, H, W, C = 300, 4, 3, 6


def told(probe, read):
    """Likeliest class of every square."""
    return np.asarray(probabilities(probe, read[:, None])[:, 0]).argmax(axis=-1)


def boards(seed, n=N):
    return np.random.default_rng(seed).normal(size=(n, H, W, C)).astype(np.float32)


def test_a_planted_linear_signal_is_found_and_noise_is_not():
    read, new = boards(0), boards(1)
    # Channels of very different scale, as those of a residual stream are.
    scales = np.array([100, 1, 0.01, 1, 10, 1], np.float32)
    planted = np.random.default_rng(2).normal(size=(C, len(CLASSES)))
    labels, answers = ((x @ planted).argmax(-1).astype(np.uint8) for x in (read, new))
    probe = fit_probe(read * scales, labels, kernel=1)
    assert probe.weight.shape == (1, 1, C, len(CLASSES))
    assert np.mean(told(probe, new * scales) == answers) > 0.97
    noise = np.random.default_rng(3).integers(0, 5, labels.shape).astype(np.uint8)
    probe = fit_probe(read, noise, kernel=1)
    other = np.random.default_rng(4).integers(0, 5, labels.shape)
    chance = np.mean(told(probe, new) == other)
    assert chance == pytest.approx(0.2, abs=4 * (0.16 / noise.size) ** 0.5)


def test_only_a_wide_kernel_sees_the_neighbour():
    """Each square's class is written on the square to its left, off the board as 0."""
    classes = np.random.default_rng(5).integers(0, 5, (N, H, W))
    read = np.eye(5, C, dtype=np.float32)[classes]
    labels = np.full((N, H, W), 4, np.uint8)
    labels[:, :, 1:] = classes[:, :, :-1]
    inside = np.s_[:, :, 1:]
    wide = told(fit_probe(read, labels, kernel=3), read)
    assert np.mean(wide[inside] == labels[inside]) == 1.0
    narrow = told(fit_probe(read, labels, kernel=1), read)
    assert np.mean(narrow[inside] == labels[inside]) < 0.35


def test_the_fit_is_the_best_there_is():
    """Cross-entropy at the optimum that SciPy finds for the same convex problem."""
    read = boards(6)
    rng = np.random.default_rng(7)
    logits = read @ rng.normal(size=(C, 5)) + rng.gumbel(size=(N, H, W, 5))
    labels = logits.argmax(-1).astype(np.uint8)
    flat, hot = read.reshape(-1, C).astype(float), np.eye(5)[labels.reshape(-1)]

    def loss(weights):
        out = flat @ weights.reshape(C, 5)
        gradient = flat.T @ (scipy.special.softmax(out, axis=1) - hot) / len(flat)
        value = (scipy.special.logsumexp(out, axis=1) - (out * hot).sum(1)).mean()
        return value, gradient.reshape(-1)

    best = scipy.optimize.minimize(loss, np.zeros(5 * C), jac=True, method="L-BFGS-B")
    probe = fit_probe(read, labels, kernel=1)
    value, _ = loss(np.asarray(probe.weight, float).reshape(-1))
    assert best.fun <= value < best.fun + 1e-3
    again = fit_probe(read, labels, kernel=1)
    np.testing.assert_array_equal(again.weight, probe.weight)


def test_probabilities_against_a_loop_over_taps():
    rng = np.random.default_rng(8)
    weight = rng.normal(size=(3, 3, C, 5)).astype(np.float32)
    read = rng.normal(size=(2, 3, H, W, C)).astype(np.float32)
    logits = np.zeros((2, 3, H, W, 5))
    for i in range(H):
        for j in range(W):
            for di in (-1, 0, 1):
                for dj in (-1, 0, 1):
                    if 0 <= i + di < H and 0 <= j + dj < W:
                        tap = weight[di + 1, dj + 1]
                        logits[:, :, i, j] += read[:, :, i + di, j + dj] @ tap
    expected = scipy.special.softmax(logits, axis=-1)
    found = probabilities(Probe(jax.numpy.asarray(weight)), read)
    np.testing.assert_allclose(found, expected, atol=1e-5)


def test_a_threshold_by_hand():
    scores = np.array([0.9, 0.8, 0.7, 0.6, 0.5])
    right = np.array([True, False, True, True, False])
    # Precision at each threshold: 1, 1/2, 2/3, 3/4, 3/5.
    assert calibrate(scores, right, 0.75) == (0.6, 0.75)
    assert calibrate(scores, right, 0.76) == (0.9, 1.0)
    assert calibrate(scores, right, 0.6) == (0.5, 0.6)
    # Equal scores stand or fall together.
    tied = np.array([0.9, 0.9, 0.7])
    assert calibrate(tied, np.array([True, False, False]), 0.9) == (None, 0.5)


def test_thresholds_against_trying_them_all():
    rng = np.random.default_rng(9)
    for _ in range(20):
        scores = rng.integers(0, 12, 40) / 12
        right = rng.random(40) < scores
        found, reached = calibrate(scores, right, 0.8)
        tried = {s: right[scores >= s].mean() for s in scores}
        enough = [s for s, precision in tried.items() if precision >= 0.8]
        if enough:
            assert found == min(enough)
            assert reached == pytest.approx(tried[found])
        else:
            assert (found, reached) == (None, pytest.approx(max(tried.values())))
