"""The band axis: finding it, reading its wavelengths in any unit, matching two axes, comparing units."""

import logging

import numpy as np
import pytest
import xarray as xr

from specinvert.cubes.bands import Bands, check_units, describe_bands, find_band_dim, is_wavelength_name, match_bands


def spectra(values, name="wavelength", dim="band", coord_attrs=None, attrs=None):
    """Three pixels of spectra with one coordinate along the band dimension."""
    values = np.asarray(values)
    return xr.DataArray(
        np.zeros((values.size, 3)),
        dims=(dim, "x"),
        coords={name: (dim, values, coord_attrs or {})},
        attrs=attrs or {},
    )


def bands(wavelength=None, labels=None, size=None):
    length = next(len(v) for v in (wavelength, labels, range(size or 0)) if v is not None)
    return Bands(
        dim="band",
        size=length,
        wavelength=None if wavelength is None else np.asarray(wavelength, float),
        unit=None if wavelength is None else "nm",
        labels=None if labels is None else np.asarray(labels),
    )


def test_a_spelling_of_wavelength_marks_the_band_dimension(subtests):
    for name in [
        *("wavelength", "Wavelengths", "WAVELENGTH_NM", "wave_length", "wave length", "wvl", "wl", "lambda"),
        *("center_wavelength", "central_wavelengths", "Centre Wavelength (nm)", "wavelenght", "wavelegth"),
        *("wavelength_um", "wavelength [micrometers]", "band_wavelengths", "sensor_band_central_wavelength"),
    ]:
        with subtests.test(name=name):
            assert is_wavelength_name(name)
            assert find_band_dim(spectra([500.0, 600.0], name=name)) == "band"


@pytest.mark.parametrize("name", ["band", "x", "time", "wavelength_units", "wavenumber", "fwhm", "length"])
def test_other_names_are_no_wavelengths(name):
    assert not is_wavelength_name(name)


def test_the_dimension_coordinate_itself_marks_the_band_dimension():
    assert find_band_dim(spectra([500, 600], name="wvl", dim="wvl")) == "wvl"


@pytest.mark.parametrize("standard_name", ["radiation_wavelength", "sensor_band_central_radiation_wavelength"])
def test_a_standard_name_marks_the_band_dimension(standard_name):
    array = spectra([500.0, 600.0], name="centres", coord_attrs={"standard_name": standard_name})
    assert find_band_dim(array) == "band"
    assert describe_bands(array, "band").wavelength.tolist() == [500, 600]


def test_band_dim_given_only_has_to_exist():
    array = xr.DataArray(np.zeros((2, 3)), dims=("channel", "x"))
    assert find_band_dim(array, "channel") == "channel"
    with pytest.raises(ValueError, match=r"band_dim='band' is not a dimension.*channel: 2, x: 3"):
        find_band_dim(array, "band")


def test_no_band_dimension_is_an_error_that_lists_the_dimensions():
    array = xr.DataArray(np.zeros((2, 3)), dims=("band", "x"))
    with pytest.raises(ValueError, match=r"band: 2, x: 3.*band_dim="):
        find_band_dim(array)


def test_two_dimensions_with_wavelengths_are_an_error():
    array = spectra([500.0, 600.0]).assign_coords(wl=("x", [400.0, 500.0, 600.0]))
    with pytest.raises(ValueError, match=r"several dimensions.*'band', 'x'.*band_dim="):
        find_band_dim(array)


def test_two_dimensional_wavelengths_mark_nothing():
    array = xr.DataArray(np.zeros((2, 3)), dims=("a", "b")).assign_coords(wavelength=(("a", "b"), np.ones((2, 3))))
    with pytest.raises(ValueError, match="no dimension carries wavelengths"):
        find_band_dim(array)


def test_wavelengths_written_as_text_are_an_error():
    with pytest.raises(ValueError, match=r"'wavelength' along 'band' should hold wavelengths but holds"):
        find_band_dim(spectra(["500 nm", "600 nm"]))


