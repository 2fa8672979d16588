"""Tables of spectra and cubes from CSV and MATLAB files: bands by name and shape, percent told, nothing guessed."""

import h5py
import numpy as np
import pytest
import scipy.io
import xarray as xr
from click.testing import CliRunner

from specinvert import load_inverter
from specinvert.cli import main
from specinvert.cubes.bands import describe_bands, find_band_dim
from specinvert.io.reading.band_tags import spectral_columns
from specinvert.io.reading.open import open_cube, open_dataset
from specinvert.io.reading.products import csv, matlab

WAVELENGTHS = np.array([0.5, 0.6, 0.7, 0.8])


def refuse(*args, **kwargs):
    raise PermissionError(13, "Permission denied")


def write(path, text):
    path.write_text(text, encoding="utf-8")
    return path


# --- names of columns


@pytest.mark.parametrize(
    ("names", "wavelength", "unit"),
    [
        (["550", "660"], [550, 660], "nm"),
        (["550nm", "660 nm"], [550, 660], "nm"),
        (["Wave_550", "Wave_660.5"], [550, 660.5], "nm"),
        (["R550.5", "R660"], [550.5, 660], "nm"),
        (["X550", "X660"], [550, 660], "nm"),
        (["reflectance [0.55 µm]", "reflectance [0.66 um]"], [0.55, 0.66], "um"),
        (["0.55", "2.5"], [0.55, 2.5], "um"),
        (["wavelength 550 (nm)", "wavelength 660 (nm)"], [550, 660], "nm"),
        (["band_550nm", "band_660nm"], [550, 660], "nm"),
        (["550_%", "660_%"], [550, 660], "nm"),
        (["B1_550nm", "B2_660nm"], [550, 660], "nm"),
        (["Band 1 (550 Nanometers)", "Band 12 (660 Nanometers)"], [550, 660], "nm"),
        (["Band 1 (0.55)", "Band 12 (1)"], [0.55, 1], "um"),
        (["B2 (550 nm)", "B8A (660 nm)"], [550, 660], "nm"),
    ],
)
def test_columns_are_known_by_their_wavelength(names, wavelength, unit):
    found = spectral_columns(["sample", "lai", *names, "2nd"])
    assert len(found) == 1
    assert found[0].names == tuple(names)
    np.testing.assert_allclose(found[0].wavelength, wavelength)
    assert found[0].unit == unit
    assert found[0].percent == ("%" in names[0])


@pytest.mark.parametrize(
    "names",
    [["x1", "x2", "x3"], ["lai550", "lai660"], ["B1", "B2", "B3"], ["550"], ["550kg", "660kg"], ["band1", "1.5"]],
)
def test_columns_that_only_have_numbers_are_no_spectra(names):
    assert spectral_columns(names) == []


@pytest.mark.parametrize(
    "names",
    [
        [f"B{i}" for i in range(1, 20)],
        [f"b_{i:02d}" for i in range(1, 20)],
        [f"band{i}" for i in range(1, 13)],
        ["B01", "B02", "B3N", *(f"B{i:02d}" for i in range(4, 15))],
        ["SR_B1", "SR_B2"],
        ["B02", "B8A", "B12", "B13"],
    ],
)
def test_bands_by_number_are_of_no_sensor_where_names_contradict_it_and_ways_out_are_told(tmp_path, names):
    assert spectral_columns(["lai", *names]) == []
    row = ",".join(["0.5"] * (len(names) + 1))
    for file in ("t.csv", "t.txt"):
        path = write(tmp_path / file, f"lai,{','.join(names)}\n{row}\n")
        with pytest.raises(ValueError, match=rf"called {names[0]!r}, .* tell the numbers of bands .* as in 'B1_450nm'"):
            open_dataset(path)


