"""The Gaussian process that predicts the error of a network before it is trained.

Matern 5/2 with one length scale a feature, a constant mean and fitted noise, on standardised targets. Length
scales have the dimension-scaled log-normal prior of Hvarfner, Hellsten, Nardi (2024), "Vanilla Bayesian
optimization performs great in high dimensions", the noise a log-normal one; hyper-parameters are the mode
of their posterior, found by a bounded number of L-BFGS steps with the exact gradient. Kernel ``arc`` is
that of Swersky et al. (2014), "Raiders of the lost architecture" (arXiv 1409.4011): a feature x becomes the
point (sin, cos)(pi * a * x) of a circle of radius 1 / length scale, and the centre of the circle where its
parameter is inactive, so that an inactive parameter is equally far from all of its values; the angle a is
fitted in [0.1, 0.9].

It is written in numpy because the whole fit is then three to ten times cheaper than through automatic
differentiation; the tests hold it against `botorch.models.SingleTaskGP` and `gpytorch.kernels.ArcKernel`.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import cho_solve, cholesky, lapack, solve_triangular
from scipy.optimize import minimize

__all__ = ["Features", "Hyperparameters", "Kernel", "Surrogate", "fit", "log_posterior"]

Array = NDArray[np.float64]
Kernel = Literal["matern", "arc"]

_MAX_STEPS = 40
_LENGTH_SCALE = (0.025, 1e4)
_NOISE = (1e-4, 1.0)  # variances of standardised targets
_ANGLE = (0.1, 0.9)
_NOISE_PRIOR = (-4.0, 1.0)  # of the logarithm: mean and deviation


@dataclass(frozen=True, slots=True)
class Features:
    """What the surrogate sees of n networks.

    Attributes:
        values: (n, d) in [0, 1].
        active: (n, d) False where the parameter of a feature does nothing; used by the kernel ``arc``.
    """

    values: Array
    active: NDArray[np.bool_]

    def __len__(self) -> int:
        return len(self.values)

    def join(self, other: Features) -> Features:
        """Append the rows of `other`."""
        return Features(np.vstack([self.values, other.values]), np.vstack([self.active, other.active]))

    def beside(self, columns: Array) -> Features:
        """Append (n, k) features that are always active."""
        return Features(
            np.hstack([self.values, columns]),
            np.hstack([self.active, np.ones(columns.shape, dtype=bool)]),
        )


@dataclass(frozen=True, slots=True)
class Hyperparameters:
    """The fitted constants.

    Attributes:
        kernel: ``matern`` or ``arc``.
        length_scale: (d,) in units of the features.
        angle: (d,) of the arc; empty for ``matern``.
        noise: Variance of the noise, in units of the targets' variance.
        mean: The constant mean, in standardised units.
    """

    kernel: Kernel
    length_scale: Array
    angle: Array
    noise: float
    mean: float

    def embed(self, features: Features) -> Array:
        """Return the (n, d) or (n, 2 d) points between which the Matern kernel measures distances."""
        if self.kernel == "matern":
            return features.values / self.length_scale
        turn = np.pi * self.angle * features.values
        radius = features.active / self.length_scale
        return np.hstack([np.sin(turn) * radius, np.cos(turn) * radius])


@dataclass(frozen=True, slots=True)
class Surrogate:
    """A fitted process, conditioned on observations.

    Attributes:
        hyperparameters: The fitted constants.
        features: (n, d) inputs of the observations.
        targets: (n,) observations in their own unit.
        shift: Mean of the targets that the constants were fitted to.
        unit: Their standard deviation.
        factor: (n, n) lower Cholesky factor of the covariance.
        weights: (n,) covariance^-1 (standardised targets - mean).
    """

    hyperparameters: Hyperparameters
    features: Features
    targets: Array
    shift: float
    unit: float
    factor: Array
    weights: Array

    def mean(self, features: Features) -> Array:
        """Return the (n,) mean alone, which is cheaper than `predict`."""
        embed = self.hyperparameters.embed
        across = _matern(_squared_distances(embed(features), embed(self.features)))
        return self.shift + self.unit * (self.hyperparameters.mean + across @ self.weights)

    def predict(self, features: Features) -> tuple[Array, Array]:
        """Return mean and standard deviation (without noise) at n inputs, each (n,), in the targets' unit."""
        embed = self.hyperparameters.embed
        across = _matern(_squared_distances(embed(features), embed(self.features)))
        mean = self.hyperparameters.mean + across @ self.weights
        explained = solve_triangular(self.factor, across.T, lower=True, check_finite=False)
        variance = np.maximum(1.0 - np.einsum("ij,ij->j", explained, explained), 1e-10)
        return self.shift + self.unit * mean, self.unit * np.sqrt(variance)

    def condition(self, features: Features, targets: Array) -> Surrogate:
        """Add observations and keep the constants (a Kriging believer adds its own predictions)."""
        return _conditioned(
            self.hyperparameters,
            self.features.join(features),
            np.concatenate([self.targets, targets]),
            self.shift,
            self.unit,
        )