def test_wavelengths_of_every_unit_become_nanometres(subtests):
    for values, units in [
        *(([400.0, 2500.0], u) for u in ("nm", "NM", "Nanometers", "nanometre", "nanometer")),
        *(([0.4, 2.5], u) for u in ("um", "µm", "μm", "microns", "Micrometers", "micrometre", "UM")),
        *(([4e-7, 2.5e-6], u) for u in ("m", "meters", "metre")),
        *(([4e-4, 2.5e-3], u) for u in ("mm", "millimetres")),
        *(([4000.0, 25000.0], u) for u in ("Angstrom", "angstroms", "Å", "A")),
    ]:
        with subtests.test(values=values, units=units):
            described = describe_bands(spectra(values, coord_attrs={"units": units}), "band")
            np.testing.assert_allclose(described.wavelength, [400, 2500], rtol=1e-12)
            assert described.wavelength.dtype == np.float64
            assert not described.guessed
            assert described.labels is None


@pytest.mark.parametrize("key", ["wavelength_units", "wavelength units", "Wavelength_Unit", "wavelenght units"])
def test_the_unit_may_stand_in_the_attributes_of_the_array(key):
    described = describe_bands(spectra([4000.0, 25000.0], attrs={key: "Angstrom"}), "band")
    assert described.unit == "angstrom"
    np.testing.assert_allclose(described.wavelength, [400, 2500])


def test_the_unit_may_stand_in_the_name_of_the_coordinate():
    described = describe_bands(spectra([0.4, 2.5], name="wavelength_um"), "band")
    assert (described.unit, described.guessed) == ("um", False)


def test_a_missing_unit_is_guessed_where_unambiguous_and_said(subtests, caplog):
    for values, unit in [([400.0, 2500.0], "nm"), ([0.4, 2.5], "um"), ([4e-7, 2.5e-6], "m"), ([8.0, 14.0], "um")]:
        for units in [{}, {"units": "Unknown"}, {"units": ""}]:
            caplog.clear()
            with subtests.test(values=values, unit=unit, units=units):
                with caplog.at_level(logging.INFO, logger="specinvert"):
                    described = describe_bands(spectra(values, coord_attrs=units), "band")
                assert (described.unit, described.guessed) == (unit, True)
                assert f"taken as {unit}" in caplog.text


@pytest.mark.parametrize("values", [[50.0, 150.0], [0.05, 2.0], [1e-3, 2e-3], [2e5, 3e5]])
def test_a_missing_unit_that_cannot_be_guessed_is_an_error(values):
    with pytest.raises(ValueError, match=r"'wavelength' has no units.*set the coordinate's 'units'"):
        describe_bands(spectra(values), "band")


@pytest.mark.parametrize(
    ("values", "units", "likely"),
    [
        ([0.4, 2.5], "nm", "um"),
        ([400.0, 2500.0], "um", "nm"),
        ([500.0, 600.0], "m", "nm"),
        ([4e-7, 5e-7], "nm", "m"),
    ],
)
def test_units_that_contradict_the_values_are_an_error(values, units, likely):
    with pytest.raises(ValueError, match=rf"units '{units}' contradict.*look like {likely}"):
        describe_bands(spectra(values, coord_attrs={"units": units}), "band")


def test_units_of_something_else_are_an_error():
    with pytest.raises(ValueError, match=r"units 'cm-1' of 'wavelength' are not understood; convert to nm"):
        describe_bands(spectra([4000.0, 5000.0], coord_attrs={"units": "cm-1"}), "band")


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ([500.0, np.nan, 600.0], r"NaN or infinite for 1 of 3 bands \(positions 1\)"),
        ([500.0, np.inf], r"NaN or infinite for 1 of 2"),
        ([0.0, 500.0], r"not positive for 1 of 2 bands \(positions 0\)"),
        ([500.0, 600.0, 500.0], r"repeated values \(500.0\)"),
    ],
)
def test_impossible_wavelengths_are_an_error(values, message):
    with pytest.raises(ValueError, match=message):
        describe_bands(spectra(values), "band")


def test_wavelengths_need_not_be_monotonic():
    assert describe_bands(spectra([500.0, 993.1, 902.3]), "band").wavelength.tolist() == [500, 993.1, 902.3]


def test_an_axis_without_wavelengths_keeps_its_labels():
    described = describe_bands(spectra(["B02", "B03"], name="band"), "band")
    assert described.wavelength is None
    assert described.unit is None
    assert described.labels.tolist() == ["B02", "B03"]


def test_a_plain_axis_has_neither_wavelengths_nor_labels():
    described = describe_bands(xr.DataArray(np.zeros((4, 2)), dims=("band", "x")), "band")
    assert (described.size, described.wavelength, described.labels) == (4, None, None)
    with pytest.raises(ValueError, match="'b' is not a dimension"):
        describe_bands(xr.DataArray(np.zeros(4), dims="band"), "b")


