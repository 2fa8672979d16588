"""The posterior predictive check: measured spectra beside what the model predicts of each band from the others."""

from functools import cache
from typing import Any

import dask.array as da
import numpy as np
import pytest
import xarray as xr

import reference
from labelled import QUICK, WAVELENGTHS, assert_close, fitted, make_cube, make_training, make_truth, refuses
from specinvert import GLLiMInverter
from specinvert.figures import plot_check, plot_spectrum, write_report
from specinvert.inverter import explain, inversion_of, predictive
from specinvert.scores import BY_BAND, BY_WINDOW, check_findings, windows_of
from strategies import dense


@cache
def drawn(n: int = 2000) -> xr.DataArray:
    """Spectra drawn from the density of ``fitted(1)``."""
    model, rng = fitted(1).model_, np.random.default_rng(3)
    theta = model.theta
    label = rng.choice(theta.n_components, n, p=theta.pi)
    root = np.linalg.cholesky(theta.Gamma)[label]
    x = theta.c[label] + np.einsum("nij,nj->ni", root, rng.normal(size=(n, root.shape[1])))
    spectra = np.einsum("ndl,nl->nd", theta.A[label], x) + theta.b[label]
    spectra += np.sqrt(theta.Sigma[label])[:, None] * rng.normal(size=spectra.shape)
    dim, coords = model.band_coordinates()
    return xr.DataArray(spectra, dims=("sample", dim), coords=coords, attrs={"units": "1"})


def test_spectra_of_the_model_are_what_it_expects() -> None:
    check = fitted(1).check(drawn(), n_spectra=2000)
    np.testing.assert_allclose(check["q"], 1.0, atol=0.1)
    np.testing.assert_allclose(check["ratio"], 1.0, atol=0.07)
    np.testing.assert_allclose(check["offset"], 0.0, atol=0.07)
    np.testing.assert_allclose(check["inside_90"], 0.9, atol=0.02)
    np.testing.assert_allclose(check["window_inside_90"], 0.9, atol=0.02)
    assert check["q_error"].max() < 0.06
    assert check["residual"].attrs["units"] == "1"
    assert check["window_bands"].values.tolist() == [
        "450 to 520 nm",
        "610 to 700 nm",
        "830 to 960 nm",
        "995 to 1200 nm",
    ]
    assert "as well as the model says" in check.attrs["verdict"]
    assert list(check_findings(check, True)) == []


def test_numbers_are_those_of_gaussians_conditioned_one_by_one() -> None:
    model, spectra = fitted(1).model_, drawn()[:6] + 0.01
    spectra[1, 2] = np.nan
    check = fitted(1).check(spectra, noise=0.03)
    theta, noise = dense(model.theta), 0.03**2 * np.eye(8)
    for kind, parts in ((BY_BAND, list(np.arange(8)[:, None])), (BY_WINDOW, windows_of(model.bands))):
        errors = np.full((6, 8), np.nan)
        for i, y in enumerate(spectra.values):
            for window in parts:
                seen = window[np.isfinite(y[window])]
                if seen.size:
                    own = reference.predicted(theta, y, noise, np.full(2, np.nan), seen)
                    errors[i, seen] = (y[seen] - own["mean"]) / np.sqrt(own["variance"])
        np.testing.assert_allclose(check["offset"].sel(left_out=kind), np.nanmean(errors, axis=0), rtol=1e-6)
        np.testing.assert_allclose(check["ratio"].sel(left_out=kind) ** 2, np.nanmean(errors**2, axis=0), rtol=1e-6)
    q = [np.nanmean(errors[:, window] ** 2) for window in parts]
    np.testing.assert_allclose(check["q"], q, rtol=1e-6)
    residual = fitted(1).invert(spectra, noise=0.03, outputs=["residual"])["residual"]
    np.testing.assert_allclose(check["residual"], residual.mean("sample"))
    np.testing.assert_allclose(check["reconstructed"].sel(quantile=0.5), (spectra - residual).median("sample"))


