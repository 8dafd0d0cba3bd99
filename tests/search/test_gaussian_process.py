"""The process against plain formulas: loops, finite differences and quadrature."""

import math

import numpy as np
import pytest
from scipy.integrate import quad
from scipy.stats import norm

from allocsearch.search import Axis, Points
from allocsearch.search.samplers import gaussian_process as gp

AXES = (Axis("depth", (1, 2, 4)), Axis("kind", ("a", "b", "c"), ordinal=False))
POINTS = Points(
    (*AXES, Axis("one", (5,))), tuple((i, j, 0) for i in range(3) for j in range(3))
)


def kernel(a, b, weights: np.ndarray, signal: float) -> float:
    """Matérn 5/2 as in equation 4.17 of Rasmussen and Williams, length 1."""
    r = math.sqrt(weights[0] * ((a[0] - b[0]) / 2) ** 2 + weights[1] * (a[1] != b[1]))
    root = math.sqrt(5) * r
    return signal * (1 + root + 5 * r * r / 3) * math.exp(-root)


def test_a_posterior_is_that_of_the_textbook():
    rows, values = POINTS.array[[0, 4, 5, 7]], np.array([-1.0, 0.2, 1.1, -0.3])
    process = gp.fit(gp.metric(POINTS), rows, values)
    k = lambda a, b: kernel(a, b, process.weights, process.signal)  # noqa: E731
    covariance = np.array([[k(a, b) for b in rows] for a in rows])
    inverse = np.linalg.inv(covariance + (process.noise + 1e-8) * np.eye(4))
    mean, deviation = process.predict(POINTS.array)
    for i, row in enumerate(POINTS.rows):
        cross = np.array([k(row, b) for b in rows])
        assert mean[i] == pytest.approx(cross @ inverse @ values, abs=1e-8)
        variance = process.signal - cross @ inverse @ cross
        assert deviation[i] ** 2 == pytest.approx(variance, abs=1e-8)


def test_the_gradient_is_that_of_finite_differences():
    rng = np.random.default_rng(0)
    rows, values = POINTS.array, rng.normal(size=9)
    squared = gp.metric(POINTS).between(rows, rows)
    logs, spread = rng.normal(size=4), np.full(4, 1.5)
    _, gradient = gp._loss(logs, squared, values, np.zeros(4), spread)
    for i in range(4):
        step = 1e-5 * np.eye(4)[i]
        high, _ = gp._loss(logs + step, squared, values, np.zeros(4), spread)
        low, _ = gp._loss(logs - step, squared, values, np.zeros(4), spread)
        assert gradient[i] == pytest.approx((high - low) / 2e-5, rel=1e-5)


@pytest.mark.parametrize("mean", [-2.0, 0.0, 0.7, 4.0])
def test_expected_improvement_is_the_integral(mean: float):
    best, deviation = 0.3, 0.8
    wanted, _ = quad(
        lambda f: (best - f) * norm.pdf(f, mean, deviation), best - 12, best
    )
    found = gp.log_expected_improvement(np.array([mean]), np.array([deviation]), best)
    assert found[0] == pytest.approx(math.log(wanted), rel=1e-6)


def test_hopeless_points_still_differ():
    means = np.array([5.0, 20.0, 50.0, 1e3, 1e6])
    found = gp.log_expected_improvement(means, np.ones(5), 0.0)
    assert np.isfinite(found).all()
    assert (np.diff(found) < 0).all()