def test_a_named_band_dimension_with_units_of_length_holds_wavelengths():
    described = describe_bands(spectra([0.4, 2.5], name="band", coord_attrs={"units": "um"}), "band")
    np.testing.assert_allclose(described.wavelength, [400, 2500])


def test_bands_are_matched_in_any_order_among_more():
    index = match_bands(bands([500, 902.25, 993]), bands([993.4, 499.5, 700, 902.0, 2000]))
    assert index.tolist() == [1, 3, 0]
    assert index.dtype.kind == "i"


def test_bands_in_different_units_match():
    training = describe_bands(spectra([0.4, 2.5], coord_attrs={"units": "um"}), "band")
    cube = describe_bands(spectra([2500.0, 400.0], coord_attrs={"units": "nm"}), "band")
    assert match_bands(training, cube).tolist() == [1, 0]


def test_an_offered_band_serves_once_and_the_closest_pair_first():
    assert match_bands(bands([901.9, 902.3]), bands([902.25, 901.5])).tolist() == [1, 0]
    with pytest.raises(ValueError, match="1 of 2 bands have no partner of their own"):
        match_bands(bands([500.0, 500.5]), bands([500.4, 600.0]))


def test_bands_without_a_partner_are_named_with_the_nearest_offered():
    with pytest.raises(ValueError, match=r"2 of 3 bands.*within 1 nm: 500.00 nm \(nearest 503.00\), 900.00 nm"):
        match_bands(bands([500, 600, 900]), bands([503, 600, 700]))
    assert match_bands(bands([500]), bands([503]), tolerance=3).tolist() == [0]
    with pytest.raises(ValueError, match="no bands"):
        match_bands(bands([500]), bands([]))


@pytest.mark.parametrize("tolerance", [-1, np.nan])
def test_an_impossible_tolerance_is_an_error(tolerance):
    with pytest.raises(ValueError, match="tolerance="):
        match_bands(bands([500]), bands([500]), tolerance=tolerance)


def test_without_wavelengths_labels_decide_then_positions():
    assert match_bands(bands(labels=["a", "b"]), bands(labels=["b", "a"])).tolist() == [1, 0]
    assert match_bands(bands(labels=["a", "a"]), bands(labels=["a", "a"])).tolist() == [0, 1]
    assert match_bands(bands(labels=["a", "b"]), bands(size=2)).tolist() == [0, 1]
    assert match_bands(bands(size=2), bands(size=2)).tolist() == [0, 1]


@pytest.mark.parametrize(
    ("wanted", "offered", "message"),
    [
        (bands(size=3), bands(size=4), "3 bands in training but 4 in the cube"),
        (bands(labels=["a", "b"]), bands(labels=["a", "c"]), "labels b are not in the cube"),
        (bands(labels=["a", "a", "b"]), bands(labels=["a", "b", "a"]), "another order"),
        (bands([500, 600]), bands(size=2), "training have wavelengths and those of the cube have none"),
        (bands(size=2), bands([500, 600]), "cube have wavelengths and those of the training have none"),
    ],
)
def test_axes_that_cannot_be_matched_are_an_error(wanted, offered, message):
    with pytest.raises(ValueError, match=message):
        match_bands(wanted, offered)


def test_units_that_agree_or_are_unknown_pass(subtests):
    for expected, given in [
        (None, "%"),
        ("1", None),
        ("1", ""),
        ("reflectance", "1"),
        ("Unitless", "-"),
        ("%", "Percent"),
        ("K", "k "),
        ("um", "Micrometers"),
        ("nanometre", "nm"),
    ]:
        with subtests.test(given=given):
            check_units(expected, given, "cube")


@pytest.mark.parametrize(
    ("expected", "given", "remedy"),
    [
        ("1", "%", "divide by 100"),
        ("percent", "reflectance", "multiply by 100"),
        ("K", "degC", "convert it to 'K'"),
        ("um", "nm", "convert it to 'um'"),
    ],
)
def test_units_that_contradict_are_an_error_with_the_remedy(expected, given, remedy):
    with pytest.raises(ValueError, match=rf"cube is in '{given}' but '{expected}' is expected; {remedy}"):
        check_units(expected, given, "cube")
