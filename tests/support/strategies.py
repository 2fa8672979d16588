"""Random problems for the core's tests, fits of them, and what two fits of one problem must share."""

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from hypothesis import strategies as st

import reference
from specinvert.gllim import Constraints, GLLiM, GLLiMParameters
from specinvert.gllim.em.source import ArrayChunks, Chunk
from specinvert.gllim.em.training import Settings, Training, train
from specinvert.gllim.posterior.forward import ForwardTerms
from specinvert.gllim.posterior.posterior import posterior_blocks

BARE = {"standardize": False, "reg_covar": 0.0, "tol": 0.0, "max_iter": 10}
"""Settings of the bare algorithm of the paper, ten iterations."""
SIGMAS = ("full", "diag", "iso")
GAMMAS = ("full", "diag", "iso")
SEEDS = st.integers(0, 2**32 - 1)


@dataclass(frozen=True, repr=False)
class Data:
    """A training set with responsibilities to start from; weights None are all one. ``made`` tells how."""

    spectra: np.ndarray
    parameters: np.ndarray
    responsibilities: np.ndarray
    weights: np.ndarray | None
    n_latent: int
    made: str

    def __repr__(self) -> str:
        return self.made

    @property
    def chunk(self) -> Chunk:
        weights = np.ones(len(self.spectra)) if self.weights is None else self.weights
        return Chunk(self.spectra, self.parameters, weights, self.responsibilities)

    def rows(self, select: Any) -> "Data":
        weights = None if self.weights is None else self.weights[select]
        own = {"spectra": self.spectra, "parameters": self.parameters, "responsibilities": self.responsibilities}
        return replace(self, weights=weights, **{name: array[select] for name, array in own.items()})


def make_data(
    seed: int,
    n_components: int = 3,
    n_bands: int = 6,
    n_parameters: int = 2,
    n_latent: int = 1,
    weights: str = "none",
    noise: float = 0.3,
    per_component: int = 40,
) -> Data:
    """Samples of K affine maps with noise, and soft responsibilities near the truth: no component degenerates."""
    rng = np.random.default_rng(seed)
    n, size = n_components * per_component, n_parameters + n_latent
    label = np.arange(n) % n_components
    parameters = 1.5 * rng.normal(size=(n_components, n_parameters))[label] + rng.normal(size=(n, n_parameters))
    x = np.concatenate([parameters, rng.normal(size=(n, n_latent))], axis=1)
    maps = rng.normal(size=(n_components, n_bands, size))[label]
    spectra = (maps @ x[:, :, None])[:, :, 0] + 2.0 * rng.normal(size=(n_components, n_bands))[label]
    spectra += noise * rng.uniform(0.5, 1.0, n_bands) * rng.normal(size=(n, n_bands))
    given = 0.8 * np.eye(n_components)[label] + 0.2 * rng.dirichlet(np.ones(n_components), n)
    kinds = {
        "none": None,
        "counts": rng.integers(0, 4, n).astype(float),
        "real": rng.uniform(0.2, 2.0, n),
    }
    made = f"{seed}, {n_components}, {n_bands}, {n_parameters}, {n_latent}, {weights!r}, {noise}, {per_component}"
    return Data(spectra, parameters, given, kinds[weights], n_latent, f"make_data({made})")


@st.composite
def data_sets(draw: st.DrawFn, per_component: int = 40, noise: float = 0.3) -> Data:
    """Shapes with their edges: one component, one band, no parameters, no latents; weights of all kinds."""
    n_parameters = draw(st.integers(0, 3), "L_t")
    n_bands = draw(st.integers(1 if n_parameters else 2, 8), "D")
    n_latent = draw(st.integers(0 if n_parameters else 1, min(4, n_bands - 1)), "L_w")
    return make_data(
        draw(SEEDS, "seed"),
        draw(st.integers(1, 4), "K"),
        n_bands,
        n_parameters,
        n_latent,
        draw(st.sampled_from(["none", "counts", "real"]), "weights"),
        noise,
        per_component,
    )


@st.composite
def structures(draw: st.DrawFn) -> dict[str, Any]:
    """Settings of Sigma, Gamma and pi."""
    return {
        "sigma": draw(st.sampled_from(SIGMAS)),
        "tied_sigma": draw(st.booleans()),
        "gamma": draw(st.sampled_from(GAMMAS)),
        "tied_gamma": draw(st.booleans()),
        "tied_pi": draw(st.booleans()),
    }


def fit_estimator(data: Data, given: bool = True, **settings: Any) -> GLLiM:
    """The estimator, from the responsibilities of the data where ``given``."""
    settings.setdefault("n_components", data.responsibilities.shape[1])
    model = GLLiM(n_latent=data.n_latent, **settings)
    parameters = data.parameters if data.parameters.shape[1] else None
    return model.fit(data.spectra, parameters, data.weights, data.responsibilities if given else None)


def fit_chunks(chunks: Chunk | list[Chunk], n_latent: int, given: bool = True, **settings: Any) -> Training:
    """Training on chunks, from their responsibilities where ``given``."""
    first = chunks if isinstance(chunks, Chunk) else chunks[0]
    n_given = first.responsibilities.shape[1] if given and first.responsibilities is not None else None
    settings = {"n_components": n_given or 50, "n_latent": n_latent, **settings}
    return train(ArrayChunks(chunks), Settings(**settings), n_given)


