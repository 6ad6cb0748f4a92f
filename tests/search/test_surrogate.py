"""The surrogate against gpytorch and botorch, and what it must predict."""

from __future__ import annotations

import gpytorch
import numpy as np
import pytest
import torch
from botorch.models import SingleTaskGP
from botorch.models.utils.gpytorch_modules import get_covar_module_with_dim_scaled_prior
from gpytorch.kernels import ArcKernel, MaternKernel
from gpytorch.mlls import ExactMarginalLogLikelihood

from sparsemod.search.surrogate import Features, Hyperparameters, fit, log_posterior


def features(n, d, seed=0, share_active=1.0):
    rng = np.random.default_rng(seed)
    return Features(rng.random((n, d)), rng.random((n, d)) < share_active)


def bowl(inputs):
    return ((inputs.values - 0.4) ** 2 @ np.arange(1, inputs.values.shape[1] + 1)).astype(float)


def constants(kernel, d, noise=0.05, mean=0.2):
    rng = np.random.default_rng(9)
    angle = rng.uniform(0.2, 0.8, d) if kernel == "arc" else np.empty(0)
    return Hyperparameters(kernel, rng.uniform(0.5, 2.0, d), angle, noise, mean)


def in_botorch(inputs, standard, given):
    model = SingleTaskGP(
        torch.tensor(inputs.values),
        torch.tensor(standard)[:, None],
        covar_module=get_covar_module_with_dim_scaled_prior(ard_num_dims=inputs.values.shape[1], use_rbf_kernel=False),
        outcome_transform=None,
    )
    model.covar_module.lengthscale = torch.tensor(given.length_scale)
    model.likelihood.noise = given.noise
    model.mean_module.constant.data = torch.tensor(given.mean, dtype=torch.float64)
    return model


def test_log_posterior_is_botorchs():
    inputs = features(25, 4)
    standard = np.random.default_rng(1).standard_normal(25)
    given = constants("matern", 4)
    model = in_botorch(inputs, standard, given)
    likelihood = ExactMarginalLogLikelihood(model.likelihood, model).train()
    expected = 25 * likelihood(model(*model.train_inputs), model.train_targets).item()
    assert log_posterior(given, inputs, standard)[0] == pytest.approx(expected, rel=1e-7)


def test_predictions_are_botorchs():
    inputs, elsewhere = features(25, 4), features(7, 4, seed=3)
    targets = bowl(inputs)
    surrogate = fit(inputs, targets)
    standard = (targets - surrogate.shift) / surrogate.unit
    model = in_botorch(inputs, standard, surrogate.hyperparameters).eval()
    with torch.no_grad(), gpytorch.settings.fast_computations(False, False, False):
        posterior = model.posterior(torch.tensor(elsewhere.values))
    mean, deviation = surrogate.predict(elsewhere)
    assert mean == pytest.approx(surrogate.shift + surrogate.unit * posterior.mean.numpy()[:, 0], rel=1e-6)
    assert deviation == pytest.approx(surrogate.unit * posterior.variance.sqrt().numpy()[:, 0], rel=1e-4)
    assert surrogate.mean(elsewhere).tolist() == mean.tolist()


def test_arc_covariance_is_gpytorchs():
    inputs, given = features(12, 3, share_active=0.6), constants("arc", 3)
    kernel = ArcKernel(MaternKernel(nu=2.5), delta_func=lambda x: (x >= 0).to(x), ard_num_dims=3).double()
    kernel.lengthscale = 1.0
    kernel.base_kernel.lengthscale = 1.0
    kernel.radius = torch.tensor(1.0 / given.length_scale)
    kernel.angle = torch.tensor(given.angle)
    coded = torch.tensor(np.where(inputs.active, inputs.values, -1.0))  # negative stands for inactive
    with torch.no_grad():
        expected = kernel(coded).to_dense().numpy()
    points = given.embed(inputs)
    scaled = np.sqrt(5.0) * np.linalg.norm(points[:, None] - points[None], axis=2)
    assert (1 + scaled + scaled**2 / 3) * np.exp(-scaled) == pytest.approx(expected, abs=1e-7)