def test_a_sensor_with_as_many_bands_tells_what_numbered_columns_are(tmp_path):
    rng = np.random.default_rng(0)
    water = rng.random(60)
    spectra = np.stack([0.5 - 0.2 * water, 0.3 + 0.3 * water, 0.6 - 0.1 * water], axis=1)
    spectra += rng.normal(scale=0.002, size=spectra.shape)
    rows = [",".join(map(str, (water[i], *spectra[i]))) for i in range(60)]
    table = write(tmp_path / "t.csv", "\n".join(["water,B1,B2,B3", *rows]))
    sensor = write(tmp_path / "bands.csv", "wavelength,fwhm\n550,40\n560,40\n700,40\n")
    arguments = ["train", str(table), "-o", str(tmp_path / "m.nc"), "--components", "1", "--latent", "0"]
    refused = CliRunner().invoke(main, arguments)
    assert (refused.exit_code, "or give a --sensor with as many bands" in refused.stderr) == (1, True)
    trained = CliRunner().invoke(main, [*arguments, "--sensor", str(sensor)])
    assert trained.exit_code == 0, trained.output
    assert f"{table}: columns B1 to B3 taken for the bands of the sensor in their order" in trained.stderr
    model = load_inverter(tmp_path / "m.nc").model_
    assert model.bands.wavelength.tolist() == [550, 560, 700]
    np.testing.assert_allclose(model.theta.b[0] + model.theta.A[0] @ model.theta.c[0], spectra.mean(axis=0), rtol=1e-6)


def test_what_was_assumed_of_a_table_is_said_on_stderr_once(tmp_path):
    path = write(tmp_path / "t.csv", "B02,B8A,B12\n0.1,0.2,-9999\n")
    told = CliRunner().invoke(main, ["info", str(path)])
    assert told.stderr == (
        f"Warning: {path}: wavelengths are those of Sentinel-2A, told by the names of the columns; "
        "1 values of -9999, -32768 or beyond 1e15 set to NaN\n"
    )


@pytest.mark.parametrize("names", [["B02", "B8A", "B12"], ["b2", "B8A", "Band_12"], ["B2", "Band.8A", "B12_20m"]])
def test_bands_of_sentinel_2_have_their_centres(names):
    (found,) = spectral_columns(["SCL", *names])
    assert found.wavelength.tolist() == [492.4, 864.7, 2202.4]
    assert found.fwhm.tolist() == [66, 21, 175]
    assert found.sensor == "Sentinel-2A"


# --- CSV


@pytest.mark.parametrize(
    ("suffix", "separator", "decimal"),
    [(".csv", ",", "."), (".tsv", "\t", "."), (".csv", ";", ","), (".txt", " ", ".")],
)
def test_a_table_gives_spectra_and_the_other_columns_beside_them(tmp_path, suffix, separator, decimal):
    rows = [["site", "500", "lai", "600.5"], ["north", "0.25", "1.5", "0.5"], ["south", "0.75", "", "0.125"]]
    if separator == " ":
        rows[2][2] = "nan"
    text = "\n".join(separator.join(row) for row in rows).replace(".", decimal) if decimal == "," else None
    text = text or "\n".join(separator.join(row) for row in rows)
    path = write(tmp_path / f"table{suffix}", text.replace("600,5", "600.5") + "\n")
    spectra = open_cube(path)
    assert spectra.dims == ("sample", "wavelength")
    assert spectra.dtype == np.float32
    assert spectra.chunks is not None
    assert spectra.values.tolist() == [[0.25, 0.5], [0.75, 0.125]]
    assert describe_bands(spectra, find_band_dim(spectra)).wavelength.tolist() == [500, 600.5]
    assert spectra.wavelength.attrs["units"] == "nm"
    assert spectra.site.values.tolist() == ["north", "south"]
    np.testing.assert_array_equal(spectra.lai, [1.5, np.nan])
    assert spectra.attrs == {"long_name": "reflectance"}


@pytest.mark.parametrize(
    ("header", "values", "divided", "reason"),
    [
        ("500,600", [[12.0, 40.0], [3.0, 55.0]], True, "half of the values are above 26"),
        ("500_pct,600_pct", [[0.5, 0.4], [0.3, 0.6]], True, "the names of the columns say percent"),
        ("500,600", [[0.5, 0.4], [0.3, 1.1]], False, None),
        ("500,600", [[0.5, 0.4], [0.3, 60.0]], False, None),
        ("500,600", [[1200.0, 4000.0], [300.0, 6000.0]], False, None),
    ],
)
def test_percent_is_divided_by_100_where_it_is_certain_and_the_history_says_so(
    tmp_path, header, values, divided, reason
):
    rows = [",".join(map(str, row)) for row in values]
    spectra = open_cube(write(tmp_path / "t.csv", "\n".join([header, *rows])), chunks=None)
    np.testing.assert_allclose(spectra.values, np.array(values) / (100 if divided else 1), rtol=1e-6)
    assert spectra.attrs.get("units") == ("1" if divided else None)
    if divided:
        assert f"divided by 100, from percent to a fraction, because {reason}" in spectra.attrs["history"]
    else:
        assert "history" not in spectra.attrs