def fit_reference(
    data: Data, structure: dict[str, Any], n_iter: int = 10, **moments: Any
) -> tuple[reference.Theta, list[float]]:
    """Theta and log-likelihoods of the dense implementation."""
    theta, log_likelihoods, _ = reference.fit(
        data.spectra,
        data.parameters,
        data.responsibilities,
        n_latent=data.n_latent,
        n_iter=n_iter,
        weights=data.weights,
        ridge=0.0,
        **structure,
        **moments,
    )
    return theta, log_likelihoods


def random_theta(
    seed: int, n_components: int, n_bands: int, n_parameters: int, n_latent: int, sigma: str = "full"
) -> GLLiMParameters:
    """A well-conditioned theta, the latents' moments arbitrary."""
    rng = np.random.default_rng(seed)
    size = n_parameters + n_latent
    gamma = np.zeros((n_components, size, size))
    for block in (slice(0, n_parameters), slice(n_parameters, size)):
        gamma[:, block, block] = covariances(rng, n_components, gamma[0, block, block].shape[0])
    noise = {
        "iso": lambda: rng.uniform(0.5, 2.0, n_components),
        "diag": lambda: rng.uniform(0.5, 2.0, (n_components, n_bands)),
        "full": lambda: covariances(rng, n_components, n_bands),
    }[sigma]()
    return GLLiMParameters(
        pi=rng.dirichlet(5.0 * np.ones(n_components)),
        c=rng.normal(size=(n_components, size)),
        Gamma=gamma,
        A=rng.normal(size=(n_components, n_bands, size)),
        b=rng.normal(size=(n_components, n_bands)),
        Sigma=noise,
        n_latent=n_latent,
        constraints=Constraints(sigma=sigma),
    )


def covariances(rng: np.random.Generator, n: int, size: int) -> np.ndarray:
    """Random covariances (n, size, size) with eigenvalues not far from one."""
    root = rng.normal(size=(n, size, size)) / np.sqrt(max(size, 1))
    return 0.5 * np.eye(size) + root @ root.transpose(0, 2, 1)


def dense(theta: GLLiMParameters) -> reference.Theta:
    """The same theta for the reference."""
    return reference.Theta(theta.pi, theta.c, theta.Gamma, theta.A, theta.b, theta.sigma_dense(), theta.n_latent)


@dataclass(frozen=True)
class Mixture:
    """The posterior mixture of n spectra, NaN for rows without a band."""

    weights: np.ndarray
    means: np.ndarray
    covariances: np.ndarray
    mean: np.ndarray
    covariance: np.ndarray
    variance: np.ndarray
    log_evidence: np.ndarray


def posterior_of(theta: GLLiMParameters, spectra: np.ndarray) -> Mixture:
    """The posteriors of all rows in one."""
    n, k, size = len(spectra), theta.n_components, theta.A.shape[2]
    shapes = [(n, k), (n, k, size), (n, k, size, size), (n, size), (n, size, size), (n, size), (n,)]
    found = Mixture(*(np.full(shape, np.nan) for shape in shapes))
    for block in posterior_blocks(ForwardTerms.of(theta), spectra, every_component=True):
        rows, part = block.rows, block.posterior
        whole = part.components()
        found.weights[rows], found.means[rows] = whole.weights, whole.means
        found.covariances[rows], found.log_evidence[rows] = whole.covariances, part.log_evidence
        found.mean[rows], found.variance[rows] = part.moments()
        found.covariance[rows] = part.moments(covariance=True)[1]
    return found


def comparable(theta: GLLiMParameters | reference.Theta) -> dict[str, np.ndarray]:
    """What two fits of one problem must share, the rotation and signs of A_w being free."""
    n_t = theta.A.shape[2] - theta.n_latent
    maps_w, gamma_w = theta.A[:, :, n_t:], theta.Gamma[:, n_t:, n_t:]
    return {
        "pi": theta.pi,
        "c": theta.c,
        "Gamma": theta.Gamma,
        "A_t": theta.A[:, :, :n_t],
        "A_w Gamma_w A_w'": maps_w @ gamma_w @ maps_w.transpose(0, 2, 1),
        "b + A_w c_w": theta.b + np.einsum("kdl,kl->kd", maps_w, theta.c[:, n_t:]),
        "Sigma": theta.Sigma if isinstance(theta, reference.Theta) else theta.sigma_dense(),
    }


def assert_same_theta(
    theta: GLLiMParameters | reference.Theta, expected: GLLiMParameters | reference.Theta, rtol: float
) -> None:
    """Every comparable quantity, relative to its largest entry."""
    found, wanted = comparable(theta), comparable(expected)
    for name, value in found.items():
        assert_near(value, wanted[name], rtol, name)


def assert_near(value: Any, expected: Any, rtol: float, name: str = "") -> None:
    """Arrays that differ by no more than rtol of the largest entry expected; NaN where NaN is expected."""
    value, expected = np.asarray(value), np.asarray(expected)
    assert value.shape == expected.shape, f"{name}: {value.shape} is not {expected.shape}"
    size = np.nanmax(np.abs(expected), initial=0.0)
    np.testing.assert_allclose(value, expected, rtol=0, atol=rtol * size, err_msg=name)


def without_responsibilities(chunk: Chunk) -> Chunk:
    """The chunk, to start from a named start."""
    return replace(chunk, responsibilities=None)
