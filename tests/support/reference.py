"""Hybrid GLLiM written plainly from the paper (gllim.tex), for comparing the package with.

Dense and naive on purpose: D x D covariance matrices are formed and solved with, component by component.
Labels eq:... are the paper's; equations without one are named by their step. Nothing imports specinvert.

K components, D bands, L = L_t + L_w: observed parameters t first, latents w last.
No component is ever removed: a degenerate one raises LinAlgError.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import logsumexp, ndtr, softmax

Array = NDArray[np.float64]


@dataclass
class Theta:
    """The parameters of eq:theta-def, block structure of eq:SOLVA_decomp."""

    pi: Array  # (K,)
    c: Array  # (K, L)
    Gamma: Array  # (K, L, L)
    A: Array  # (K, D, L)
    b: Array  # (K, D)
    Sigma: Array  # (K, D, D), dense whatever its structure
    n_latent: int  # L_w


@dataclass
class Constraints:
    """Structures ("full", "diag", "iso") and ties of the covariances and weights, and the oracle's ridge.

    The structure of Sigma may be a mask (D, D) of the entries that are not zero. It is shrunk towards ``pooled`` I.
    """

    sigma: str | NDArray[np.bool_]
    tied_sigma: bool
    gamma: str
    tied_gamma: bool
    tied_pi: bool
    ridge: float
    shrinkage: float = 0.0
    pooled: float = 0.0


def log_normal(x: Array, mean: Array, cov: Array) -> Array:
    """log N(x; mean, cov) for rows of x (N, P); mean is (P,) or (N, P). P may be 0."""
    sign, log_det = np.linalg.slogdet(cov)
    if not (sign > 0 and np.isfinite(log_det)):
        raise np.linalg.LinAlgError("a covariance matrix is singular or not positive definite")
    u = x - mean
    mahalanobis = np.sum(u * np.linalg.solve(cov, u.T).T, axis=1)
    return -0.5 * (x.shape[1] * np.log(2 * np.pi) + log_det + mahalanobis)


def _two_dim(x: Any, n_columns: int | None = None) -> Array:
    array: Array = np.asarray(x, dtype=np.float64)
    array = array[:, None] if array.ndim == 1 else array
    assert array.ndim == 2 and (n_columns is None or array.shape[1] == n_columns), array.shape  # noqa: PT018
    return array


def log_component_joint(theta: Theta, Y: Array, T: Array) -> Array:
    """log pi_k p(y_n, t_n | Z_n = k), (N, K): the numerators of eq:SOLVA_EZstep."""
    K, D, L = theta.A.shape
    L_t = L - theta.n_latent
    Y, T = _two_dim(Y, D), _two_dim(T, L_t)
    out = np.empty((len(Y), K))
    for k in range(K):
        A_t, A_w = theta.A[k, :, :L_t], theta.A[k, :, L_t:]
        c_t, c_w = theta.c[k, :L_t], theta.c[k, L_t:]
        Gamma_t, Gamma_w = theta.Gamma[k, :L_t, :L_t], theta.Gamma[k, L_t:, L_t:]
        Sigma_prime = theta.Sigma[k] + A_w @ Gamma_w @ A_w.T  # eq:sigma-prime
        mean_y = T @ A_t.T + A_w @ c_w + theta.b[k]  # eq:model_ytwzbis
        out[:, k] = np.log(theta.pi[k]) + log_normal(T, c_t, Gamma_t) + log_normal(Y, mean_y, Sigma_prime)
    return out


def log_joint(theta: Theta, Y: Array, T: Array) -> Array:
    """log p(y_n, t_n), (N,): the log of the denominator of eq:SOLVA_EZstep."""
    return logsumexp(log_component_joint(theta, Y, T), axis=1)


def responsibilities(theta: Theta, Y: Array, T: Array) -> Array:
    """r_nk, (N, K): eq:SOLVA_EZstep."""
    return softmax(log_component_joint(theta, Y, T), axis=1)


def latent_posterior(theta: Theta, Y: Array, T: Array) -> tuple[Array, Array]:
    """mu_nk^w (N, K, L_w) and S_k^w (K, L_w, L_w): eq:SOLVA_EWstep3 and the equation after it."""
    (K, D, L), L_w = theta.A.shape, theta.n_latent
    L_t = L - L_w
    Y, T = _two_dim(Y, D), _two_dim(T, L_t)
    mu, S = np.empty((len(Y), K, L_w)), np.empty((K, L_w, L_w))
    for k in range(K):
        A_t, A_w = theta.A[k, :, :L_t], theta.A[k, :, L_t:]
        Sigma_inv = np.linalg.inv(theta.Sigma[k])
        Gamma_w_inv = np.linalg.inv(theta.Gamma[k, L_t:, L_t:])
        S[k] = np.linalg.inv(Gamma_w_inv + A_w.T @ Sigma_inv @ A_w)
        for n in range(len(Y)):
            residual = Y[n] - A_t @ T[n] - theta.b[k]
            mu[n, k] = S[k] @ (A_w.T @ Sigma_inv @ residual + Gamma_w_inv @ theta.c[k, L_t:])
    return mu, S


def constrain(M: Array, structure: str | NDArray[np.bool_], tied: bool, share: Array, ridge: float = 0.0) -> Array:
    """Constraints after eq:SOLVA_Sigmak on unconstrained M (K, P, P), ridge before tie; share is r_k / N."""
    K, P, _ = M.shape
    out = np.empty_like(M)
    for k in range(K):
        if isinstance(structure, np.ndarray):
            out[k] = np.where(structure, M[k], 0.0)
        elif P == 0 or structure == "full":
            out[k] = M[k]
        elif structure == "diag":
            out[k] = np.diag(np.diag(M[k]))
        elif structure == "iso":
            out[k] = np.trace(M[k]) * np.eye(P) / P
        else:
            raise ValueError(structure)
        out[k] = out[k] + ridge * np.eye(P)
    if tied:
        out[:] = sum(share[k] * out[k] for k in range(K))
    return out


def m_gmm_step(r: Array, T: Array, to: Constraints) -> tuple[Array, Array, Array]:
    """M-GMM-step: pi, c_t, Gamma_t from r (N, K), sample weights included in r."""
    K, L_t = r.shape[1], T.shape[1]
    r_k = r.sum(axis=0)
    share = r_k / r.sum()
    if np.any(r_k < L_t + 2):
        raise np.linalg.LinAlgError("a component holds fewer than L_t + 2 samples")
    pi = np.full(K, 1 / K) if to.tied_pi else share
    c_t, M = np.empty((K, L_t)), np.empty((K, L_t, L_t))
    for k in range(K):
        c_t[k] = r[:, k] @ T / r_k[k]
        u = T - c_t[k]
        M[k] = (r[:, k, None] * u).T @ u / r_k[k]
    return pi, c_t, constrain(M, to.gamma, to.tied_gamma, share, to.ridge)


def _assemble(
    pi: Array, c_t: Array, Gamma_t: Array, A: Array, b: Array, Sigma: Array, c_w: Array, Gamma_w: Array
) -> Theta:
    """Theta with the blocks of eq:SOLVA_decomp."""
    K, L_t, L_w = len(pi), c_t.shape[1], c_w.shape[1]
    Gamma = np.zeros((K, L_t + L_w, L_t + L_w))
    Gamma[:, :L_t, :L_t] = Gamma_t
    Gamma[:, L_t:, L_t:] = Gamma_w
    return Theta(pi, np.concatenate([c_t, c_w], axis=1), Gamma, A, b, Sigma, L_w)


def m_step(r: Array, Y: Array, T: Array, mu: Array, S_w: Array, c_w: Array, Gamma_w: Array, to: Constraints) -> Theta:
    """M-GMM-step and M-mapping-step of the general hybrid GLLiM-EM; r includes the sample weights."""
    D, K, L_t, L_w = Y.shape[1], r.shape[1], T.shape[1], c_w.shape[1]
    pi, c_t, Gamma_t = m_gmm_step(r, T, to)
    r_k = r.sum(axis=0)
    A, b, M = np.empty((K, D, L_t + L_w)), np.empty((K, D)), np.empty((K, D, D))
    for k in range(K):
        share = r[:, k] / r_k[k]  # r_nk / r_k
        x = np.concatenate([T, mu[:, k]], axis=1)  # x~_nk = [t_n; mu_nk^w]
        x_k, y_k = share @ x, share @ Y
        X_k = (np.sqrt(share)[:, None] * (x - x_k)).T  # X~_k, L x N
        Y_k = (np.sqrt(share)[:, None] * (Y - y_k)).T  # Y~_k, D x N
        S_x = np.zeros((L_t + L_w, L_t + L_w))
        S_x[L_t:, L_t:] = S_w[k]
        A[k] = np.linalg.solve(S_x + X_k @ X_k.T, X_k @ Y_k.T).T  # eq:Ak_up
        b[k] = share @ (Y - x @ A[k].T)
        u, A_w = Y - x @ A[k].T - b[k], A[k, :, L_t:]
        M[k] = A_w @ S_w[k] @ A_w.T + (share[:, None] * u).T @ u  # eq:SOLVA_Sigmak
    Sigma = constrain(M, to.sigma, to.tied_sigma, r_k / r.sum(), to.ridge)
    if to.shrinkage:
        nu = to.shrinkage / (1 - to.shrinkage) * r.sum() / K
        for k in range(K):
            own = r.sum() / K if to.tied_sigma else r_k[k]
            Sigma[k] = (own * Sigma[k] + nu * to.pooled * np.eye(D)) / (own + nu)
    return _assemble(pi, c_t, Gamma_t, A, b, Sigma, c_w, Gamma_w)


def marginal_m_step(r: Array, Y: Array, T: Array, c_w: Array, Gamma_w: Array, to: Constraints) -> Theta:
    """M-GMM-, M-regression- and M-residual-steps of Appendix B (app:marginal), without its stray /N.

    Sigma is isotropic and distinct. Appendix B has c_w = 0, Gamma_w = I; for others A_w is such that
    A_w Gamma_w A_w' is unchanged and b such that A_w c_w + b is the intercept of the regression.
    """
    D, K, L_t, L_w = Y.shape[1], r.shape[1], T.shape[1], c_w.shape[1]
    assert 0 < L_w < D
    pi, c_t, Gamma_t = m_gmm_step(r, T, to)
    A, b, Sigma = np.empty((K, D, L_t + L_w)), np.empty((K, D)), np.empty((K, D, D))
    for k in range(K):
        share = r[:, k] / r[:, k].sum()
        T_k = (np.sqrt(share)[:, None] * (T - share @ T)).T  # T~_k, L_t x N
        Y_k = (np.sqrt(share)[:, None] * (Y - share @ Y)).T
        A_t = np.linalg.solve(T_k @ T_k.T, T_k @ Y_k.T).T  # M-regression-step
        intercept = share @ (Y - T @ A_t.T)
        u = np.sqrt(share)[:, None] * (Y - T @ A_t.T - intercept)  # rows u_kn
        lam, U = np.linalg.eigh(u.T @ u)  # C_k; ascending order
        lam, U = lam[::-1], U[:, ::-1]
        sigma2 = lam[L_w:].sum() / (D - L_w)  # M-residual-step
        A_w = U[:, :L_w] * np.sqrt(np.maximum(lam[:L_w] - sigma2, 0))  # U (Lambda - sigma2 I)^(1/2)
        A_w = A_w @ np.linalg.inv(np.linalg.cholesky(Gamma_w[k]))
        A[k] = np.concatenate([A_t, A_w], axis=1)
        b[k] = intercept - A_w @ c_w[k]
        Sigma[k] = sigma2 * np.eye(D)  # no ridge: the oracle adds it to Gamma_t only in this step
    return _assemble(pi, c_t, Gamma_t, A, b, Sigma, c_w, Gamma_w)


def pooled_variance(Y: Array, T: Array, w: Array) -> float:
    """Mean variance of the residuals of one affine map, all bands together."""
    X = np.sqrt(w)[:, None] * np.column_stack([T, np.ones(len(T))])
    Z = np.sqrt(w)[:, None] * Y
    return float(np.sum((Z - X @ np.linalg.lstsq(X, Z, rcond=None)[0]) ** 2) / w.sum() / Y.shape[1])


def log_prior(Sigma: Array, shrinkage: float, pooled: float, total: float) -> float:
    """Inverse Wishart log-density of Sigma (K, D, D) with mode near pooled I, up to a constant; total is N."""
    nu = shrinkage / (1 - shrinkage) * total / len(Sigma)
    return sum(-0.5 * nu * (np.linalg.slogdet(S)[1] + pooled * np.trace(np.linalg.inv(S))) for S in Sigma)


def fit(
    Y: Array,
    T: Array,
    R0: Array,
    *,
    n_latent: int = 0,
    sigma: str | NDArray[np.bool_] = "iso",
    tied_sigma: bool = False,
    gamma: str = "full",
    tied_gamma: bool = False,
    tied_pi: bool = False,
    n_iter: int = 10,
    weights: Array | None = None,
    latent_mean: Array | None = None,
    latent_covariance: Array | None = None,
    ridge: float = 0.0,
    shrinkage: float = 0.0,
) -> tuple[Theta, list[float], Array]:
    """General hybrid GLLiM-EM from responsibilities R0: theta, log-likelihoods, responsibilities.

    n_iter times an M-step then an E-step, after a marginal M-step and an E-step where n_latent > 0.
    loglik[i] is sum_n weights_n log p(y_n, t_n) after iteration i. weights are frequencies.
    """
    Y, T, R = _two_dim(Y), _two_dim(T), np.asarray(R0, dtype=np.float64)
    (N, K), L_w = R.shape, n_latent
    w = np.ones(N) if weights is None else np.asarray(weights, dtype=np.float64)
    c_w = np.zeros((K, L_w)) if latent_mean is None else np.asarray(latent_mean)
    Gamma_w = np.tile(np.eye(L_w), (K, 1, 1)) if latent_covariance is None else np.asarray(latent_covariance)
    to = Constraints(
        sigma, tied_sigma, gamma, tied_gamma, tied_pi, ridge, shrinkage, pooled_variance(Y, _two_dim(T), w)
    )
    mu, S_w = np.empty((N, K, 0)), np.empty((K, 0, 0))
    if L_w > 0:
        theta = marginal_m_step(w[:, None] * R, Y, T, c_w, Gamma_w, to)
        mu, S_w = latent_posterior(theta, Y, T)
        R = responsibilities(theta, Y, T)
    loglik = []
    for _ in range(n_iter):
        theta = m_step(w[:, None] * R, Y, T, mu, S_w, c_w, Gamma_w, to)
        mu, S_w = latent_posterior(theta, Y, T)
        R = responsibilities(theta, Y, T)
        loglik.append(float(w @ log_joint(theta, Y, T)))
    return theta, loglik, R


def inverse_regression(theta: Theta, X: Array) -> Array:
    """E[y | x], (N, D), x = [t; w]: eq:JGMM_forward_exp."""
    K, _, L = theta.A.shape
    X = _two_dim(X, L)
    logs = [np.log(theta.pi[k]) + log_normal(X, theta.c[k], theta.Gamma[k]) for k in range(K)]
    weight = softmax(np.stack(logs, axis=1), axis=1)
    return sum(weight[:, [k]] * (X @ theta.A[k].T + theta.b[k]) for k in range(K))


def simulate(theta: Theta, T: Array) -> Array:
    """E[y | t], (N, D): eq:JGMM_forward_exp for the model of eq:model_ytwzbis, w integrated out."""
    L_t = theta.A.shape[2] - theta.n_latent
    c_w, A_w = theta.c[:, L_t:], theta.A[:, :, L_t:]
    b = np.stack([theta.b[k] + A_w[k] @ c_w[k] for k in range(len(theta.pi))])
    c_t, Gamma_t, A_t = theta.c[:, :L_t], theta.Gamma[:, :L_t, :L_t], theta.A[:, :, :L_t]
    return inverse_regression(Theta(theta.pi, c_t, Gamma_t, A_t, b, theta.Sigma, 0), T)


def forward_parameters(theta: Theta) -> Theta:
    """theta* of eq:thetastar-def, from eq:GLLiMtoGLLimStar on; A* is (K, L, D), Sigma* (K, L, L)."""
    stars = []
    for c, Gamma, A, b, Sigma in zip(theta.c, theta.Gamma, theta.A, theta.b, theta.Sigma, strict=True):
        Gamma_inv, Sigma_inv = np.linalg.inv(Gamma), np.linalg.inv(Sigma)
        c_star = A @ c + b
        Gamma_star = Sigma + A @ Gamma @ A.T
        Sigma_star = np.linalg.inv(Gamma_inv + A.T @ Sigma_inv @ A)
        A_star = Sigma_star @ A.T @ Sigma_inv
        b_star = Sigma_star @ (Gamma_inv @ c - A.T @ Sigma_inv @ b)
        stars.append((c_star, Gamma_star, A_star, b_star, Sigma_star))  # pi* = pi
    c, Gamma, A, b, Sigma = (np.stack(star) for star in zip(*stars, strict=True))
    return Theta(theta.pi, c, Gamma, A, b, Sigma, theta.n_latent)


def posterior(theta: Theta, Y: Array, noise_cov: Array | None = None) -> dict[str, Array]:
    """The mixture p(x | y) of eq:JGMM_inverse_map, its mean eq:JGMM_inverse_exp and covariance, log p(y).

    NaN bands are dropped for their row only; all NaN gives NaN. noise_cov (D, D) is added to every Sigma_k.
    """
    K, D, L = theta.A.shape
    Y, N = _two_dim(Y, D), len(Y)
    Sigma = theta.Sigma if noise_cov is None else theta.Sigma + np.asarray(noise_cov)
    out = {"weights": np.full((N, K), np.nan), "log_evidence": np.full(N, np.nan)}
    out |= {"component_means": np.full((N, K, L), np.nan), "component_cov": np.full((N, K, L, L), np.nan)}
    out |= {"mean": np.full((N, L), np.nan), "cov": np.full((N, L, L), np.nan)}
    valid = ~np.isnan(Y)
    for v in np.unique(valid[valid.any(axis=1)], axis=0):  # one theta* for each pattern of valid bands
        rows = np.flatnonzero((valid == v).all(axis=1))
        y = Y[np.ix_(rows, v)]
        A_v, b_v, Sigma_v = theta.A[:, v], theta.b[:, v], Sigma[:, v][:, :, v]
        star = forward_parameters(Theta(theta.pi, theta.c, theta.Gamma, A_v, b_v, Sigma_v, theta.n_latent))
        logs = np.empty((len(rows), K))
        for k in range(K):
            logs[:, k] = np.log(star.pi[k]) + log_normal(y, star.c[k], star.Gamma[k])
            out["component_means"][rows, k] = y @ star.A[k].T + star.b[k]
            out["component_cov"][rows, k] = star.Sigma[k]
        out["weights"][rows] = softmax(logs, axis=1)
        out["log_evidence"][rows] = logsumexp(logs, axis=1)
    for n in np.flatnonzero(valid.any(axis=1)):
        alpha, m = out["weights"][n], out["component_means"][n]
        out["mean"][n] = sum(alpha[k] * m[k] for k in range(K))  # eq:JGMM_inverse_exp
        u = m - out["mean"][n]
        out["cov"][n] = sum(alpha[k] * (out["component_cov"][n, k] + np.outer(u[k], u[k])) for k in range(K))
    return out


def _condition(mean: Array, cov: Array, given: Array, of: Array, on: Array) -> tuple[Array, Array]:
    """Mean and covariance of the entries ``of`` of a Gaussian vector, given its entries ``on``."""
    gain = np.linalg.solve(cov[np.ix_(on, on)], cov[np.ix_(on, of)]).T
    return mean[of] + gain @ (given[on] - mean[on]), cov[np.ix_(of, of)] - gain @ cov[np.ix_(on, of)]


def conditional(theta: Theta, y: Array, noise_cov: Array, known: Array) -> dict[str, Array]:
    """p(what is not known | y, what is known) of one spectrum, by conditioning each joint Gaussian of [x; y].

    y (D,) and known (L_t,) are NaN where missing; noise_cov (D, D) is added to Sigma. Gives weights (K,), means (K, r)
    and covariances (K, r, r) over the unknown entries of x, squared distances (K,) of y, and log p(y | known).
    """
    K, _, L = theta.A.shape
    given = np.concatenate([known, np.full(theta.n_latent, np.nan), y])
    observed, unknown = np.flatnonzero(~np.isnan(given)), np.flatnonzero(np.isnan(given[:L]))
    s, bands = observed[observed < L], observed[observed >= L]
    log_joint, log_known = np.empty((2, K))
    found: dict[str, list[Array]] = {"means": [], "covariances": [], "distances": []}
    for k in range(K):
        A, Gamma = theta.A[k], theta.Gamma[k]
        mean = np.concatenate([theta.c[k], A @ theta.c[k] + theta.b[k]])
        cov = np.block([[Gamma, Gamma @ A.T], [A @ Gamma, theta.Sigma[k] + noise_cov + A @ Gamma @ A.T]])
        log_joint[k] = (
            np.log(theta.pi[k]) + log_normal(given[None, observed], mean[observed], cov[np.ix_(observed, observed)])[0]
        )
        log_known[k] = np.log(theta.pi[k]) + log_normal(given[None, s], mean[s], cov[np.ix_(s, s)])[0]

        m, S = _condition(mean, cov, given, unknown, observed)
        y_mean, y_cov = _condition(mean, cov, given, bands, s)
        gap = given[bands] - y_mean
        found["means"].append(m)
        found["covariances"].append(S)
        found["distances"].append(np.asarray(gap @ np.linalg.solve(y_cov, gap)))
    return {
        **{name: np.array(values) for name, values in found.items()},
        "weights": softmax(log_joint),
        "log_evidence": np.asarray(logsumexp(log_joint) - logsumexp(log_known)),
    }


def predicted(theta: Theta, y: Array, noise_cov: Array, known: Array, window: Array) -> dict[str, Array]:
    """p(the bands of ``window`` | the others, what is known) of one spectrum, conditioning each joint Gaussian.

    Arguments as of :func:`conditional`. Gives mean (m,) and variance (m,) of the mixture, ``below`` (m,) its
    distribution function at y, log_density of y there, and log_others, log p(the other bands | known).
    """
    others = y.copy()
    others[window] = np.nan
    rest = conditional(theta, others, noise_cov, known)
    whole = conditional(theta, y, noise_cov, known)
    given = np.concatenate([known, np.full(theta.n_latent, np.nan), others])
    observed, L = np.flatnonzero(~np.isnan(given)), theta.A.shape[2]
    means, variances = np.empty((2, len(theta.pi), len(window)))
    for k in range(len(theta.pi)):
        A, Gamma = theta.A[k], theta.Gamma[k]
        mean = np.concatenate([theta.c[k], A @ theta.c[k] + theta.b[k]])
        cov = np.block([[Gamma, Gamma @ A.T], [A @ Gamma, theta.Sigma[k] + noise_cov + A @ Gamma @ A.T]])
        means[k], own = _condition(mean, cov, given, L + window, observed)
        variances[k] = np.diagonal(own)
    w = rest["weights"]
    return {
        "mean": w @ means,
        "variance": w @ (variances + (means - w @ means) ** 2),
        "below": w @ ndtr((y[window] - means) / np.sqrt(variances)),
        "log_density": whole["log_evidence"] - rest["log_evidence"],
        "log_others": rest["log_evidence"],
    }


def to_joint_gmm(theta: Theta) -> tuple[Array, Array, Array]:
    """rho (K,), m (K, L + D), V (K, L + D, L + D) of the mixture on [x; y]: eq:JGMMtoGLM."""
    m, V = [], []
    for c, Gamma, A, b, Sigma in zip(theta.c, theta.Gamma, theta.A, theta.b, theta.Sigma, strict=True):
        m.append(np.concatenate([c, A @ c + b]))
        V.append(np.block([[Gamma, Gamma @ A.T], [A @ Gamma, Sigma + A @ Gamma @ A.T]]))
    return theta.pi.copy(), np.stack(m), np.stack(V)


def from_joint_gmm(rho: Array, m: Array, V: Array, n_parameters: int, n_latent: int = 0) -> Theta:
    """Theta from the mixture on [x; y], x the first n_parameters + n_latent entries: eq:GLMtoJGMM."""
    L = n_parameters + n_latent
    A, b, Sigma = [], [], []
    for m_k, V_k in zip(m, V, strict=True):
        V_xx, V_xy, V_yy = V_k[:L, :L], V_k[:L, L:], V_k[L:, L:]
        A.append(V_xy.T @ np.linalg.inv(V_xx))
        b.append(m_k[L:] - V_xy.T @ np.linalg.inv(V_xx) @ m_k[:L])
        Sigma.append(V_yy - V_xy.T @ np.linalg.inv(V_xx) @ V_xy)
    c, Gamma = m[:, :L].copy(), V[:, :L, :L].copy()
    return Theta(np.array(rho), c, Gamma, np.stack(A), np.stack(b), np.stack(Sigma), n_latent)


def n_free_parameters(
    K: int,
    D: int,
    L_t: int,
    L_w: int,
    sigma: str,
    tied_sigma: bool,
    gamma: str,
    tied_gamma: bool,
    tied_pi: bool,
) -> int:
    """D(theta) of the BIC section; for iso and equal Sigma it is the paper's formula."""

    def covariance(structure: str, P: int) -> int:
        return {"full": P * (P + 1) // 2, "diag": P, "iso": min(P, 1)}[structure]

    n_sigma = covariance(sigma, D) * (1 if tied_sigma else K)
    n_gamma = covariance(gamma, L_t) * (1 if tied_gamma else K)
    return K * D * (L_t + L_w + 1) + K * L_t + n_gamma + (0 if tied_pi else K - 1) + n_sigma