def test_a_band_that_is_shifted_is_found_by_its_name() -> None:
    spectra = drawn() + np.where(WAVELENGTHS == 700.0, 0.15, 0.0)
    check = fitted(1).check(spectra)
    assert "610 to 700 nm" in check.attrs["verdict"]
    assert "Bands off beside their neighbours: 700 nm" in check.attrs["verdict"]
    windows, bands = check_findings(check, measured=True)
    assert windows.title.startswith("Spectra are not what the model expects: 610 to 700 nm")
    assert windows.serious
    assert "specinvert.adapt" in windows.todo
    assert bands.title.startswith("Bands are off beside their neighbours: 700 nm")
    assert "too bright" in bands.what
    assert "specinvert.adapt" not in next(check_findings(check, measured=False)).todo


def test_noise_that_spectra_do_not_have_is_found() -> None:
    check = fitted(1).check(drawn(), noise=0.2)
    assert "nearer to what the others predict" in check.attrs["verdict"]
    (finding,) = check_findings(check, True)
    assert "larger errors than these spectra have" in finding.title


@pytest.mark.parametrize("order", [("y", "x", "band"), ("band", "x", "y")])
def test_a_cube_is_checked_as_its_spectra_are_in_any_order_chunks_and_conditions(order: Any) -> None:
    cube, truth = make_cube(), make_truth()
    cube[1, 2] = np.nan
    cube[0, :, 4] = np.nan
    noise = xr.DataArray(np.linspace(0.01, 0.03, 30).reshape(5, 6), dims=("y", "x"))
    given = {"noise": noise, "known": {"dust": truth["dust"]}}
    check = fitted(1).check(cube.transpose(*order), **given)
    assert check.attrs["n_spectra"] == 29
    rows = [cube[i, j] for i in range(5) for j in range(6)]
    each = [
        fitted(1).check(row, noise=float(noise[n // 6, n % 6]), known={"dust": float(truth["dust"][n // 6, n % 6])})
        for n, row in enumerate(rows)
    ]
    expected = xr.concat([one["offset"] for one in each], "row").mean("row")
    np.testing.assert_allclose(check["offset"], expected, rtol=1e-9)
    lazy = fitted(1).check(cube.chunk(y=2, x=3).transpose(*order), **given)
    assert_close(lazy.drop_vars("window_bands"), check.drop_vars("window_bands"))


def test_of_a_cube_of_any_size_a_few_blocks_are_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(predictive, "MOST_BLOCKS", 3)
    read = []

    def block(info: Any = None, block_info: Any = None) -> np.ndarray:
        read.append(block_info[None]["array-location"])
        return drawn().values[:100].reshape(10, 10, 8)

    values = da.map_blocks(block, chunks=((10,) * 50, (10,) * 40, (8,)), dtype=float, meta=np.empty((0, 0, 0)))
    cube = xr.DataArray(values, dims=("y", "x", "band"), coords=fitted(1).model_.band_coordinates()[1])
    check = fitted(1).check(cube, n_spectra=60)
    assert check.attrs["n_spectra"] == 60
    assert len(read) == 3


def test_of_many_patterns_of_missing_bands_those_of_most_spectra_are_compared(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(predictive, "MOST_PATTERNS", 2)
    spectra = drawn()[:40].copy()
    for row, band in enumerate((0, 1, 1, 2, 3)):
        spectra[row, band] = np.nan
    assert fitted(1).check(spectra).attrs["n_spectra"] == 37
    noise = xr.DataArray(np.linspace(0.01, 0.02, 40), dims="sample")
    assert fitted(1).check(spectra, noise=noise).attrs["n_spectra"] == 2


def test_members_of_a_committee_and_spectra_under_a_logarithm_are_checked() -> None:
    training = make_training()
    training["reflectance"] = training["reflectance"].clip(0.01)
    settings = QUICK | {"spectra_transform": "log", "n_ensemble": 2}
    inverter = GLLiMInverter(n_latent=1, **settings).fit(training)
    spectra = make_training(200, seed=4)["reflectance"].clip(0.01)
    check = inverter.check(spectra)
    assert (check["q"] < 3.0).all()
    per_band, covariance = np.full(8, 0.02), 0.02**2 * np.eye(8)
    few = spectra[:4]
    np.testing.assert_allclose(inverter.check(few, per_band)["q"], inverter.check(few, covariance)["q"], rtol=1e-6)
    spread = check["predicted_std"].sel(left_out=BY_BAND)
    assert ((spread > 0.005) & (spread < 0.2)).all()  # in the units of the spectra


def test_edges_are_one_band_no_data_and_no_second_spectrum() -> None:
    training = make_training().isel(band=[3])
    one = GLLiMInverter(n_latent=0, **QUICK).fit(training, parameters=["water"]).check(training["reflectance"])
    assert one.sizes["window"] == 1
    assert one["window_bands"].item() == "700 nm"
    np.testing.assert_allclose(one["q"], 1.0, atol=0.2)  # of the prior
    empty = fitted(1).check(drawn()[:3] * np.nan)
    assert (empty.attrs["n_spectra"], empty.attrs["verdict"]) == (
        0,
        "No spectrum has enough valid bands to be checked.",
    )
    assert list(check_findings(empty, True)) == []
    single = fitted(1).check(drawn()[0])
    assert np.isnan(single["q_error"]).all()
    few = fitted(1).check(drawn()[:4] + 0.05 * np.array([[1.0], [0.0], [0.0], [0.0]]))
    assert "as far as 4 spectra tell" in few.attrs["verdict"]
    assert len(plot_check(single).axes) == 2


def test_what_cannot_be_checked_is_refused() -> None:
    for wrong in (0, True, 2.5):
        with refuses(ValueError, "n_spectra", repr(wrong)):
            fitted(1).check(drawn()[:3], n_spectra=wrong)  # type: ignore[arg-type]
    with refuses(ValueError, "interval"):
        fitted(1).check(drawn()[:3], known={"dust": (0.1, 0.5)})
    with refuses(ValueError, "not fitted"):
        GLLiMInverter().check(drawn()[:3])


@pytest.mark.parametrize("kind", [None, "log"])
def test_one_spectrum_is_explained_with_what_other_windows_predict(kind: Any) -> None:
    training = make_training(300)
    training["reflectance"] = training["reflectance"].clip(0.01)
    inverter = GLLiMInverter(n_latent=1, **QUICK, spectra_transform=kind).fit(training)
    spectrum = training["reflectance"][0].copy()
    spectrum[1] = np.nan
    explained = explain(inversion_of(inverter, noise=0.01), spectrum).expected
    assert explained is not None
    assert np.isnan(explained.low[1])
    there = np.isfinite(spectrum.values)
    assert ((explained.low < spectrum) & (spectrum < explained.high))[there].mean() > 0.8
    assert explained.misfits == []
    odd = explain(inversion_of(inverter, noise=0.01), spectrum + 0.4 * (spectrum["wavelength"].values > 990.0)).expected
    assert odd is not None
    assert any(text.startswith("995 to 1200 nm (") for text in odd.misfits)
    figure = plot_spectrum(inverter, spectrum + 0.4 * (spectrum["wavelength"].values > 990.0), noise=0.01)
    assert "not what other windows predict: 995 to 1200 nm" in figure.axes[0].get_title()


def test_a_report_names_the_bands_that_measured_spectra_are_off_in(tmp_path: Any) -> None:
    test = make_training(200, seed=8)
    test["reflectance"] = test["reflectance"] + np.where(WAVELENGTHS == 700.0, 0.15, 0.0)
    findings = write_report(tmp_path / "report.html", fitted(1), test=test, measured=True)
    titles = [finding.title for finding in findings]
    assert any(title.startswith("Spectra are not what the model expects: 610 to 700 nm") for title in titles)
    assert any(title.startswith("Bands are off beside their neighbours: 700 nm") for title in titles)
    page = (tmp_path / "report.html").read_text()
    assert page.count("specinvert adapt MODEL SCENE") == 1
    assert "from those outside of its window" in page


def test_an_evaluation_tells_how_well_its_spectra_fit(tmp_path: Any) -> None:
    test = make_training(300, seed=8)
    table = fitted(1).evaluate(test, measured=True)
    check = fitted(1).check(test["reflectance"])
    assert table.attrs["check"].partition(". Bands")[0] in check.attrs["verdict"]
    np.testing.assert_array_equal(table.attrs["check_q"], check["q"])
    assert table.attrs["check_bands"] == check["window_bands"].values.tolist()
    for made in (table, check):
        made.to_netcdf(tmp_path / "made.nc")
        xr.load_dataset(tmp_path / "made.nc")
    assert "check" not in fitted(1).evaluate(test, known={"dust": (0.0, 1.0)}).attrs
