"""Layouts met in real files: headers in structs, spectra beside abundances, averaged fills, images without a place."""

from __future__ import annotations

import h5py
import numpy as np
import pytest
import scipy.io
import xarray as xr

import specinvert
from specinvert import open_cube, resample, save_maps

MICROMETRES = np.array([0.5, 0.7, 0.69, 2.2])
FWHM = np.array([9.0, 9.5, 9.6, 11.0])
VALUES = np.random.default_rng(0).random((3, 5, 4))
HEADER = {
    "description": "{a scene}",
    "wavelength_units": "Nanometers",
    "wavelength": 1000 * MICROMETRES,
    "fwhm": FWHM,
    "bbl": np.array([1, 0, 1, 1], np.uint8),
    "map_info": "{UTM, 1, 1, 579717.18, 3714550.7, 16.9, 16.9, 11, North, WGS-84}",
}


def write_mat(path, version, header=None, **variables):
    """A MATLAB file of version 5 or 7.3 with a struct `params` beside arrays."""
    if version == 5:
        scipy.io.savemat(path, variables | ({} if header is None else {"params": header}))
        return path
    with h5py.File(path, "w", userblock_size=512) as file:
        groups = {"": variables} | ({} if header is None else {"params/": header})
        for prefix, items in groups.items():
            for name, value in items.items():
                values = (
                    np.array([list(map(ord, value))], np.uint16) if isinstance(value, str) else np.atleast_2d(value)
                )
                file[prefix + name] = values.T
                kind = {"float64": "double"}.get(values.dtype.name, values.dtype.name)
                file[prefix + name].attrs["MATLAB_class"] = np.bytes_("char" if isinstance(value, str) else kind)
        if header is not None:
            file["params"].attrs["MATLAB_class"] = np.bytes_("struct")
    with path.open("r+b") as file:
        file.write(b"MATLAB 7.3 MAT-file, Platform: GLNXA64".ljust(124) + b"\0\x02IM")
    return path


@pytest.mark.parametrize("version", [5, 7.3])
@pytest.mark.parametrize("own", [{"wl": MICROMETRES, "bbl": np.array([1, 1, 1, 0], np.uint8)}, {"wl": MICROMETRES}, {}])
def test_a_struct_with_an_envi_header_gives_widths_unit_and_bad_bands(tmp_path, version, own):
    cube = open_cube(write_mat(tmp_path / "roi.mat", version, HEADER, I=VALUES, **own))
    np.testing.assert_array_equal(cube.values, VALUES)
    np.testing.assert_array_equal(cube.wavelength, 1000 * MICROMETRES)
    np.testing.assert_array_equal(cube.fwhm, FWHM)
    assert cube.wavelength.attrs["units"] == cube.fwhm.attrs["units"] == "Nanometers"
    assert cube.good.values.tolist() == ([True, True, True, False] if "bbl" in own else [True, False, True, True])
    fine = xr.DataArray(
        np.full((2, 2101), 0.3), dims=("sample", "wavelength"), coords={"wavelength": np.arange(400, 2501)}
    )
    np.testing.assert_allclose(resample(fine, cube, good_only=True), 0.3)


@pytest.mark.parametrize("version", [5, 7.3])
def test_a_header_of_another_array_or_without_a_unit_is_left_alone(tmp_path, version):
    longer = HEADER | {name: np.append(HEADER[name], HEADER[name][-1] + 1) for name in ("wavelength", "fwhm", "bbl")}
    unitless = {name: value for name, value in HEADER.items() if name != "wavelength_units"}
    for header in (longer, unitless):
        cube = open_cube(write_mat(tmp_path / "roi.mat", version, header, I=VALUES, wl=MICROMETRES))
        np.testing.assert_array_equal(cube.wavelength, MICROMETRES)
        assert "fwhm" not in cube.coords


@pytest.mark.parametrize("version", [5, 7.3])
def test_a_header_that_contradicts_the_files_own_wavelengths_is_one_clear_error(tmp_path, version):
    path = write_mat(tmp_path / "roi.mat", version, HEADER, I=VALUES, wl=MICROMETRES[::-1].copy())
    with pytest.raises(ValueError, match=r"roi\.mat: wl .*params\.wavelength .* different wavelengths"):
        open_cube(path)


@pytest.mark.parametrize("version", [5, 7.3])
def test_spectra_beside_abundances_are_taken_and_the_comment_says_so(tmp_path, version):
    spectra = np.random.default_rng(1).integers(0, 5000, (40, 15)).astype(np.uint16)
    shares = np.random.default_rng(2).random((4, 15))
    image = np.moveaxis(shares.reshape(4, 3, 5, order="F"), 0, -1).copy()
    path = write_mat(tmp_path / "jr.mat", version, Y=spectra, A=shares, S_GT=image, lines=3, cols=5)
    cube = open_cube(path)
    np.testing.assert_array_equal(cube.values, spectra.T.reshape(3, 5, 40, order="F"))
    assert cube.attrs["comment"].startswith("Y (40, 15) taken as the spectra: ")
    truth = open_cube(path, variable="A")
    np.testing.assert_array_equal(truth.values, image)
    assert "comment" not in truth.attrs


def test_averages_over_fill_values_in_a_table_are_missing(tmp_path):
    path = tmp_path / "points.csv"
    path.write_text("lai,B02,B03,B8A\n1.5,4.5,7.4,38\n,1.1111111e+19,2.5e+19,3.3333333e+19\n2,3.5,6.4,41\n")
    spectra = open_cube(path, chunks=None)
    np.testing.assert_allclose(spectra.values[[0, 2]], [[0.045, 0.074, 0.38], [0.035, 0.064, 0.41]], rtol=1e-6)
    assert np.isnan(spectra.values[1]).all()
    assert "3 values of -9999, -32768 or beyond 1e15 set to NaN" in spectra.attrs["history"]


def test_an_image_without_a_place_has_pixels_by_number_and_maps_without_an_empty_grid_mapping(tmp_path):
    values = np.random.default_rng(0).random((4, 3, 6)).astype("<f4")
    (tmp_path / "crop").write_bytes(values.tobytes())
    (tmp_path / "crop.hdr").write_text(
        "ENVI\nsamples = 6\nlines = 4\nbands = 3\nheader offset = 0\ndata type = 4\ninterleave = bil\nbyte order = 0\n"
        "wavelength = {450, 550, 650}\nfwhm = {10, 10, 10}\n"
    )
    cube = open_cube(tmp_path / "crop")
    np.testing.assert_array_equal(cube.values, np.moveaxis(values, 1, -1))
    assert not {"spatial_ref", "x", "y"} & set(cube.coords)
    assert "grid_mapping" not in cube.encoding
    training = xr.Dataset(
        {"reflectance": (("sample", "wavelength"), np.random.default_rng(1).random((60, 3)))},
        coords={"wavelength": [450.0, 550.0, 650.0]},
    )
    training["brightness"] = training.reflectance.mean("wavelength")
    inverter = specinvert.GLLiMInverter(1, n_latent=0, random_state=0, max_iter=2, tol=0).fit(training)
    save_maps(cube.gllim.invert(inverter), tmp_path / "maps.nc")
    with xr.open_dataset(tmp_path / "maps.nc", decode_coords=False) as maps:
        assert "spatial_ref" not in maps.variables
        assert not any("grid_mapping" in variable.attrs for variable in maps.variables.values())
