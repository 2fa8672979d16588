"""A shrunk Sigma is the maximum a posteriori: against the dense reference, monotone, of use on small and wide data."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import reference
from specinvert.gllim import GLLiM, GLLiMParameters
from specinvert.gllim.em import ArrayChunks, Checkpoint, Settings, State, train
from strategies import BARE, Data, assert_near, assert_same_theta, data_sets, fit_estimator, fit_reference, make_data

SHARES = st.sampled_from([1e-6, 1e-3, 0.1, 0.5, 0.9])
LABELS = (0, 0, 1, 1, 0, 2)
MASK = np.equal.outer(LABELS, LABELS)


class Kept(Checkpoint):
    """All states of a run."""

    def __init__(self, start: State | None = None) -> None:
        self.start, self.states = start, list[State]()

    def begin(self, fingerprint: str) -> None:
        pass

    def load(self, label: str) -> State | None:
        return self.start

    def keep(self, label: str, state: State, last: bool) -> None:
        self.states.append(state)


def states_of(data: Data, start: State | None = None, **own: Any) -> list[State]:
    n_given = data.responsibilities.shape[1]
    kept = Kept(start)
    made = Settings(**{"n_components": n_given, "n_latent": data.n_latent, "standardize": False, **own})
    train(ArrayChunks(data.chunk), made, n_given, checkpoint=kept)
    return kept.states


def objectives(data: Data, states: list[State], shrinkage: float) -> np.ndarray:
    """Log-likelihood and log-prior of each state, the latter by the dense reference."""
    weights = np.ones(len(data.spectra)) if data.weights is None else data.weights
    pooled = reference.pooled_variance(data.spectra, data.parameters, weights)
    priors = [reference.log_prior(s.theta.sigma_dense(), shrinkage, pooled, weights.sum()) for s in states]
    return np.array([s.log_likelihoods[-1] for s in states]) + priors


@pytest.mark.oracle
@given(data=data_sets(), sigma=st.sampled_from(["full", "diag"]), tied=st.booleans(), shrinkage=SHARES)
@settings(max_examples=20)
def test_ten_iterations_agree_with_the_reference(data: Data, sigma: str, tied: bool, shrinkage: float) -> None:
    own = {"sigma": sigma, "tied_sigma": tied, "shrinkage": shrinkage}
    model = fit_estimator(data, **own, **BARE)
    theta, log_likelihoods = fit_reference(data, own)
    assert_near(model.log_likelihoods_, log_likelihoods, 1e-9)
    assert_same_theta(model.parameters_, theta, 1e-9)


@pytest.mark.oracle
@pytest.mark.parametrize("tied", [False, True])
def test_blocks_agree_with_the_reference(tied: bool) -> None:
    data = make_data(0, 3, 6, 2, 1)
    own = {"tied_sigma": tied, "shrinkage": 0.2}
    model = fit_estimator(data, sigma="block", sigma_blocks=LABELS, **own, **BARE)
    theta, _ = fit_reference(data, {"sigma": MASK, **own})
    assert_same_theta(model.parameters_, theta, 1e-9)


@pytest.mark.property
@given(
    data=data_sets(per_component=10),
    sigma=st.sampled_from(["full", "diag"]),
    tied=st.booleans(),
    shrinkage=SHARES,
    own=st.fixed_dictionaries(
        {"algorithm": st.sampled_from(["general", "aecm"]), "reg_covar": st.sampled_from([1e-6, 1e-2])}
    ),
)
@settings(max_examples=40)
def test_the_penalised_likelihood_never_falls(
    data: Data, sigma: str, tied: bool, shrinkage: float, own: dict[str, Any]
) -> None:
    states = states_of(data, **own, sigma=sigma, tied_sigma=tied, shrinkage=shrinkage, max_iter=25, tol=0.0)
    values = objectives(data, states, shrinkage)
    falls = -np.diff(values) / np.abs(values[:-1])
    same = np.diff([s.theta.n_components for s in states]) == 0
    assert falls[same].max(initial=0.0) <= 1e-9


def test_stopping_goes_by_the_penalised_likelihood_and_after_a_stop_too() -> None:
    data, shrinkage, tol = make_data(3, 4, 8, 2, 0, noise=1.0, per_component=12), 0.5, 1e-3
    states = states_of(data, sigma="full", shrinkage=shrinkage, tol=tol, max_iter=200)
    gains = np.diff(objectives(data, states, shrinkage)) / len(data.spectra)
    assert len(states) < 200
    assert gains[-1] < tol <= gains[:-1].min()
    on = states_of(data, states[-3], sigma="full", shrinkage=shrinkage, tol=tol, max_iter=200)
    assert [s.log_likelihoods for s in on] == [s.log_likelihoods for s in states[-2:]]


def test_one_component_is_the_given_share_of_a_pooled_variance_in_the_users_units() -> None:
    data = make_data(0, 1, 7, 2, 0)
    scales = np.geomspace(0.1, 10.0, 7)
    for standardize in (False, True):
        own = {"sigma": "full", "standardize": standardize}
        free, shrunk, all_of_it = (
            GLLiM(1, **own, shrinkage=s).fit(data.spectra * scales, data.parameters).parameters_.sigma_dense()[0]
            for s in (None, 0.3, 1.0)
        )
        pooled = np.trace(free) / 7
        np.testing.assert_allclose(shrunk, 0.7 * free + 0.3 * pooled * np.eye(7), rtol=1e-10)
        np.testing.assert_allclose(all_of_it, pooled * np.eye(7), rtol=1e-10)


@pytest.mark.parametrize(
    "own", [{"sigma": "full"}, {"sigma": "diag"}, {"sigma": "block", "sigma_blocks": (0, 0, 1, 1, 0)}]
)
def test_one_fit_tells_those_of_all_greater_shares(own: dict[str, Any]) -> None:
    data = make_data(0, 1, 5, 2, 0, "real")
    scaled = data.spectra * np.geomspace(0.1, 10.0, 5)

    def fit(share: float | None) -> GLLiMParameters:
        return GLLiM(1, shrinkage=share, **own).fit(scaled, data.parameters, data.weights).parameters_

    for before in (None, 1e-3):
        for share in (1e-3, 0.3, 1.0):
            found, expected = fit(before).shrunk(share), fit(share)
            assert_near(found.sigma_dense(), expected.sigma_dense(), 1e-12)
            assert found.constraints == expected.constraints
    with pytest.raises(ValueError, match=r"smaller shrinkage \(here '(full|diag|block)', 0.3\)"):
        fit(0.3).shrunk(0.2)
    with pytest.raises(ValueError, match="one component without latents"):
        fit_estimator(make_data(0, 2, 6, 1, 0), sigma="full", **BARE).parameters_.shrunk(0.1)


def test_components_of_fewer_samples_than_bands_stay_and_their_intervals_hold(caplog: Any) -> None:
    rng = np.random.default_rng(0)
    t, truth, mixing = rng.normal(size=(60, 1)), rng.normal(size=(400, 1)), 0.3 * rng.normal(size=(3, 80))

    def spectra(values: np.ndarray) -> np.ndarray:
        noise = rng.normal(size=(len(values), 3)) @ mixing + 0.1 * rng.normal(size=(len(values), 80))
        return np.asarray(np.sin(values + np.linspace(0.0, 2.0, 80)) + noise)

    seen, unseen = spectra(t), spectra(truth)
    with pytest.raises(ValueError, match="all 3 components degenerated"):
        GLLiM(3, sigma="full", random_state=0, reg_covar=0.0).fit(seen, t)
    model = GLLiM(3, sigma="full", shrinkage=0.1, random_state=0, reg_covar=0.0).fit(seen, t)
    assert model.n_removed_ == 0
    assert not [record for record in caplog.records if "a full covariance" in record.getMessage()]
    mean, std = model.predict(unseen, return_std=True)
    assert np.mean(np.abs(mean - truth) < 1.645 * std) == pytest.approx(0.9, abs=0.03)


@pytest.mark.parametrize(
    ("own", "told"),
    [
        ({"sigma": "iso"}, "sigma='iso' leaves it nothing to do"),
        ({"fixed": {"Sigma": 1.0}}, "a fixed Sigma leaves it nothing to do"),
        ({"algorithm": "marginal", "n_latent": 1}, "algorithm='marginal' has no shrinkage"),
        ({"shrinkage": 1.5}, "must be a number from 0 to 1 or None"),
        ({"shrinkage": "auto"}, "must be a number from 0 to 1 or None"),
    ],
)
def test_what_makes_no_sense_is_refused(own: dict[str, Any], told: str) -> None:
    with pytest.raises(ValueError, match=told):
        Settings(**{"sigma": "full", "shrinkage": 0.1, **own})


def test_checkpoints_of_before_stay_valid() -> None:
    assert "shrinkage" not in Settings(sigma="full").identity
    assert "shrinkage=0.1" in Settings(sigma="full", shrinkage=0.1).identity
