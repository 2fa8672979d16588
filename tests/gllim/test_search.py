"""Settings found by held-out samples: what is tried, what is kept, and what a score is worth."""

from typing import Any

import numpy as np
import pytest
from scipy.stats import norm

from specinvert.gllim import Candidate, GLLiM, Search, candidate_settings, splits
from specinvert.gllim.em import Chunk, Settings
from specinvert.gllim.posterior import Marginals

ALL = ("n_components", "n_latent", "sigma", "shrinkage", "starts", "spectra_transform")
START = Candidate(5, 0, "iso", None, ("kmeans-joint",))


def samples(n: int = 240, bend: float = 0.0, noise: float = 0.05, seed: int = 0) -> Chunk:
    """Spectra of one parameter, positive, and bent where that is told."""
    rng = np.random.default_rng(seed)
    t = rng.uniform(0.0, 1.0, (n, 1))
    bands = np.linspace(0.0, 1.0, 8)
    y = 2.0 + t * (1.0 + bands) + bend * np.sin(9.0 * t + 3.0 * bands) + noise * rng.standard_normal((n, 8))
    return Chunk(y, t, np.ones(n))


def search(rows: Chunk, free: Any = ALL, start: Candidate = START, **options: Any) -> Search:
    return Search(rows, Settings(1, random_state=0), free, start, len(rows), **options)


def test_few_samples_on_a_line_get_one_affine_map() -> None:
    found = search(samples()).run()
    assert found.best.candidate.n_components == 1
    assert found.best.candidate.spectra_transform is None
    assert found.ended == "nothing more paid"
    assert {0.7 < found.best.coverage_90[0] < 1.0, len(found.trials) > 5} == {True}


def test_a_bent_function_gets_several_components_that_are_better_than_one() -> None:
    found = search(samples(400, bend=1.0)).run()
    alone = [trial for trial in found.trials if trial.candidate.n_components == 1]
    assert found.best.candidate.n_components >= 3
    assert found.best.score > max(trial.score for trial in alone) + 0.3
    assert found.best.nrmse[0] < 0.7 * min(trial.nrmse[0] for trial in alone)


def test_what_is_given_stays() -> None:
    given = Candidate(4, 1, "diag", None, ("kmeans",))
    for free in (("n_components",), ("n_latent", "sigma")):
        for trial in search(samples(bend=0.5), free, given).run().trials:
            kept = set(ALL) - set(free)
            assert all(getattr(trial.candidate, name) == getattr(given, name) for name in kept)


def test_the_same_samples_in_another_order_are_held_out_together() -> None:
    rows = samples(100)
    order = np.random.default_rng(1).permutation(100)
    for small in (True, False):
        first = {rows.parameters[held, 0].tobytes() for _, held in splits(rows, small)}
        turned = {
            np.sort(rows.rows(order).parameters[held, 0]).tobytes() for _, held in splits(rows.rows(order), small)
        }
        assert {np.sort(np.frombuffer(held)).tobytes() for held in first} == turned
        seen = np.concatenate([held for _, held in splits(rows, small)])
        assert len(np.unique(seen)) == len(seen) == (100 if small else 25)
        assert all(not set(fitted) & set(held) for fitted, held in splits(rows, small))


def test_time_that_is_over_leaves_the_best_so_far_and_says_so() -> None:
    found = search(samples(), seconds=0.0).run()
    assert (len(found.trials), found.ended) == (1, "its time was over")


def test_the_same_data_give_the_same_settings() -> None:
    first, again = (search(samples(120, bend=0.5), ("n_components", "starts")).run() for _ in range(2))
    assert [trial.candidate for trial in first.trials] == [trial.candidate for trial in again.trials]
    assert [trial.score for trial in first.trials] == [trial.score for trial in again.trials]


def test_samples_without_a_model_are_an_error_that_says_why() -> None:
    with pytest.raises(ValueError, match=r"no setting gives a model of these 8 samples \("):
        search(samples(8), ("n_latent",), Candidate(7, 0, "full", None, ("kmeans",))).run()


def test_members_of_a_committee_have_seeds_and_starts_of_their_own() -> None:
    four = Candidate(3, 1, "iso", None, ("kmeans-joint", "kmeans") * 2)
    members = candidate_settings(four, Settings(1, random_state=5, tol=0.5))
    assert [own.init for own in members] == list(four.starts)
    assert len({(own.init, own.random_state) for own in members}) == 4
    assert {(own.n_components, own.n_latent, own.tol) for own in members} == {(3, 1, 0.5)}


