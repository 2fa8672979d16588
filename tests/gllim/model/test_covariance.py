"""The covariance structures, each against dense matrices."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from specinvert.gllim.core.arrays import Workspace
from specinvert.gllim.core.kernels import NEGLIGIBLE, normalize_rows
from specinvert.gllim.model.constraints import KINDS, STRUCTURES
from specinvert.gllim.model.covariance import Block
from specinvert.gllim.model.residuals import Expected
from specinvert.gllim.model.structure import SINGULAR, Structure, update_prior
from strategies import SEEDS, SIGMAS, assert_near, covariances


def compact(sigma: str, seed: int, n_components: int, n_bands: int) -> np.ndarray:
    """Random well-conditioned covariances in the structure's compact form."""
    rng = np.random.default_rng(seed)
    return {
        "iso": lambda: rng.uniform(0.5, 2.0, n_components),
        "diag": lambda: rng.uniform(0.5, 2.0, (n_components, n_bands)),
        "full": lambda: covariances(rng, n_components, n_bands),
    }[sigma]()


ANY = {"sigma": st.sampled_from(SIGMAS), "seed": SEEDS, "k": st.integers(1, 3), "d": st.integers(1, 7)}


def test_structures_are_looked_up_by_their_names() -> None:
    assert set(STRUCTURES) >= set(SIGMAS)
    assert all(structure.name == name for name, structure in STRUCTURES.items())


def test_a_structure_without_its_operations_cannot_be_made() -> None:
    class Unfinished(Structure):
        name = "unfinished"

    with pytest.raises(TypeError, match="abstract"):
        Unfinished()  # type: ignore[abstract]


@given(**ANY)
def test_dense_has_the_structure(sigma: str, seed: int, k: int, d: int) -> None:
    dense = STRUCTURES[sigma].dense(compact(sigma, seed, k, d), d)
    assert dense.shape == (k, d, d)
    np.testing.assert_array_equal(dense, dense.transpose(0, 2, 1))
    diagonals = np.diagonal(dense, axis1=1, axis2=2)
    if sigma != "full":
        np.testing.assert_array_equal(dense, diagonals[:, :, None] * np.eye(d))
    if sigma == "iso":
        np.testing.assert_array_equal(diagonals, np.repeat(diagonals[:, :1], d, axis=1))


@given(**ANY)
def test_solve_log_det_and_whiten_are_those_of_the_dense_matrices(sigma: str, seed: int, k: int, d: int) -> None:
    structure, small = STRUCTURES[sigma], compact(sigma, seed, k, d)
    dense = structure.dense(small, d)
    columns = np.random.default_rng(seed).normal(size=(k, d, 3))
    assert_near(structure.solve(small, columns), np.linalg.solve(dense, columns), 1e-12)
    assert_near(structure.log_det(small, d), np.linalg.slogdet(dense)[1], 1e-11)
    whitened = structure.whiten(small, columns)
    expected = columns.transpose(0, 2, 1) @ np.linalg.solve(dense, columns)
    assert_near(whitened.transpose(0, 2, 1) @ whitened, expected, 1e-12)


@given(**ANY)
def test_select_and_rescale_are_those_of_the_dense_matrices(sigma: str, seed: int, k: int, d: int) -> None:
    structure, small = STRUCTURES[sigma], compact(sigma, seed, k, d)
    dense, rng = structure.dense(small, d), np.random.default_rng(seed)
    bands = rng.permutation(d)[: rng.integers(1, d + 1)]
    kept, selected = structure.select(small, bands, d)
    chosen = kept.dense(selected, len(bands))
    np.testing.assert_array_equal(chosen, dense[:, bands[:, None], bands])
    scale = rng.uniform(0.1, 10.0, 1 if sigma == "iso" else d) * np.ones(d)
    kept, scaled = structure.rescale(small, scale)
    assert_near(kept.dense(scaled, d), dense * np.outer(scale, scale), 1e-14)
    assert kept.name == sigma