def test_names_of_columns_have_decimal_commas_where_values_have_and_remarks_may_come_first(tmp_path):
    text = "# made by hand\n# in the field\nsite;450,5;550,0\nnorth;0,25;0,5\nsouth;0,75;0,125\n"
    for name in ("t.csv", "t.txt"):
        spectra = open_cube(write(tmp_path / name, text), chunks=None)
        assert spectra.wavelength.values.tolist() == [450.5, 550.0]
        assert spectra.values.tolist() == [[0.25, 0.5], [0.75, 0.125]]
        assert spectra.site.values.tolist() == ["north", "south"]


def test_missing_spectra_are_nan_and_unnamed_columns_left_out(tmp_path):
    spectra = open_cube(write(tmp_path / "t.csv", ',"Unnamed: 0",500,600\n0,0,-9999,0.5\n1,1,,0.25\n'))
    np.testing.assert_array_equal(spectra.values, [[np.nan, 0.5], [np.nan, 0.25]])
    assert spectra.attrs["history"] == "1 values of -9999, -32768 or beyond 1e15 set to NaN"
    assert set(spectra.coords) == {"wavelength"}


def test_one_of_several_groups_is_chosen_by_name(tmp_path):
    path = write(tmp_path / "t.csv", "R500,R600,rho_500,rho_600\n0.25,0.5,0.75,0.125\n")
    with pytest.raises(ValueError, match=r"several groups .*'r' \(2 columns such as 'R500'\), 'rho' .*pass variable="):
        open_cube(path)
    assert open_cube(path, variable="rho_").values.tolist() == [[0.75, 0.125]]
    assert open_cube(path, variable="R").data.name != open_cube(path, variable="rho").data.name
    with pytest.raises(ValueError, match="no spectra in columns called 'T'; there are 'r'"):
        open_cube(path, variable="T")


def test_a_table_opens_as_a_training_set(tmp_path):
    path = write(tmp_path / "t.csv", "sample,site,lai,500,600\n7,north,1.5,0.25,0.5\n8,south,2.5,0.75,0.125\n")
    table = open_dataset(path)
    assert set(table.data_vars) == {"reflectance", "lai"}
    assert table.reflectance.dims == ("sample", "wavelength")
    assert table.sample.values.tolist() == [7, 8]
    assert table.site.dims == ("sample",)


