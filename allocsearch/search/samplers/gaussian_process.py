"""An exact Gaussian process over a finite set of points with named axes.

Matérn kernel of order 5/2, one length scale an axis: steps count on an ordinal axis,
a difference counts 1 on any other. Lengths, signal and noise are the most probable
ones under a prior that keeps few observations from looking certain. Reference:
Rasmussen and Williams (2006), chapters 2, 4.2 and 5.4.
"""

from dataclasses import dataclass

import numpy as np
from scipy.linalg import cho_factor, cho_solve, solve_triangular
from scipy.optimize import minimize
from scipy.special import erfcx, ndtr

from allocsearch.search.points import Points

_ROOT5 = np.sqrt(5.0)
_JITTER = 1e-8
# Prior of the logarithms: inverse squared length of an ordinal axis (of range 1) and
# of any other, signal variance, noise variance; a mean and a standard deviation each.
_ORDINAL, _NOMINAL = (np.log(4.0), 1.5), (np.log(0.5), 1.5)
_SIGNAL, _NOISE = (0.0, 1.0), (np.log(0.02), 1.5)
_WEIGHT_BOUNDS, _SIGNAL_BOUNDS, _NOISE_BOUNDS = (-8.0, 6.0), (-3.0, 3.0), (-9.0, 1.0)


@dataclass(frozen=True)
class Metric:
    """Squared distances along each axis.

    Attributes:
        tables: for each axis that has a choice, `[n_values, n_values]`.
        columns: those axes.
        ordinal: which of them are ordinal.
    """

    tables: tuple[np.ndarray, ...]
    columns: tuple[int, ...]
    ordinal: tuple[bool, ...]

    def between(self, a: np.ndarray, b: np.ndarray) -> np.ndarray:
        """Squared distances of rows `a` and `b` along each axis, `[n_axes, a, b]`."""
        parts = zip(self.tables, self.columns, strict=True)
        return np.stack([t[np.ix_(a[:, j], b[:, j])] for t, j in parts])

    def total(self, a: np.ndarray, b: np.ndarray, weights: np.ndarray) -> np.ndarray:
        """The weighted sum of `between` over axes, without keeping all of them."""
        found = np.zeros((len(a), len(b)))
        for table, j, weight in zip(self.tables, self.columns, weights, strict=True):
            found += (weight * table)[np.ix_(a[:, j], b[:, j])]
        return found


def metric(points: Points) -> Metric:
    """The metric of a space."""
    columns = tuple(i for i, axis in enumerate(points.axes) if len(axis.values) > 1)
    axes = [points.axes[i] for i in columns]
    tables = []
    for axis in axes:
        scale = np.linspace(0.0, 1.0, len(axis.values))
        squared = (scale[:, None] - scale) ** 2
        tables.append(squared if axis.ordinal else 1.0 - np.eye(len(scale)))
    return Metric(tuple(tables), columns, tuple(axis.ordinal for axis in axes))