@given(**ANY, kind=st.sampled_from(["variance", "variances", "covariance"]))
def test_added_noise_is_that_of_the_dense_matrices_in_the_least_structure_that_holds_it(
    sigma: str, seed: int, k: int, d: int, kind: str
) -> None:
    structure, small, rng = STRUCTURES[sigma], compact(sigma, seed, k, d), np.random.default_rng(seed)
    noise = {"variance": np.array(2.0), "variances": rng.uniform(1.0, 2.0, d), "covariance": covariances(rng, 1, d)[0]}
    kept, noisy = structure.add_noise(small, noise[kind], d)
    added = noise[kind] if kind == "covariance" else noise[kind] * np.eye(d)
    assert_near(kept.dense(noisy, d), structure.dense(small, d) + added, 1e-14)
    least = {"variance": sigma, "variances": "diag" if sigma == "iso" else sigma, "covariance": "full"}
    assert kept.name == least[kind]


def test_an_iso_covariance_becomes_diagonal_under_unequal_scales() -> None:
    structure, scaled = STRUCTURES["iso"].rescale(np.ones(2), np.array([1.0, 2.0]))
    assert (structure.name, scaled.tolist()) == ("diag", [[1.0, 4.0], [1.0, 4.0]])


@given(**ANY)
def test_axes_turn_spectra_to_independent_variances(sigma: str, seed: int, k: int, d: int) -> None:
    structure, small = STRUCTURES[sigma], compact(sigma, seed, k, d)
    for (variances, turn), dense in zip(structure.axes(small, d), structure.dense(small, d), strict=True):
        vectors = np.eye(d) if turn is None else turn(np.eye(d))
        assert_near((vectors * variances) @ vectors.T, dense, 1e-12)


@pytest.mark.parametrize("kind", KINDS.values(), ids=KINDS)
def test_every_structure_has_its_parts(kind: type[Structure]) -> None:
    assert kind.name in KINDS
    assert kind.text
    assert kind.dims[0] == "component"
    structure = kind.of((0, 1, 0) if kind.needs_blocks else None)
    assert len(structure.moment_shape(2, 3)) == len(kind.dims)
    groups = structure.groups(3)
    assert groups is None or sorted(np.concatenate(groups)) == [0, 1, 2]


@given(**ANY, n=st.integers(0, 9))
def test_second_moments_are_weighted_sums_in_compact_form(sigma: str, seed: int, k: int, d: int, n: int) -> None:
    structure, rng = STRUCTURES[sigma], np.random.default_rng(seed)
    spectra, weights = rng.normal(size=(n, d)), rng.uniform(size=(n, k)) * rng.integers(0, 2, (n, k))
    expected = np.einsum("nk,nd,ne->kde", weights, spectra, spectra)
    found = np.zeros(structure.moment_shape(k, d))
    structure.add_second_moments(spectra, weights, found)
    diagonals = np.diagonal(expected, axis1=1, axis2=2)
    assert_near(found, {"full": expected, "diag": diagonals, "iso": diagonals.sum(axis=1)}[sigma], 1e-13)


@given(**ANY, size=st.integers(0, 3))
def test_the_residual_covariance_is_that_of_the_residuals(sigma: str, seed: int, k: int, d: int, size: int) -> None:
    structure, rng, n = STRUCTURES[sigma], np.random.default_rng(seed), 20
    x, y, maps = rng.normal(size=(k, n, size)), rng.normal(size=(n, d)), rng.normal(size=(k, d, size))
    r = rng.dirichlet(np.ones(n), k)  # (K, n), what each sample counts for
    x_mean, y_mean = np.einsum("kn,knl->kl", r, x), r @ y
    gap_x, gap_y = x - x_mean[:, None], y - y_mean[:, None]
    xx, xy = np.einsum("kn,knl,knm->klm", r, gap_x, gap_x), np.einsum("kn,knl,knd->kld", r, gap_x, gap_y)
    residual = gap_y - gap_x @ maps.transpose(0, 2, 1)
    expected = np.einsum("kn,knd,kne->kde", r, residual, residual)
    moments = np.zeros(structure.moment_shape(k, d))
    structure.add_second_moments(y, r.T, moments)
    found = structure.dense(structure.residual(moments, y_mean, maps, xy, xx), d)
    if sigma == "diag":
        expected = expected * np.eye(d)
    if sigma == "iso":
        expected = np.trace(expected, axis1=1, axis2=2)[:, None, None] * np.eye(d) / d
    assert_near(found, expected, 1e-11)