def test_the_command_line_trains_on_a_table_and_evaluates_with_it(tmp_path):
    rng = np.random.default_rng(0)
    water = rng.random(40)
    spectra = np.stack([0.5 - 0.2 * water, 0.3 + 0.3 * water, 0.6 - 0.1 * water**2], axis=1)
    spectra += rng.normal(scale=0.002, size=spectra.shape)
    rows = [",".join(map(str, (f"s{i}", water[i], *spectra[i]))) for i in range(40)]
    path = write(tmp_path / "t.csv", "\n".join(["name,water,500,600,700", *rows]))
    model = tmp_path / "model.nc"
    trained = CliRunner().invoke(
        main, ["train", str(path), "-o", str(model), "--components", "1", "--latent", "0", "--tol", "1e-2"]
    )
    assert trained.exit_code == 0, trained.output
    evaluated = CliRunner().invoke(main, ["evaluate", str(model), str(path), "-o", str(tmp_path / "errors.csv")])
    assert evaluated.exit_code == 0, evaluated.output
    header, errors = (tmp_path / "errors.csv").read_text().splitlines()
    assert errors.startswith("water,")
    assert float(errors.split(",")[header.split(",").index("nrmse")]) < 0.2


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("wavelength,fwhm\n500,1\n600,2\n", "has wavelengths and no spectra, but 'fwhm'; give their columns"),
        ("x,a\n500,1\n510,2\n520,2\n530,2\n540,1\n", "500 to 540 in 'x', call that column 'wavelength'"),
        ("name,lai\na,1\n", "no columns are named by wavelength, .*the columns are 'name', 'lai'"),
        ("500,600,700\n1,2,3\n4,5", "the last row has 2 fields for 3 columns: truncated"),
        ("500,600\n0.1,0.2\n0.1,0.2,0.3\n0.1,0.2\n", "not a readable table"),
        ("500,600\n0.1,0.2\nwet,0.3\n", "column '500' holds 'wet' in row 2 where a number belongs"),
        ("500,500\n0.1,0.2\n", "several columns are called '500'"),
        ("500,500.0\n0.1,0.2\n", "holds repeated values"),
        ("500 parsec,600 parsec\n0.1,0.2\n", "no columns are named by wavelength"),
        ("550 um,0.6 um\n0.1,0.2\n", "contradict"),
        ("wavelength,500,600\n1,0.1,0.2\n", "a column is called 'wavelength'"),
        ("500,600\n", "has names of columns and no rows"),
        ("\n\n", "the first line is no list of column names"),
    ],
)
def test_a_bad_table_is_one_clear_error(tmp_path, text, message):
    path = write(tmp_path / "t.csv", text)
    for opens in (open_cube, open_dataset):
        with pytest.raises(ValueError, match=rf"t\.csv: .*{message}") as caught:
            opens(path)
        assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("field.txt", "Wavelength\tsnow0.asd\tsnow1.asd\n350\t0.5\t0.25\n351\t1\t0\n"),
        ("excel.csv", "sep=;\r\nlambda (nm);snow0.asd;snow1.asd\r\n350;0,5;0,25\r\n351;1;0\r\n"),
        ("preamble.csv", "By,A,B\nDate,1.5.2024,\n\nnm,snow0.asd,snow1.asd\n350,0.5,0.25\n351,1,0\n"),
        ("blanks.txt", "wavelength snow0.asd snow1.asd\n350 0.5 0.25\n351 1 0\n"),
        ("preamble.txt", "File: one\n\nWavelength\tsnow0.asd\tsnow1.asd\n350\t0.5\t0.25\n351\t1\t0\n"),
        ("microns.csv", "Wavelength [um],snow0.asd %,snow1.asd %\n0.35,50,25\n0.351,100,0\n"),
    ],
)
def test_wavelengths_down_the_rows_are_read_with_a_spectrum_a_column(tmp_path, name, text):
    (tmp_path / name).write_text(text, encoding="utf-16" if name == "preamble.txt" else "utf-8")
    table = open_cube(tmp_path / name)
    assert describe_bands(table, find_band_dim(table)).wavelength == pytest.approx([350.0, 351.0])
    assert table.values.tolist() == [[0.5, 1.0], [0.25, 0.0]]
    assert [label.removesuffix(" %") for label in table.spectrum_name.values] == ["snow0.asd", "snow1.asd"]
    assert "wavelengths run down the rows" in table.attrs["history"]


def test_what_is_no_text_or_empty_is_one_clear_error(tmp_path):
    path = tmp_path / "t.csv"
    path.write_bytes(b"")
    with pytest.raises(ValueError, match=r"t\.csv: the file is empty"):
        open_cube(path)
    with pytest.raises(ValueError, match="the first line is no list of column names"):
        open_dataset(path)
    path.write_bytes(b"\x89HDF\r\n\x1a\n" + bytes(range(200)))
    with pytest.raises(ValueError, match=r"t\.csv: .*UTF-8"):
        csv.read(path)


def test_a_table_that_may_not_be_read_is_an_error(tmp_path, monkeypatch):
    path = write(tmp_path / "t.csv", "500,600\n0.1,0.2\n")
    monkeypatch.setattr("pathlib.Path.open", refuse)
    for opens in (open_cube, open_dataset, csv.read):
        with pytest.raises(PermissionError, match=r"t\.csv: no permission to read"):
            opens(path)


@pytest.mark.parametrize(
    ("text", "claimed"), [("500 600 lai\n1 2 3\n", True), ("a note\non something\n", False), ("\n", False)]
)
def test_a_text_file_is_claimed_where_it_has_wavelengths(tmp_path, text, claimed):
    path = write(tmp_path / "t.txt", text)
    assert csv.matches(path, path.read_bytes()) == claimed
    assert not csv.matches(tmp_path, b"")


# --- MATLAB


def write_mat(path, version, **variables):
    """A file of version 5 or 7.3, the latter as MATLAB lays it out: axes reversed, classes as attributes."""
    if version == 5:
        scipy.io.savemat(path, variables, do_compression=True)
        return path
    with h5py.File(path, "w", userblock_size=512) as file:
        for name, value in variables.items():
            text = isinstance(value, str)
            values = np.array([list(map(ord, value))], np.uint16) if text else np.atleast_2d(value)
            file[name] = values.T
            kinds = {"float64": "double", "float32": "single"}
            kind = "char" if text else kinds.get(values.dtype.name, values.dtype.name)
            file[name].attrs["MATLAB_class"] = np.bytes_(kind)
    with path.open("r+b") as file:
        file.write(b"MATLAB 7.3 MAT-file, Platform: GLNXA64".ljust(124) + b"\0\x02IM")
    return path