@dataclass(frozen=True)
class GaussianProcess:
    """A posterior over the points of a space, for values of mean 0 and variance 1.

    Attributes:
        metric: of the space.
        rows: observed points, `[n, n_axes]`.
        weights: inverse squared length of each axis with a choice.
        signal: variance of the function.
        noise: variance of an observation around it.
        factor: lower Cholesky factor of the observations' covariance.
        solved: that covariance, inverted, times the values.
    """

    metric: Metric
    rows: np.ndarray
    weights: np.ndarray
    signal: float
    noise: float
    factor: np.ndarray
    solved: np.ndarray

    def predict(self, rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Mean and standard deviation of the function, without noise, at `rows`."""
        squared = self.metric.total(self.rows, rows, self.weights)
        cross = self.signal * _matern(squared)
        whitened = solve_triangular(self.factor, cross, lower=True, check_finite=False)
        variance = self.signal - (whitened * whitened).sum(axis=0)
        return cross.T @ self.solved, np.sqrt(np.maximum(variance, 1e-12))


def fit(metric: Metric, rows: np.ndarray, values: np.ndarray) -> GaussianProcess:
    """The process with the most probable lengths, signal and noise.

    Args:
        metric: of the space.
        rows: observed points, at least one.
        values: of mean about 0 and variance about 1.
    """
    axes = [_ORDINAL if ordinal else _NOMINAL for ordinal in metric.ordinal]
    mean, deviation = np.array([*axes, _SIGNAL, _NOISE]).T
    squared = metric.between(rows, rows)
    bounds = [_WEIGHT_BOUNDS] * len(axes) + [_SIGNAL_BOUNDS, _NOISE_BOUNDS]
    found = minimize(
        _loss,
        mean,
        args=(squared, values, mean, deviation),
        jac=True,
        method="L-BFGS-B",
        bounds=bounds,
        options={"maxiter": 30},
    ).x
    *logs, log_signal, log_noise = found
    weights, signal, noise = np.exp(logs), np.exp(log_signal), np.exp(log_noise)
    covariance = signal * _matern(np.tensordot(weights, squared, 1))
    covariance[np.diag_indices(len(values))] += noise + _JITTER
    factor = np.linalg.cholesky(covariance)
    solved = cho_solve((factor, True), values)
    return GaussianProcess(metric, rows, weights, signal, noise, factor, solved)


def log_expected_improvement(
    mean: np.ndarray, deviation: np.ndarray, best: float
) -> np.ndarray:
    """The logarithm of E[max(best − f, 0)] for normal f: finite wherever asked.

    For f far above `best` it goes through the scaled complementary error function, so
    that hopeless points still differ. Reference: Ament et al., arXiv:2310.20708.
    """
    z = (best - mean) / deviation
    near = z > -1.0
    density = np.exp(-0.5 * z**2) / np.sqrt(2 * np.pi)
    direct = np.log(np.where(near, density + z * ndtr(z), 1.0))
    a = np.where(near, 1.0, -z)
    ratio = np.sqrt(np.pi / 2) * a * erfcx(a / np.sqrt(2))
    tail = np.where(a < 1e4, np.log1p(-np.minimum(ratio, 1 - 1e-12)), -2 * np.log(a))
    far = -0.5 * z**2 - 0.5 * np.log(2 * np.pi) + tail
    return np.log(deviation) + np.where(near, direct, far)


def _matern(squared: np.ndarray) -> np.ndarray:
    root = _ROOT5 * np.sqrt(squared)
    return (1 + root + root * root / 3) * np.exp(-root)


def _loss(
    logs: np.ndarray,
    squared: np.ndarray,
    values: np.ndarray,
    mean: np.ndarray,
    deviation: np.ndarray,
) -> tuple[float, np.ndarray]:
    """Minus the log posterior of the kernel's parameters, and its gradient."""
    n_axes, n, _ = squared.shape
    weights = np.exp(logs[:n_axes])
    signal, noise = np.exp(logs[n_axes:])
    root = _ROOT5 * np.sqrt(np.tensordot(weights, squared, 1))
    decay = np.exp(-root)
    kernel = (1 + root + root * root / 3) * decay
    covariance = signal * kernel
    covariance[np.diag_indices(n)] += noise + _JITTER
    factor = cho_factor(covariance, lower=True, check_finite=False)
    solved = cho_solve(factor, values, check_finite=False)
    inverse = cho_solve(factor, np.eye(n), check_finite=False)
    pull = 0.5 * (inverse - np.outer(solved, solved))  # d loss / d covariance
    slope = pull * (-5 / 6 * signal) * (1 + root) * decay
    per_axis = squared.reshape(n_axes, -1) @ slope.ravel()
    gradient = [
        *(per_axis * weights),
        signal * (pull * kernel).sum(),
        noise * np.trace(pull),
    ]
    loss = 0.5 * values @ solved + np.log(np.diag(factor[0])).sum()
    away = (logs - mean) / deviation
    return loss + 0.5 * away @ away, np.array(gradient) + away / deviation