@given(**ANY, ratio=st.sampled_from([0.0, 1e-3, 0.9, 1.5]))
def test_clip_lifts_only_variances_below_the_floor(sigma: str, seed: int, k: int, d: int, ratio: float) -> None:
    structure, small = STRUCTURES[sigma], compact(sigma, seed, k, d)
    variance = np.random.default_rng(seed).uniform(0.5, 2.0, d)
    clipped = structure.clip(small, variance, ratio)
    floor = np.full(d, variance.mean()) if sigma == "iso" else variance
    relative = structure.dense(small, d) / np.sqrt(np.outer(floor, floor))
    values, vectors = np.linalg.eigh(relative)
    expected = (vectors * np.maximum(values, ratio)[:, None, :]) @ vectors.transpose(0, 2, 1)
    assert_near(structure.dense(clipped, d), expected * np.sqrt(np.outer(floor, floor)), 1e-12)
    if ratio <= values.min():
        np.testing.assert_array_equal(clipped, small)


@given(sigma=st.sampled_from(SIGMAS), seed=SEEDS, d=st.integers(2, 6))
def test_clip_gives_the_greatest_likelihood_above_the_floor(sigma: str, seed: int, d: int) -> None:
    structure, scatter = STRUCTURES[sigma], compact(sigma, seed, 1, d)
    variance, rng = np.random.default_rng(seed).uniform(0.5, 2.0, d), np.random.default_rng(seed)

    def expected_loss(sigma_hat: np.ndarray) -> float:
        dense = structure.dense(sigma_hat, d)
        return structure.log_det(sigma_hat, d)[0] + np.trace(np.linalg.solve(dense[0], structure.dense(scatter, d)[0]))

    best = structure.clip(scatter, variance, 0.9)
    for _ in range(5):
        step = compact(sigma, int(rng.integers(2**31)), 1, d)
        other = structure.clip(best + 0.1 * (step - best), variance, 0.9)
        assert expected_loss(other) >= expected_loss(best) - 1e-10


def test_singular_tells_what_float64_cannot_tell_from_zero(subtests: pytest.Subtests) -> None:
    for sigma in SIGMAS:
        for least, expected in [(1e-3, False), (1e-12, False), (1e-17, True), (0.0, True), (-1.0, True)]:
            with subtests.test(sigma=sigma, least=least):
                variance = np.array([2.0, 50.0, 0.01])
                diagonal = variance * np.array([1.0, 1.0, least])
                small = {
                    "iso": np.array([least * variance.mean()]),
                    "diag": diagonal[None],
                    "full": np.diag(diagonal)[None],
                }[sigma]
                assert STRUCTURES[sigma].singular(small, variance).tolist() == [expected]
                assert SINGULAR < 1e-12


@pytest.mark.parametrize("sigma", SIGMAS)
def test_nan_is_singular(sigma: str) -> None:
    shape = {"iso": (1,), "diag": (1, 1), "full": (1, 1, 1)}[sigma]
    if sigma == "full":
        with np.errstate(invalid="ignore"):
            assert STRUCTURES[sigma].singular(np.full(shape, np.nan), np.ones(1)).all()
    else:
        assert STRUCTURES[sigma].singular(np.full(shape, np.nan), np.ones(1)).all()


@pytest.mark.parametrize(("sigma", "count"), [("iso", 1), ("diag", 7), ("full", 28)])
def test_free_parameters_of_seven_bands(sigma: str, count: int) -> None:
    assert STRUCTURES[sigma].n_free(7) == count


def expected_of(regression: np.ndarray) -> Expected:
    """What may be expected of spectra on the maps ``regression`` (K, D, q) of standard regressors."""
    k, d, q = regression.shape
    second = np.eye(d) + np.einsum("kdq,keq->de", regression, regression) / k
    return Expected(np.ones(d), np.full(k, 1.0 / k), np.repeat(np.eye(q)[None], k, axis=0), lambda: second)