def cube_of(dtype=np.float64):
    return (np.random.default_rng(0).random((3, 5, 4)) * 1000).astype(dtype)


@pytest.mark.parametrize("version", [5, 7.3])
@pytest.mark.parametrize(("dtype", "read"), [("float64", "float64"), ("float32", "float32"), ("uint16", "float32")])
def test_the_array_that_fits_the_wavelengths_is_the_cube(tmp_path, version, dtype, read):
    values = cube_of(dtype)
    bbl = np.array([1, 0, 1, 1], np.uint8)
    picture = np.zeros((3, 5, 3), np.uint8)
    path = write_mat(tmp_path / "scene.mat", version, I=values, wl=WAVELENGTHS, bbl=bbl, rgb=picture)
    cube = open_cube(path)
    assert cube.dims == ("y", "x", "wavelength")
    assert cube.dtype == cube.values.dtype == read
    assert cube.chunks is not None
    np.testing.assert_array_equal(cube.values, values)
    np.testing.assert_array_equal(cube.wavelength, WAVELENGTHS)
    assert "units" not in cube.wavelength.attrs
    assert describe_bands(cube, "wavelength").unit == "um"
    assert cube.good.values.tolist() == [True, False, True, True]
    np.testing.assert_array_equal(open_cube(path, chunks={"y": 2, "x": 2}).values, values)
    assert isinstance(open_cube(path, chunks=None).data, np.ndarray)


@pytest.mark.parametrize("version", [5, 7.3])
def test_bands_may_lie_along_any_axis_and_a_table_has_samples(tmp_path, version):
    values = cube_of()
    units = {"wavelength": 1000 * WAVELENGTHS[:, None], "wavelength_units": "nm"}
    first = write_mat(tmp_path / "first.mat", version, cube=np.moveaxis(values, -1, 0).copy(), **units)
    np.testing.assert_array_equal(open_cube(first).values, values)
    assert open_cube(first).wavelength.attrs["units"] == "nm"
    table = write_mat(tmp_path / "table.mat", version, spectra=values[0].T.copy(), fwhm=np.ones(4), **units)
    assert open_cube(table).dims == ("sample", "wavelength")
    np.testing.assert_array_equal(open_cube(table).values, values[0])
    assert open_cube(table).fwhm.values.tolist() == [1, 1, 1, 1]


@pytest.mark.parametrize("version", [5, 7.3])
def test_pixels_in_one_axis_become_an_image_column_by_column(tmp_path, version):
    values = cube_of()
    pixels = values.reshape(15, 4, order="F").T.copy()
    path = write_mat(tmp_path / "s.mat", version, Y=pixels, A=pixels[:2].copy(), lines=3, cols=5)
    with pytest.raises(
        ValueError, match=r"unclear: (Y \(4, 15\), A \(2, 15\)|A \(2, 15\), Y \(4, 15\)); pass variable="
    ):
        open_cube(path)
    cube = open_cube(path, variable="Y")
    assert cube.dims == ("y", "x", "band")
    np.testing.assert_array_equal(cube.values, values)


@pytest.mark.parametrize("version", [5, 7.3])
def test_the_third_axis_of_the_only_cube_holds_bands_without_wavelengths(tmp_path, version):
    path = write_mat(tmp_path / "s.mat", version, scene=cube_of(), truth=np.ones((3, 5)))
    assert open_cube(path).dims == ("y", "x", "band")