def marginals(n: int = 200, factor: float = 1.0, seed: int = 0) -> Marginals:
    """Those of Gaussian posteriors whose spread is ``factor`` times the right one."""
    rng = np.random.default_rng(seed)
    mean = rng.standard_normal((n, 1))
    truth = mean + 0.3 * rng.standard_normal((n, 1))
    own = norm(mean, 0.3 * factor)
    return Marginals(truth, own.logpdf(truth), own.logcdf(truth), own.logsf(truth), mean)


def test_a_posterior_of_the_wrong_width_scores_as_the_right_one_and_tells_the_factor() -> None:
    scores, widths = zip(
        *(marginals(4000, factor).score(np.ones(4000), np.zeros(1), np.ones(1)) for factor in (1.0, 0.2)), strict=True
    )
    np.testing.assert_allclose(scores[0], scores[1], atol=0.03)
    np.testing.assert_allclose([w[0] for w in widths], [1.0, 5.0], rtol=0.07)


def test_a_score_is_the_mean_log_density_over_that_of_the_prior() -> None:
    own = marginals(5000)
    expected = np.mean(own.log_density[:, 0] - norm(0.0, 1.1).logpdf(own.truth[:, 0]))
    found, _ = own.score(np.ones(5000), np.zeros(1), np.full(1, 1.1))
    np.testing.assert_allclose(found, expected, atol=0.03)


def test_one_sample_that_a_posterior_excludes_does_not_decide() -> None:
    own = marginals(1000)
    far = own.truth.copy()
    far[0] = 50.0
    density = norm(own.mean, 0.3)
    spoilt = Marginals(far, density.logpdf(far), density.logcdf(far), density.logsf(far), own.mean)
    scores = [one.score(np.ones(1000), np.zeros(1), np.ones(1))[0][0] for one in (own, spoilt)]
    assert abs(scores[0] - scores[1]) < 1.5


@pytest.mark.oracle
def test_marginals_are_those_of_the_mixture_written_out() -> None:
    rows = samples(150, bend=0.5)
    theta = GLLiM(4, 1, max_iter=4, tol=0.0, random_state=0).fit(rows.spectra, rows.parameters).parameters_
    found = Marginals.of(theta, rows.spectra[:20], rows.parameters[:20])
    dense = theta.sigma_dense() + np.einsum("kdl,klm,kem->kde", theta.A, theta.Gamma, theta.A)
    for n in range(20):
        density = below = mean = total = 0.0
        for k in range(theta.n_components):
            gap = rows.spectra[n] - theta.A[k] @ theta.c[k] - theta.b[k]
            weight = (
                theta.pi[k] * np.exp(-0.5 * gap @ np.linalg.solve(dense[k], gap)) / np.sqrt(np.linalg.det(dense[k]))
            )
            gain = theta.Gamma[k] @ theta.A[k].T @ np.linalg.inv(dense[k])
            centre = (theta.c[k] + gain @ gap)[0]
            spread = np.sqrt((theta.Gamma[k] - gain @ theta.A[k] @ theta.Gamma[k])[0, 0])
            own = norm(centre, spread)
            density += weight * own.pdf(rows.parameters[n, 0])
            below += weight * own.cdf(rows.parameters[n, 0])
            mean, total = mean + weight * centre, total + weight
        np.testing.assert_allclose(found.log_density[n, 0], np.log(density / total), rtol=1e-6, atol=1e-8)
        np.testing.assert_allclose(found.mean[n, 0], mean / total, rtol=1e-8)
        np.testing.assert_allclose(np.exp(found.below[n, 0]), below / total, rtol=1e-6)
        np.testing.assert_allclose(found.z[n, 0], norm.ppf(below / total), rtol=1e-5, atol=1e-6)


def test_the_marginals_of_a_committee_are_the_weighted_mean_of_its_members() -> None:
    parts, weights = [marginals(seed=0), marginals(factor=2.0)], np.array([0.25, 0.75])
    both = Marginals.joined(parts, weights)
    for name in ("log_density", "below", "above"):
        expected = weights @ np.exp([getattr(part, name)[:, 0] for part in parts])
        np.testing.assert_allclose(np.exp(getattr(both, name)[:, 0]), expected)
    np.testing.assert_allclose(Marginals.weights_of([parts[0], parts[0]], np.ones(200)).sum(), 1.0)