@given(**ANY, size=st.integers(0, 3), noise=st.sampled_from([1.0, 1e-8, 1e-12]), n=st.sampled_from([0, 1, 7, 200]))
def test_products_give_the_distance_with_latents_integrated_out(
    sigma: str, seed: int, k: int, d: int, size: int, noise: float, n: int
) -> None:
    rng, structure = np.random.default_rng(seed), STRUCTURES[sigma]
    small = noise * compact(sigma, seed, k, d)
    dense, maps, prior = structure.dense(small, d), rng.normal(size=(k, d, size)), covariances(rng, k, size)
    basis, root, log_det = update_prior(structure, small, maps, prior)
    regression, x = rng.normal(size=(k, d, 2)), np.column_stack([rng.normal(size=n), np.ones(n)])
    labels = np.arange(n) % k
    spectra = np.einsum("ndq,nq->nd", regression[labels], x) if n else np.zeros((0, d))
    spectra = spectra + np.sqrt(noise) * rng.normal(size=(n, d))
    log_joint = np.zeros((n, k))
    prepared = structure.log_joint(small, regression, basis, expected_of(regression))
    explained = prepared(spectra, x, log_joint, np.inf, Workspace())
    distance = -2.0 * log_joint

    values = np.linalg.svd(structure.whiten(small, maps @ np.linalg.cholesky(prior)), compute_uv=False)
    np.testing.assert_allclose(log_det, np.log1p(values**2).sum(axis=1), rtol=1e-9, atol=1e-9)
    for j in range(k):
        residual = spectra - x @ regression[j].T
        precision = structure.solve(small, maps)[j]
        inner = np.linalg.inv(np.linalg.inv(prior[j]) + maps[j].T @ precision)
        whiten_bands, whiten_latents = (np.linalg.inv(np.linalg.cholesky(c)) for c in (dense[j], prior[j]))
        stacked = np.concatenate([whiten_bands @ maps[j], whiten_latents])
        observed = np.concatenate([whiten_bands @ residual.T, np.zeros((size, n))])
        latent = np.linalg.lstsq(stacked, observed)[0].T
        direct = ((observed - stacked @ latent.T) ** 2).sum(axis=0)
        np.testing.assert_allclose(distance[:, j], direct, rtol=1e-5, atol=1e-7)
        np.testing.assert_allclose(explained[:, :size, j] @ root[j].T, latent, rtol=1e-5, atol=1e-7)
        assert_near(root[j] @ root[j].T, inner, 1e-3 if noise < 1e-10 else 1e-6)
    np.testing.assert_array_equal(root, np.tril(root))


@given(
    sigma=st.sampled_from(["iso", "diag", "full", "block"]),
    seed=SEEDS,
    k=st.integers(1, 6),
    d=st.sampled_from([1, 2, 5, 9, 40]),
    size=st.integers(0, 3),
    decades=st.integers(0, 14),
)
def test_what_is_left_out_of_reach_changes_no_bit_of_the_responsibilities(
    sigma: str, seed: int, k: int, d: int, size: int, decades: int
) -> None:
    rng, n = np.random.default_rng(seed), 400 if sigma in ("full", "block") else 30
    noise = 10.0 ** -rng.uniform(0.0, decades, k)
    if sigma == "block":
        structure: Structure = Block(rng.integers(3, size=d))
        small = structure.compact(compact("full", seed, k, d))
    else:
        structure, small = STRUCTURES[sigma], compact(sigma, seed, k, d)
    small = small * noise.reshape(-1, *[1] * (small.ndim - 1))
    maps, prior, centres = rng.normal(size=(k, d, size)), covariances(rng, k, size), rng.normal(size=(k, d, 1))
    basis, _, _ = update_prior(structure, small, maps, prior)
    labels = rng.integers(k, size=n)
    spectra = centres[labels, :, 0] + np.sqrt(noise[labels])[:, None] * rng.normal(size=(n, d))
    log_joint = structure.log_joint(small, centres, basis, expected_of(centres))
    log_prior, found = rng.normal(size=(1, k)).repeat(n, axis=0), []
    for reach in (NEGLIGIBLE, np.inf):
        weights, density = log_prior.copy(), np.empty(n)
        explained = log_joint(spectra, np.ones((n, 1)), weights, reach, Workspace()).copy()
        normalize_rows(weights, density)
        found.append((weights, density, np.where(weights[:, None] > 0.0, explained, 0.0)))
    for near, every in zip(*found, strict=True):
        np.testing.assert_array_equal(near, every)