@pytest.mark.parametrize("version", [5, 7.3])
@pytest.mark.parametrize(
    ("variables", "variable", "message"),
    [
        ({"a": np.ones((3, 5)), "b": np.ones((3, 5))}, None, r"unclear: a \(3, 5\), b \(3, 5\); pass variable="),
        ({"a": np.ones((3, 5))}, "b", r"no variable 'b'; the file has a \(3, 5\)"),
        (
            {"a": np.ones((3, 5)), "t": "text"},
            "t",
            r"no cube or table of numbers in variable 't'; .*t \(1,( 4)?\) char",
        ),
        (
            {"a": np.ones((3, 5))},
            "a",
            r"which axis of a \(3, 5\) holds the bands is unclear; add a vector 'wavelength'",
        ),
        ({"a": np.ones((4, 4)), "wl": WAVELENGTHS}, None, r"which axis of a \(4, 4\) holds the bands is unclear"),
        ({"a": np.ones((3, 5)), "wl": WAVELENGTHS}, None, r"no array has an axis as long as wl \(1, 4\)"),
        ({"a": np.ones((3, 5)), "wl": WAVELENGTHS}, "a", r"a \(3, 5\) has no axis as long as wl"),
        ({"a": np.ones((3, 4)), "wl": WAVELENGTHS, "bbl": np.ones(3)}, None, "describe different numbers of bands"),
        ({"a": np.ones((3, 4)), "wl": WAVELENGTHS, "lambda": WAVELENGTHS}, None, "several variables could hold wave"),
        ({"a": np.ones((3, 4)), "wl": WAVELENGTHS, "wl_units": "parsec"}, None, "'parsec' .*not understood"),
        ({"a": np.ones((3, 4)), "wl": np.array([1.0, 2, 2, 3])}, None, "repeated values"),
        ({"a": np.ones((3, 4)) * 1j, "wl": WAVELENGTHS}, None, "holds complex numbers|no array has an axis"),
        ({"wl": WAVELENGTHS}, None, "no array has an axis as long as wl"),
        ({"t": "text"}, None, "has no array of numbers"),
    ],
)
def test_a_file_without_one_clear_cube_is_one_clear_error(tmp_path, version, variables, variable, message):
    path = write_mat(tmp_path / "s.mat", version, **variables)
    with pytest.raises(ValueError, match=rf"s\.mat: .*({message})") as caught:
        matlab.read(path, variable=variable)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("version", [5, 7.3])
@pytest.mark.parametrize("keep", [0.5, 0.98])
def test_a_truncated_file_is_one_clear_error(tmp_path, version, keep):
    path = write_mat(tmp_path / "s.mat", version, cube=np.random.default_rng(0).random((20, 20, 4)), wl=WAVELENGTHS)
    whole = path.read_bytes()
    path.write_bytes(whole[: int(len(whole) * keep)])
    with pytest.raises(ValueError, match=r"s\.mat: not a readable MATLAB"):
        open_cube(path)


def test_a_matlab_file_of_another_kind_empty_or_closed_to_us_is_one_clear_error(tmp_path, monkeypatch):
    path = tmp_path / "s.mat"
    path.write_text("sample,500\n1,0.2\n")
    with pytest.raises(ValueError, match=r"s\.mat: not a readable MATLAB file"):
        open_cube(path)
    path.write_bytes(b"")
    with pytest.raises(ValueError, match=r"s\.mat: the file is empty"):
        open_cube(path)
    write_mat(path, 5, cube=cube_of(), wl=WAVELENGTHS)
    monkeypatch.setattr("pathlib.Path.open", refuse)
    with pytest.raises(PermissionError, match=r"s\.mat: no permission to read"):
        open_cube(path)
    with pytest.raises(PermissionError, match=r"s\.mat: no permission to read"):
        matlab.read(path)


def test_matlab_files_are_known_by_their_first_bytes(tmp_path):
    path = write_mat(tmp_path / "scene", 7.3, cube=cube_of(), wl=WAVELENGTHS)
    assert matlab.matches(path, path.read_bytes()[:4096])
    xr.testing.assert_identical(open_cube(path).drop_attrs(), open_cube(path, reader="matlab").drop_attrs())
    assert not matlab.matches(tmp_path, b"")


def test_a_number_called_as_a_scale_is_that_of_a_matlab_cube(tmp_path):
    values = np.full((2, 3, 4), 2500, np.int16)
    scipy.io.savemat(tmp_path / "c.mat", {"cube": values, "wavelength": WAVELENGTHS, "scale_factor": 10000.0})
    np.testing.assert_allclose(open_cube(tmp_path / "c.mat").values, 0.25)


@pytest.mark.parametrize("before", ["", "sep=;\r\n", "Instrument: X;\r\n\r\nTaken;1.5.2024\r\n", "# by hand\r\n"])
@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16"])
def test_tables_of_spreadsheets_and_instruments_are_read(tmp_path, before, encoding):
    path = tmp_path / "field.csv"
    path.write_bytes((before + "site;450,5;460;470\r\nwood;0,25;0,5;1\r\nlake;0;0,125;0\r\n").encode(encoding))
    table = csv.read_spectra_table(path)
    assert table.wavelength.values.tolist() == [450.5, 460.0, 470.0]
    assert table.reflectance.values.tolist() == [[0.25, 0.5, 1.0], [0.0, 0.125, 0.0]]
    assert table.site.values.tolist() == ["wood", "lake"]