def fit(features: Features, targets: Array, kernel: Kernel = "matern", max_points: int = 300) -> Surrogate:
    """Fit the constants and condition on all observations.

    Args:
        features: (n, d) inputs, n >= 1.
        targets: (n,) finite observations.
        kernel: ``matern`` or ``arc``.
        max_points: Constants are fitted to at most that many observations, evenly spread over the given
            order, because a step costs n^3.

    Returns:
        The process given all n observations.
    """
    shift, unit = float(targets.mean()), float(targets.std())
    unit = unit if unit > 1e-9 else 1.0
    some = np.unique(np.linspace(0, len(targets) - 1, min(max_points, len(targets))).round().astype(int))
    subset = Features(features.values[some], features.active[some])
    standard = (targets[some] - shift) / unit
    n_features = features.values.shape[1]
    location, scale = _length_scale_prior(n_features)
    n_angles = n_features if kernel == "arc" else 0
    start = np.concatenate(
        [
            np.full(n_features, location - scale**2),
            np.full(n_angles, 0.5),
            [_NOISE_PRIOR[0] - _NOISE_PRIOR[1] ** 2, 0.0],
        ]
    )
    bounds = [tuple(map(math.log, _LENGTH_SCALE))] * n_features + [_ANGLE] * n_angles
    bounds += [tuple(map(math.log, _NOISE)), (-3.0, 3.0)]

    def loss(vector: Array) -> tuple[float, Array]:
        value, gradient = log_posterior(_unpacked(vector, kernel, n_features), subset, standard)
        return -value, -gradient

    best = minimize(loss, start, jac=True, method="L-BFGS-B", bounds=bounds, options={"maxiter": _MAX_STEPS})
    return _conditioned(_unpacked(best.x, kernel, n_features), features, targets, shift, unit)


def log_posterior(constants: Hyperparameters, features: Features, standard: Array) -> tuple[float, Array]:
    """Return the log posterior density of the constants, up to one, and its gradient.

    Args:
        constants: Where to evaluate it.
        features: (n, d) inputs.
        standard: (n,) standardised targets.

    Returns:
        The value, and the gradient by (log length scale, angle where there is one, log noise, mean).
    """
    n, n_features = features.values.shape
    points = constants.embed(features)
    squared = _squared_distances(points, points)
    np.fill_diagonal(squared, 0.0)
    factor = cholesky(_matern(squared) + constants.noise * np.eye(n), lower=True, check_finite=False)
    residual = standard - constants.mean
    weights = cho_solve((factor, True), residual, check_finite=False)
    inverse, _ = lapack.dpotri(factor, lower=1)
    inverse = np.tril(inverse) + np.tril(inverse, -1).T
    value = (
        -0.5 * float(residual @ weights)
        - float(np.log(np.diag(factor)).sum())
        - 0.5 * n * math.log(2 * math.pi)
    )

    by_covariance = 0.5 * (np.outer(weights, weights) - inverse)
    pull = by_covariance * _matern_slope(squared)
    rows, across = pull.sum(axis=1), pull @ points
    by_scale = -4.0 * (rows @ (points * points) - np.einsum("ij,ij->j", points, across))
    by_angle = np.empty(0)
    if constants.kernel == "arc":
        by_scale = by_scale[:n_features] + by_scale[n_features:]
        sine, cosine = points[:, :n_features], points[:, n_features:]
        turned = np.hstack([cosine, -sine]) * np.pi * np.tile(features.values, 2)
        both = 4.0 * (rows @ (points * turned) - np.einsum("ij,ij->j", turned, across))
        by_angle = both[:n_features] + both[n_features:]
    by_noise = constants.noise * float(np.trace(by_covariance))
    by_mean = float(weights.sum())

    prior_scale, prior_scale_slope = _log_normal(
        np.log(constants.length_scale), *_length_scale_prior(n_features)
    )
    prior_noise, prior_noise_slope = _log_normal(np.log([constants.noise]), *_NOISE_PRIOR)
    gradient = np.concatenate(
        [by_scale + prior_scale_slope, by_angle, by_noise + prior_noise_slope, np.array([by_mean])]
    )
    return value + float(prior_scale.sum() + prior_noise.sum()), gradient


def _conditioned(
    constants: Hyperparameters, inputs: Features, targets: Array, shift: float, unit: float
) -> Surrogate:
    points = constants.embed(inputs)
    squared = _squared_distances(points, points)
    np.fill_diagonal(squared, 0.0)
    factor = cholesky(
        _matern(squared) + constants.noise * np.eye(len(inputs)), lower=True, check_finite=False
    )
    residual = (targets - shift) / unit - constants.mean
    weights = cho_solve((factor, True), residual, check_finite=False)
    return Surrogate(constants, inputs, targets, shift, unit, factor, weights)


def _unpacked(vector: Array, kernel: Kernel, n_features: int) -> Hyperparameters:
    return Hyperparameters(
        kernel,
        np.exp(vector[:n_features]),
        vector[n_features:-2],
        float(np.exp(vector[-2])),
        float(vector[-1]),
    )


def _length_scale_prior(n_features: int) -> tuple[float, float]:
    return math.sqrt(2.0) + 0.5 * math.log(n_features), math.sqrt(3.0)


def _log_normal(logs: Array, location: float, scale: float) -> tuple[Array, Array]:
    """Return log density of exp(logs) and its slope by `logs`."""
    z = (logs - location) / scale
    return -logs - math.log(scale) - 0.5 * math.log(2 * math.pi) - 0.5 * z * z, -1.0 - z / scale


def _squared_distances(a: Array, b: Array) -> Array:
    squares = (a * a).sum(axis=1)[:, None] + (b * b).sum(axis=1) - 2.0 * (a @ b.T)
    distances: Array = np.maximum(squares, 0.0)
    return distances


def _matern(squared: Array) -> Array:
    scaled = np.sqrt(5.0 * squared)
    covariance: Array = (1.0 + scaled + scaled * scaled / 3.0) * np.exp(-scaled)
    return covariance


def _matern_slope(squared: Array) -> Array:
    """Derivative of `_matern` by the squared distance."""
    scaled = np.sqrt(5.0 * squared)
    slope: Array = -5.0 / 6.0 * (1.0 + scaled) * np.exp(-scaled)
    return slope