@pytest.mark.parametrize("kernel", ["matern", "arc"])
def test_gradient_is_that_of_the_value(kernel):
    inputs = features(20, 3, share_active=0.7)
    standard = np.random.default_rng(2).standard_normal(20)
    n_angles = 3 if kernel == "arc" else 0
    start = np.concatenate([np.log([0.5, 1.0, 2.0]), np.linspace(0.3, 0.7, n_angles), [np.log(0.03), 0.1]])

    def at(vector):
        scale, angle = np.exp(vector[:3]), vector[3 : 3 + n_angles]
        return log_posterior(Hyperparameters(kernel, scale, angle, np.exp(vector[-2]), vector[-1]), inputs, standard)

    steps = 1e-6 * np.eye(len(start))
    numeric = [(at(start + step)[0] - at(start - step)[0]) / 2e-6 for step in steps]
    assert at(start)[1] == pytest.approx(np.array(numeric), rel=1e-5, abs=1e-6)


@pytest.mark.parametrize("kernel", ["matern", "arc"])
def test_learns_a_smooth_function(kernel):
    inputs, elsewhere = features(80, 4), features(200, 4, seed=1)
    mean, deviation = fit(inputs, bowl(inputs), kernel).predict(elsewhere)
    unexplained = np.mean((mean - bowl(elsewhere)) ** 2) / np.var(bowl(elsewhere))
    assert unexplained < 0.01
    assert np.mean(np.abs(mean - bowl(elsewhere)) < 3 * deviation) > 0.9


def test_a_feature_that_does_nothing_gets_a_long_length_scale():
    inputs = features(60, 3)
    surrogate = fit(inputs, np.sin(6 * inputs.values[:, 0]))
    scale = surrogate.hyperparameters.length_scale
    assert scale[0] < 0.2 * min(scale[1:])


def test_an_inactive_parameter_is_equally_far_from_all_of_its_values():
    given = constants("arc", 1)
    away = given.embed(Features(np.array([[0.3]]), np.array([[False]])))
    present = given.embed(Features(np.linspace(0, 1, 5)[:, None], np.ones((5, 1), dtype=bool)))
    distances = np.linalg.norm(present - away, axis=1)
    assert distances == pytest.approx(np.full(5, distances[0]))


def test_noise_is_fitted():
    inputs = features(150, 2)
    noisy = bowl(inputs) + 0.3 * np.random.default_rng(0).standard_normal(150)
    surrogate = fit(inputs, noisy)
    assert np.sqrt(surrogate.hyperparameters.noise) * surrogate.unit == pytest.approx(0.3, rel=0.25)


def test_believing_its_own_mean_leaves_the_mean_and_lowers_the_uncertainty():
    inputs, there = features(30, 3), features(1, 3, seed=5)
    surrogate = fit(inputs, bowl(inputs))
    mean, deviation = surrogate.predict(there)
    after_mean, after_deviation = surrogate.condition(there, mean).predict(there)
    assert after_mean == pytest.approx(mean, abs=1e-6)
    assert after_deviation < 0.5 * deviation


@pytest.mark.parametrize("n", [1, 2, 3])
def test_few_or_equal_observations_are_enough(n):
    inputs = features(n, 5)
    mean, deviation = fit(inputs, np.full(n, 2.5)).predict(inputs)
    assert mean == pytest.approx(np.full(n, 2.5), abs=0.2)
    assert np.isfinite(deviation).all()


def test_repeated_inputs_with_different_outcomes_are_no_obstacle():
    inputs = Features(np.full((20, 3), 0.5), np.ones((20, 3), dtype=bool))
    mean, _ = fit(inputs, np.arange(20.0)).predict(inputs)
    assert mean[0] == pytest.approx(9.5, abs=1.0)


def test_constants_from_a_part_of_the_observations_still_condition_on_all():
    inputs = features(120, 2)
    surrogate = fit(inputs, bowl(inputs), max_points=40)
    assert len(surrogate.features) == 120
    assert surrogate.predict(inputs)[0] == pytest.approx(bowl(inputs), abs=0.05)
