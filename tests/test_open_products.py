"""Products of EnMAP, Sentinel-2 and CRISM: small files in each sensor's true layout give the one cube convention."""

import functools
import pickle
import re
import tempfile
from collections.abc import Callable
from pathlib import Path

import dask
import numpy as np
import pytest
import rasterio
from affine import Affine
from rasterio.crs import CRS

from specinvert.cubes.bands import describe_bands
from specinvert.io.describe import describe_file
from specinvert.io.open import choose_reader, open_cube

UTM = CRS.from_epsg(32633)
ENMAP = "ENMAP01-____L2A-DT0000001049_20220612T105735Z_028_V010303_20230922T131826Z"
CENTRES = (418.4, 993.1, 902.3, 1390.2)
SAFE = "S2B_MSIL2A_20230413T101559_N0509_R065_T33UUU_20230413T131600.SAFE"
GRANULE = "GRANULE/L2A_T33UUU_A031862_20230413T101601"
IDS = ("B1", "B2", "B3", "B4", "B5", "B6", "B7", "B8", "B8A", "B9", "B10", "B11", "B12")
BANDS_20M = ("B01", "B02", "B05", "B8A", "B12")
SAFE_IMAGES = [*((name, "20m") for name in BANDS_20M), ("B02", "10m"), ("B08", "10m")]
CRISM = "HSP00017BA0_01_IF218S_TRR3"
WA = "CDR450924300802_WA0300020S_2"


def write_tif(path: Path, values: np.ndarray, pixel: float = 30.0, driver: str = "GTiff", **options: object) -> Path:
    """Write values (band, y, x); returns the path."""
    tags, names = options.pop("tags", {}), options.pop("names", None)
    band_tags = options.pop("band_tags", [])
    count, height, width = values.shape
    place = {"crs": UTM, "transform": Affine(pixel, 0.0, 300000.0, 0.0, -pixel, 5900040.0)}
    size = {"count": count, "height": height, "width": width, "dtype": values.dtype}
    with rasterio.open(path, "w", driver=driver, **size, **place, **options) as file:
        file.write(values)
        file.update_tags(**tags)
        for index, entry in enumerate(band_tags, start=1):
            file.update_tags(index, **entry)
        if names is not None:
            file.descriptions = names
    return path


def edit(path: Path, old: str, new: str) -> None:
    """Replace text in a file; fails where the text is not there."""
    text = path.read_text()
    assert re.search(old, text)
    path.write_text(re.sub(old, new, text))


def cut(path: Path, keep: float = 0.7) -> None:
    path.write_bytes(path.read_bytes()[: int(path.stat().st_size * keep)])


# --- EnMAP


def enmap(folder: Path) -> Path:
    """An EnMAP L2A product of 4 bands, the fourth without data; returns its image."""
    values = np.arange(4 * 5 * 6, dtype=np.int16).reshape(4, 5, 6) * 10 - 50
    values[3] = -32768
    values[:, 0, 0] = -32768
    bands = "".join(
        f'<bandID number="{i}"><wavelengthCenterOfBand>{w}</wavelengthCenterOfBand><FWHMOfBand>{6 + i}</FWHMOfBand>'
        "<GainOfBand>0.0001</GainOfBand><OffsetOfBand>0</OffsetOfBand></bandID>\n"
        for i, w in enumerate(CENTRES, start=1)
    )
    (folder / f"{ENMAP}-METADATA.XML").write_text(
        '<?xml version="1.0" encoding="UTF-8"?>\n<level_X><metadata><name>x</name></metadata>'
        "<base><level>L2A</level></base><specific><backgroundValue>-32768</backgroundValue>"
        f"<bandCharacterisation>{bands}</bandCharacterisation></specific></level_X>"
    )
    write_tif(folder / f"{ENMAP}-QL_QUALITY_CLOUD.TIF", np.zeros((1, 5, 6), np.uint8))
    return write_tif(folder / f"{ENMAP}-SPECTRAL_IMAGE.TIF", values)


@pytest.mark.parametrize("give", ["image", "metadata"])
def test_an_enmap_product_keeps_the_order_of_its_bands_and_marks_those_without_data(tmp_path: Path, give: str) -> None:
    image = enmap(tmp_path)
    path = image if give == "image" else tmp_path / f"{ENMAP}-METADATA.XML"
    assert choose_reader(path)[1].name == "enmap"
    cube = open_cube(path)
    assert cube.dims == ("y", "x", "wavelength")
    assert cube.dtype == np.float32
    assert cube.wavelength.values.tolist() == list(CENTRES)
    assert describe_bands(cube, "wavelength").unit == "nm"
    assert cube.fwhm.values.tolist() == [7, 8, 9, 10]
    assert cube.good.values.tolist() == [True, True, True, False]
    assert cube.attrs == {"sensor": "EnMAP"}
    assert cube.rio.crs == UTM
    with rasterio.open(image) as file:
        stored = file.read().astype(float)
    stored[stored == -32768] = np.nan
    np.testing.assert_allclose(cube.values, stored.transpose(1, 2, 0) * 1e-4, rtol=1e-6)


def test_a_band_is_without_data_only_where_no_pixel_of_the_scene_has_any(tmp_path: Path) -> None:
    image = enmap(tmp_path)
    values = np.full((4, 300, 200), -32768, np.int16)
    values[:3, 200:, 100:] = 7
    values[2, 290:, 190:] = -32768
    write_tif(image, values)
    assert open_cube(image).good.values.tolist() == [True, True, True, False]
    write_tif(image, np.full((4, 30, 20), -32768, np.int16))
    assert not open_cube(image).good.values.any()


def test_the_gain_offset_and_background_of_each_enmap_band_are_those_of_its_metadata(tmp_path: Path) -> None:
    image = enmap(tmp_path)
    metadata = tmp_path / f"{ENMAP}-METADATA.XML"
    edit(
        metadata,
        r'(number="2".*?)<GainOfBand>0.0001</GainOfBand><OffsetOfBand>0<',
        r"\1<GainOfBand>0.5</GainOfBand><OffsetOfBand>3<",
    )
    edit(metadata, "<backgroundValue>-32768", "<backgroundValue>-50")
    cube = open_cube(image, chunks=None)
    with rasterio.open(image) as file:
        stored = file.read()
    np.testing.assert_allclose(cube.values[1, 1, :2], [stored[0, 1, 1] * 1e-4, stored[1, 1, 1] * 0.5 + 3], rtol=1e-6)
    assert cube.values[0, 0, 0] == pytest.approx(-3.2768)
    assert cube.values[0, 0, 1] == pytest.approx(-16381.0)


def test_a_geotiff_cut_from_an_enmap_product_is_read_by_the_tags_of_its_bands(tmp_path: Path) -> None:
    wavelengths = np.linspace(420, 2440, 210)
    tags = [{"wavelength": str(w), "wavelength_units": "Nanometers", "bbl": str(int(w < 2400))} for w in wavelengths]
    path = write_tif(tmp_path / "enmap_tile.tif", np.ones((210, 2, 2), np.int16), band_tags=tags)
    assert choose_reader(path)[1].name == "enmap"
    cube = open_cube(path)
    assert cube.attrs["sensor"] == "EnMAP"
    assert int(cube.good.sum()) == (wavelengths < 2400).sum()
    maps = write_tif(tmp_path / "enmap_lai.tif", np.ones((2, 2, 2), np.float32))
    assert choose_reader(maps)[1].name == "raster"


# --- Sentinel-2


@functools.cache
def safe_images() -> dict[Path, bytes]:
    """The images of a Sentinel-2 L2A product of 8 x 8 pixels in 10 m, band i holding about 1000 (i + 1)."""
    images = {}
    for name, size in SAFE_IMAGES:
        pixels = 8 if size == "10m" else 4
        values = 1000 * (IDS.index(name.replace("B0", "B")) + 1) + np.arange(pixels * pixels)
        values = values.reshape(1, pixels, pixels).astype(np.uint16)
        values[0, 0, 0] = 0
        with tempfile.TemporaryDirectory() as folder:
            image = write_jp2(Path(folder) / "image.jp2", values, float(size[:-1]))
            images[image_of(Path(), name, size)] = image.read_bytes()
    return images


def write_jp2(path: Path, values: np.ndarray, pixel: float) -> Path:
    return write_tif(path, values, pixel, "JP2OpenJPEG", QUALITY=100, REVERSIBLE="YES")


def safe(folder: Path, baseline: str = "05.09", satellite: str = "Sentinel-2B") -> Path:
    """A Sentinel-2 L2A product; returns its folder."""
    root = folder / SAFE
    for image, content in safe_images().items():
        (root / image).parent.mkdir(parents=True, exist_ok=True)
        (root / image).write_bytes(content)
    listing = "".join(
        f"<IMAGE_FILE>{image_of(Path(), name, size).with_suffix('')}</IMAGE_FILE>\n"
        for name, size in (*SAFE_IMAGES, ("SCL", "20m"))
    )
    offsets = "".join(f'<BOA_ADD_OFFSET band_id="{i}">{-1000 - i}</BOA_ADD_OFFSET>' for i in range(13))
    spectral = "".join(
        f'<Spectral_Information bandId="{i}" physicalBand="{name}"><Wavelength><CENTRAL unit="nm">{440 + 10 * i}'
        "</CENTRAL></Wavelength></Spectral_Information>"
        for i, name in enumerate(IDS)
    )
    (root / "MTD_MSIL2A.xml").write_text(
        '<?xml version="1.0" encoding="UTF-8"?>\n<n1:Level-2A_User_Product xmlns:n1="https://psd-14.sentinel2.eo.esa.int/">'
        f"<n1:General_Info><Product_Info><PROCESSING_BASELINE>{baseline}</PROCESSING_BASELINE>"
        f"<Datatake><SPACECRAFT_NAME>{satellite}</SPACECRAFT_NAME></Datatake><Granule>{listing}</Granule></Product_Info>"
        "<Product_Image_Characteristics><QUANTIFICATION_VALUES_LIST>"
        '<BOA_QUANTIFICATION_VALUE unit="none">10000</BOA_QUANTIFICATION_VALUE></QUANTIFICATION_VALUES_LIST>'
        f"<BOA_ADD_OFFSET_VALUES_LIST>{offsets if baseline >= '04' else ''}</BOA_ADD_OFFSET_VALUES_LIST>{spectral}"
        "</Product_Image_Characteristics></n1:General_Info></n1:Level-2A_User_Product>"
    )
    return root


def image_of(root: Path, name: str, size: str) -> Path:
    return root / GRANULE / "IMG_DATA" / f"R{size}" / f"T33UUU_20230413T101559_{name}_{size}.jp2"


@pytest.mark.parametrize(
    ("values", "width"),
    [
        ("0 0.5 1 0.5 0", 4.0),
        ("0 0 1 1 0 0", 4.0),
        ("0.1 0.9 1 0.3", 2 * (1 + 0.4 / 0.8 + 0.5 / 0.7)),
        ("1 1 0", None),
        ("0 0 0", None),
    ],
)
def test_the_width_of_a_band_is_that_of_its_response_in_the_metadata(
    tmp_path: Path, values: str, width: float | None
) -> None:
    root = safe(tmp_path, satellite="Sentinel-2C")
    assert "fwhm" not in open_cube(root).coords
    response = f'<Spectral_Response><STEP unit="nm">2</STEP><VALUES>{values}</VALUES></Spectral_Response>'
    edit(root / "MTD_MSIL2A.xml", "</Spectral_Information>", response + "</Spectral_Information>")
    cube = open_cube(root)
    if width is None:
        assert "fwhm" not in cube.coords
        return
    np.testing.assert_allclose(cube.fwhm, width)
    assert cube.fwhm.attrs["comment"] == "from the responses in the metadata"


@pytest.mark.parametrize("give", ["folder", "metadata"])
def test_a_safe_folder_gives_the_bands_of_20_m_with_offset_and_b08_averaged(tmp_path: Path, give: str) -> None:
    root = safe(tmp_path)
    cube = open_cube(root if give == "folder" else root / "MTD_MSIL2A.xml")
    assert cube.dims == ("y", "x", "wavelength")
    assert cube.dtype == np.float32
    names = ["B01", "B02", "B05", "B08", "B8A", "B12"]
    assert cube.band_name.values.tolist() == names
    assert cube.chunks[2] == (6,)
    assert (np.diff(cube.wavelength) > 0).all()
    assert cube.wavelength.values[[0, -1]].tolist() == [442.2, 2185.7]
    assert cube.fwhm.values[-1] == 185
    assert cube.attrs == {"sensor": "Sentinel-2B"}
    assert cube.rio.crs == UTM
    assert cube.rio.transform() == Affine(20.0, 0.0, 300000.0, 0.0, -20.0, 5900040.0)
    computed = cube.compute()
    assert np.isnan(computed.values[0, 0, [0, 1]]).all()
    np.testing.assert_allclose(computed.values[0, 1, 1], (2000 + 1 - 1001) / 1e4, rtol=1e-5)
    fine = 8000.0 + np.arange(64).reshape(8, 8)
    fine[0, 0] = np.nan
    means = np.nanmean(fine.reshape(4, 2, 4, 2), axis=(1, 3))
    np.testing.assert_allclose(computed.values[..., 3], (means - 1007) / 1e4, rtol=1e-5)


def test_a_safe_folder_gives_its_10_m_bands_on_request(tmp_path: Path) -> None:
    cube = open_cube(safe(tmp_path), variable="10m")
    assert cube.band_name.values.tolist() == ["B02", "B08"]
    assert cube.sizes["y"] == 8
    with pytest.raises(ValueError, match=r"lists no 60m images"):
        open_cube(tmp_path / SAFE, variable="60m")
    with pytest.raises(ValueError, match=r"variable='30m' is no pixel size; use one of 10m, 20m, 60m"):
        open_cube(tmp_path / SAFE, variable="30m")


def test_products_before_baseline_04_have_no_offset(tmp_path: Path) -> None:
    cube = open_cube(safe(tmp_path, baseline="03.01"))
    np.testing.assert_allclose(cube.values[0, 1, 1], 2001 / 1e4, rtol=1e-5)


def test_a_safe_cube_is_lazy_chunked_at_will_and_pickles(tmp_path: Path) -> None:
    root = safe(tmp_path)
    whole = open_cube(root, chunks=None)
    assert isinstance(whole.data, np.ndarray)
    cube = open_cube(root, chunks={"y": 2, "wavelength": 3})
    assert cube.chunks == ((2, 2), (4,), (3, 3))
    np.testing.assert_array_equal(pickle.loads(pickle.dumps(cube)).values, whole.values)
    with dask.config.set({"array.chunk-size": "100B"}):
        small = open_cube(root)
    assert small.chunks[2] == (6,)
    assert len(small.chunks[0]) > 1
    np.testing.assert_array_equal(small.values, whole.values)
    with pytest.raises(ValueError, match=r"chunks= names \['line'\]"):
        open_cube(root, chunks={"line": 2})
    with pytest.raises(ValueError, match="chunks='all' is not understood"):
        open_cube(root, chunks="all")


def test_saturated_pixels_are_no_data(tmp_path: Path) -> None:
    root = safe(tmp_path)
    image = image_of(root, "B05", "20m")
    values = np.full((1, 4, 4), 60000, np.uint16)
    values[0, 1, 1] = 65535
    write_jp2(image, values, 20.0)
    band = open_cube(root).values[..., 2]
    assert np.argwhere(np.isnan(band)).tolist() == [[1, 1]]


def test_a_satellite_without_a_table_has_the_wavelengths_of_its_metadata(tmp_path: Path) -> None:
    root = safe(tmp_path, satellite="Sentinel-2C")
    cube = open_cube(root)
    assert cube.wavelength.values[:3].tolist() == [440, 450, 480]
    assert "fwhm" not in cube.coords
    edit(root / "MTD_MSIL2A.xml", "<Spectral_Information .*</Spectral_Information>", "")
    with pytest.raises(ValueError, match="no central wavelengths, which 'Sentinel-2C' needs"):
        open_cube(root)


def test_a_stack_of_sentinel_2_bands_has_their_wavelengths_and_no_other_layer(tmp_path: Path) -> None:
    values = np.full((4, 3, 3), 2500, np.int16)
    values[:, 0, 0] = 0
    path = write_tif(tmp_path / "stack.tif", values, names=["B12", "SCL", "B8A", "B2"])
    assert choose_reader(path)[1].name == "sentinel2"
    cube = open_cube(path, chunks={"wavelength": 1})
    assert cube.band_name.values.tolist() == ["B12", "B8A", "B02"]
    assert cube.wavelength.values.tolist() == [2202.4, 864.7, 492.4]
    assert cube.attrs["sensor"] == "Sentinel-2"
    assert "divided by 10000; no offset" in cube.attrs["comment"]
    assert "wavelengths of Sentinel-2A" in cube.attrs["comment"]
    assert np.isnan(cube.values[0, 0]).all()
    np.testing.assert_allclose(cube.values[1, 1], 0.25, rtol=1e-6)


def test_a_stack_keeps_the_scale_and_the_satellite_that_it_tells(tmp_path: Path) -> None:
    path = write_tif(tmp_path / "S2B_20230413.tif", np.full((2, 3, 3), 3000, np.uint16), names=["B03", "B08"])
    with rasterio.open(path, "r+") as file:
        file.scales, file.offsets = [1e-4, 1e-4], [-0.1, -0.1]
    cube = open_cube(path)
    assert cube.attrs == {"sensor": "Sentinel-2B"}
    assert cube.wavelength.values.tolist() == [559.0, 832.9]
    np.testing.assert_allclose(cube.values, 0.2, rtol=1e-6)
    floats = open_cube(write_tif(tmp_path / "S2A.tif", np.full((1, 2, 2), 0.3, np.float32), names=["B03"]))
    assert floats.attrs == {"sensor": "Sentinel-2A"}
    np.testing.assert_allclose(floats.values, 0.3)


def test_bands_called_b1_and_b2_alone_are_not_taken_for_sentinel_2_unless_asked(tmp_path: Path) -> None:
    path = write_tif(tmp_path / "camera.tif", np.ones((2, 3, 3), np.float32), names=["B1", "B2"])
    assert open_cube(path).dims == ("y", "x", "band")
    assert open_cube(path, reader="sentinel2").wavelength.values.tolist() == [442.7, 492.4]
    other = write_tif(tmp_path / "other.tif", np.ones((2, 3, 3), np.float32), names=["red", "nir"])
    with pytest.raises(ValueError, match="bands are called red, nir, which are not the names of Sentinel-2"):
        open_cube(other, reader="sentinel2")


# --- CRISM


def label_of(image: str, count: int, lines: int, samples: int, more: str = "", inner: str = "") -> str:
    return (
        "PDS_VERSION_ID                 = PDS3\r\n"
        'LABEL_REVISION_NOTE            = "2004-11-22, S. Slavney (GEO);\r\n              2005-12-20, H. Taylor"\r\n'
        'DATA_SET_ID                    = "MRO-M-CRISM-3-RDR-TARGETED-V1.0"\r\n'
        "INSTRUMENT_ID                  = CRISM\r\nPRODUCT_TYPE                   = TARGETED_RDR\r\n"
        'ORBIT_NUMBER                   = "NULL"\r\nMRO:OBSERVATION_NUMBER         = 16#01#\r\n'
        'SOURCE_PRODUCT_ID = {\r\n    "CDR410000000000_SH0300001S_4",\r\n    "CDR6_1_0000000000_AS_S_0"\r\n}\r\n'
        "MRO:INVALID_PIXEL_LOCATION = {\r\n}\r\n/* Targeted RDR Instrument and Observation Parameters */\r\n"
        'TARGET_CENTER_DISTANCE         = "NULL" <KM>\r\nSOLAR_DISTANCE                 = 249195696.7 <KM>\r\n'
        f'MRO:IKF_START_CHANNEL          = ("N/A", "N/A")\r\n{more}'
        f'OBJECT          = FILE\r\n  ^IMAGE        =  "{image}"\r\n  RECORD_TYPE   = FIXED_LENGTH\r\n'
        f"  RECORD_BYTES  = {samples * 4}\r\n  FILE_RECORDS  = {lines * count}\r\n  OBJECT              = IMAGE\r\n"
        f"    LINES             = {lines}\r\n    LINE_SAMPLES      = {samples}\r\n    SAMPLE_TYPE       = PC_REAL\r\n"
        f'    SAMPLE_BITS       = 32\r\n    UNIT              = "I_OVER_F"\r\n    BANDS             = {count}\r\n'
        f"    BAND_STORAGE_TYPE = LINE_INTERLEAVED\r\n{inner}  END_OBJECT = IMAGE\r\nEND_OBJECT = FILE\r\nEND\r\n"
    )


def crism(folder: Path) -> Path:
    """A CRISM TRDR of 3 bands, 4 lines and 5 columns, its WA file beside it in small letters; returns its label."""
    values = np.arange(60, dtype="<f4").reshape(3, 4, 5) / 100
    values[:, :, 0] = 65535
    (folder / f"{CRISM}.IMG").write_bytes(values.transpose(1, 0, 2).tobytes())
    label = folder / f"{CRISM}.LBL"
    label.write_text(label_of(f"{CRISM}.IMG", 3, 4, 5, f'MRO:WAVELENGTH_FILE_NAME       = "{WA}.IMG"\r\n'), newline="")
    wavelengths = np.array([[410.1], [1000.2], [530.3]], "<f4") + np.array([0, -1, 0, 0, 3], "<f4")
    wavelengths[:, 0] = 65535
    (folder / f"{WA.lower()}.img").write_bytes(wavelengths.tobytes())
    (folder / f"{WA.lower()}.lbl").write_text(label_of(f"{WA}.IMG", 3, 1, 5), newline="")
    return label


def crism_values() -> np.ndarray:
    expected = np.arange(60).reshape(3, 4, 5).transpose(1, 2, 0) / 100
    expected[:, 0] = np.nan
    return expected


@pytest.mark.parametrize("give", [".LBL", ".IMG"])
def test_a_crism_image_has_the_wavelengths_of_the_file_that_its_label_names(tmp_path: Path, give: str) -> None:
    crism(tmp_path)
    path = tmp_path / f"{CRISM}{give}"
    assert choose_reader(path)[1].name == "crism"
    cube = open_cube(path)
    assert cube.dims == ("y", "x", "wavelength")
    np.testing.assert_allclose(cube.wavelength, [410.1, 1000.2, 530.3], rtol=1e-6)
    assert cube.wavelength.attrs["units"] == "nm"
    assert cube.attrs == {"sensor": "CRISM"}
    np.testing.assert_allclose(cube.values, crism_values(), rtol=1e-6)


def test_names_of_the_bands_in_the_label_tell_wavelengths_where_nothing_else_does(tmp_path: Path) -> None:
    label = crism(tmp_path)
    edit(
        label,
        "MRO:WAVELENGTH_FILE_NAME .*",
        'BAND_NAME = ("BAND 1: 410.1 nm", "BAND 2: 1000.2 nm", "BAND 3: 530.3 nm")',
    )
    cube = open_cube(label)
    assert cube.wavelength.values.tolist() == [410.1, 1000.2, 530.3]
    edit(label, "nm", "mm")
    assert open_cube(label).dims == ("y", "x", "band")
    edit(label, "SAMPLE_TYPE( *)= PC_REAL", r"SAMPLE_TYPE\1= ODD")
    with pytest.raises(ValueError, match=r"TRR3\.IMG: its label has SAMPLE_TYPE 'ODD', which is not understood"):
        open_cube(label)


def test_a_folder_called_as_the_image_of_a_label_is_no_image(tmp_path: Path) -> None:
    label = crism(tmp_path)
    image = tmp_path / f"{CRISM}.IMG"
    image.unlink()
    image.mkdir()
    with pytest.raises(FileNotFoundError, match=r"TRR3\.LBL: the image .* is not beside it"):
        open_cube(label)


def test_an_envi_header_beside_a_crism_image_comes_before_the_wavelength_file(tmp_path: Path) -> None:
    crism(tmp_path)
    (tmp_path / f"{WA.lower()}.img").unlink()
    header = tmp_path / f"{CRISM}.hdr"
    header.write_text(
        "ENVI\nsamples = 5\nlines = 4\nbands = 3\ndata type = 4\ninterleave = bil\nbyte order = 0\n"
        "wavelength units = Micrometers\nwavelength = {0.4101, 1.0002, 0.5303}\nbbl = {1, 1, 0}\n"
    )
    for path in (header, tmp_path / f"{CRISM}.IMG", tmp_path / f"{CRISM}.LBL"):
        cube = open_cube(path)
        assert describe_bands(cube, "wavelength").unit == "um"
        assert cube.good.values.tolist() == [True, True, False]
        np.testing.assert_allclose(cube.values, crism_values(), rtol=1e-6)
    edit(header, "bands = 3", "bands = 2")
    edit(header, r"\{0.4101, 1.0002, 0.5303\}\nbbl.*", "{0.4, 0.5}")
    with pytest.raises(
        ValueError, match=r"240 bytes where the header promises 160, 2 bands of 4 lines|2 bands where .* has 3"
    ):
        open_cube(header)


def test_a_crism_image_converted_to_envi_needs_no_label(tmp_path: Path) -> None:
    label = crism(tmp_path)
    label.unlink()
    image, header = tmp_path / f"{CRISM}.IMG", tmp_path / f"{CRISM}.hdr"
    with pytest.raises(FileNotFoundError, match=r"neither a PDS3 label .*TRR3\.LBL nor an ENVI header beside it"):
        open_cube(image)
    text = "ENVI\nsamples = 5\nlines = 4\nbands = 3\ndata type = 4\ninterleave = bil\nbyte order = 0\n"
    header.write_text(text)
    with pytest.raises(ValueError, match=r"TRR3\.hdr: no wavelengths; add them"):
        open_cube(header)
    header.write_text(text + "wavelength = {0.41, 1.0, 0.53}\nwavelength units = Micrometers\n")
    for path in (header, image):
        cube = open_cube(path)
        assert cube.attrs == {"sensor": "CRISM"}
        np.testing.assert_allclose(cube.values, crism_values(), rtol=1e-6)


def test_a_table_of_wavelengths_serves_as_well(tmp_path: Path) -> None:
    label = crism(tmp_path)
    edit(label, rf"{WA}\.IMG", "T0877_MRRWV_1.TAB")
    (tmp_path / "T0877_MRRWV_1.TAB").write_text("1, 410.10, 6.4\r\n2, 1000.20, 6.5\r\n3, 530.30, 6.6\r\n")
    assert open_cube(label).wavelength.values.tolist() == [410.1, 1000.2, 530.3]


def test_an_attached_label_with_wavelengths_of_its_own_needs_no_other_file(tmp_path: Path) -> None:
    inner = (
        "    BAND_BIN_CENTER   = (0.41, 1.0, 0.53)\r\n    BAND_BIN_WIDTH    = (0.01, 0.02, 0.03)\r\n"
        "    BAND_BIN_UNIT     = MICROMETER\r\n"
    )
    text = label_of("x", 3, 4, 5, inner=inner).replace('^IMAGE        =  "x"', "^IMAGE        = 101")
    text = text.replace("INSTRUMENT_ID                  = CRISM", "INSTRUMENT_ID                  = VIMS")
    text = text.replace('"I_OVER_F"', '"W/m**2/sr/um"')
    path = tmp_path / "cube.img"
    values = np.arange(60, dtype="<f4").reshape(4, 3, 5)
    path.write_bytes(text.encode().ljust(2000) + values.tobytes())
    cube = open_cube(path)
    assert describe_bands(cube, "wavelength").wavelength.tolist() == [410, 1000, 530]
    assert cube.fwhm.values.tolist() == [0.01, 0.02, 0.03]
    assert cube.attrs == {"sensor": "VIMS", "units": "W/m**2/sr/um"}
    np.testing.assert_array_equal(cube.values, values.transpose(0, 2, 1))
    path.write_bytes(path.read_bytes()[:-4])
    with pytest.raises(ValueError, match="truncated, 2236 bytes where its label promises 2240"):
        open_cube(path)


def test_a_crism_product_of_other_layers_is_a_cube_by_band(tmp_path: Path) -> None:
    label = crism(tmp_path)
    edit(label, rf'"{WA}\.IMG"', '"N/A"')
    edit(label, "    BAND_STORAGE", '    BAND_NAME = ("INCIDENCE", "EMISSION", "PHASE")\r\n    BAND_STORAGE')
    cube = open_cube(label)
    assert cube.dims == ("y", "x", "band")
    assert cube.band.values.tolist() == ["INCIDENCE", "EMISSION", "PHASE"]


# --- what is wrong with a file is told in one line

MADE: dict[str, Callable[[Path], Path]] = {"enmap": enmap, "sentinel2": safe, "crism": crism}


def break_side(kind: str, old: str, new: str) -> Callable[[Path], None]:
    names = {"enmap": f"{ENMAP}-METADATA.XML", "sentinel2": f"{SAFE}/MTD_MSIL2A.xml", "crism": f"{CRISM}.LBL"}
    return lambda folder: edit(folder / names[kind], old, new)


BROKEN: dict[str, tuple[str, Callable[[Path], None], type[Exception], str]] = {
    "enmap truncated": (
        *("enmap", lambda f: cut(f / f"{ENMAP}-SPECTRAL_IMAGE.TIF")),
        *(ValueError, r"SPECTRAL_IMAGE\.TIF: (truncated|not a raster)"),
    ),
    "enmap truncated metadata": (
        *("enmap", lambda f: cut(f / f"{ENMAP}-METADATA.XML")),
        *(ValueError, r"METADATA\.XML: not readable as XML, damaged or truncated"),
    ),
    "enmap text under its name": (
        *("enmap", lambda f: (f / f"{ENMAP}-SPECTRAL_IMAGE.TIF").write_text("hello")),
        *(ValueError, r"SPECTRAL_IMAGE\.TIF: not a raster file"),
    ),
    "enmap empty": (
        *("enmap", lambda f: (f / f"{ENMAP}-SPECTRAL_IMAGE.TIF").write_text("")),
        *(ValueError, r"SPECTRAL_IMAGE\.TIF: the file is empty"),
    ),
    "enmap without metadata": (
        *("enmap", lambda f: (f / f"{ENMAP}-METADATA.XML").unlink()),
        *(FileNotFoundError, r"no ENMAP01.*-METADATA\.XML beside it"),
    ),
    "enmap without wavelength": (
        *("enmap", break_side("enmap", "<wavelengthCenterOfBand>993.1</wavelengthCenterOfBand>", "")),
        *(ValueError, "wavelengthCenterOfBand of band 2 is missing"),
    ),
    "enmap wavelength is text": (
        *("enmap", break_side("enmap", ">993.1<", ">green<")),
        *(ValueError, "wavelengthCenterOfBand of band 2 holds 'green' where a number belongs"),
    ),
    "enmap repeated wavelength": (
        *("enmap", break_side("enmap", ">993.1<", ">418.4<")),
        *(ValueError, r"METADATA\.XML: 'wavelength' holds repeated values"),
    ),
    "enmap wavelengths in um": (
        *("enmap", break_side("enmap", ">(\\d+)\\.(\\d)</wave", ">0.\\1\\2</wave")),
        *(ValueError, r"METADATA\.XML: units 'nm' contradict the values"),
    ),
    "enmap other band count": (
        *("enmap", break_side("enmap", '<bandID number="4".*</bandID>', "")),
        *(ValueError, r"describes 3 bands where .*SPECTRAL_IMAGE\.TIF holds 4"),
    ),
    "enmap bands out of order": (
        *("enmap", break_side("enmap", 'number="4"', 'number="5"')),
        *(ValueError, "bands are not numbered from 1 to 4 in order"),
    ),
    "enmap without bands": (
        *("enmap", break_side("enmap", "bandCharacterisation", "other")),
        *(ValueError, "no bandCharacterisation, so no wavelengths"),
    ),
    "enmap radiance": (
        *("enmap", break_side("enmap", "<level>L2A", "<level>L1C")),
        *(ValueError, "level L1C, which is not surface reflectance"),
    ),
    "sentinel2 truncated": (
        *("sentinel2", lambda f: cut(write_jp2(image_of(f / SAFE, "B05", "20m"), noise(), 20.0), 0.9)),
        *(ValueError, r"B05_20m\.jp2: truncated, \d+ bytes and no end of the code stream"),
    ),
    "sentinel2 header only": (
        *("sentinel2", lambda f: cut(image_of(f / SAFE, "B05", "20m"), 0.1)),
        *(ValueError, r"B05_20m\.jp2: not a raster file"),
    ),
    "sentinel2 text under its name": (
        *("sentinel2", lambda f: image_of(f / SAFE, "B05", "20m").write_text("hello")),
        *(ValueError, r"B05_20m\.jp2: not a raster file"),
    ),
    "sentinel2 empty image": (
        *("sentinel2", lambda f: image_of(f / SAFE, "B05", "20m").write_text("")),
        *(ValueError, r"B05_20m\.jp2: not a raster file"),
    ),
    "sentinel2 image missing": (
        *("sentinel2", lambda f: image_of(f / SAFE, "B8A", "20m").unlink()),
        *(FileNotFoundError, r"B8A_20m\.jp2: missing, though MTD_MSIL2A\.xml lists it"),
    ),
    "sentinel2 metadata missing": (
        *("sentinel2", lambda f: (f / SAFE / "MTD_MSIL2A.xml").unlink()),
        *(FileNotFoundError, r"SAFE: no MTD_MSIL2A\.xml in this folder"),
    ),
    "sentinel2 truncated metadata": (
        *("sentinel2", lambda f: cut(f / SAFE / "MTD_MSIL2A.xml")),
        *(ValueError, r"MTD_MSIL2A\.xml: not readable as XML"),
    ),
    "sentinel2 level 1C": (
        *("sentinel2", lambda f: (f / SAFE / "MTD_MSIL2A.xml").rename(f / SAFE / "MTD_MSIL1C.xml")),
        *(ValueError, "level 1C, which is not surface reflectance"),
    ),
    "sentinel2 other metadata": (
        *("sentinel2", break_side("sentinel2", "Level-2A_User_Product", "Level-1C_User_Product")),
        *(ValueError, "a Level-1C_User_Product, not a Level-2A_User_Product"),
    ),
    "sentinel2 no satellite": (
        *("sentinel2", break_side("sentinel2", "SPACECRAFT_NAME", "OTHER")),
        *(ValueError, "no SPACECRAFT_NAME, so no wavelengths"),
    ),
    "sentinel2 no offsets": (
        *("sentinel2", break_side("sentinel2", "BOA_ADD_OFFSET ", "OTHER ")),
        *(ValueError, r"(no BOA_ADD_OFFSET, which baseline 04\.00 and later have|not readable as XML)"),
    ),
    "sentinel2 no quantification": (
        *("sentinel2", break_side("sentinel2", "BOA_QUANTIFICATION_VALUE", "OTHER")),
        *(ValueError, "BOA_QUANTIFICATION_VALUE is missing"),
    ),
    "sentinel2 quantification zero": (
        *("sentinel2", break_side("sentinel2", ">10000<", ">0<")),
        *(ValueError, "BOA_QUANTIFICATION_VALUE 0 is not positive"),
    ),
    "sentinel2 two granules": (
        *(
            "sentinel2",
            break_side("sentinel2", "</Granule>", "<IMAGE_FILE>GRANULE/x/IMG_DATA/y</IMAGE_FILE></Granule>"),
        ),
        *(ValueError, "2 granules; products of one tile only"),
    ),
    "sentinel2 images of other sizes": (
        *(
            "sentinel2",
            lambda f: write_jp2(image_of(f / SAFE, "B12", "20m"), np.ones((1, 6, 6), np.uint16), 20.0),
        ),
        *(ValueError, r"B12_20m\.jp2: its \(6, 6\) pixels do not fit the \(4, 4\)"),
    ),
    "crism truncated": (
        *("crism", lambda f: cut(f / f"{CRISM}.IMG")),
        *(ValueError, r"TRR3\.IMG: truncated, 168 bytes where its label promises 240"),
    ),
    "crism truncated label": (
        *("crism", lambda f: cut(f / f"{CRISM}.LBL", 0.3)),
        *(ValueError, r"TRR3\.LBL: truncated, the label has no END"),
    ),
    "crism empty label": (
        *("crism", lambda f: (f / f"{CRISM}.LBL").write_text("")),
        *(ValueError, r"TRR3\.LBL: the file is empty"),
    ),
    "crism image missing": (
        *("crism", lambda f: (f / f"{CRISM}.IMG").unlink()),
        *(FileNotFoundError, rf"the image {CRISM}\.IMG that it describes is not beside it"),
    ),
    "crism wavelength file missing": (
        *("crism", lambda f: (f / f"{WA.lower()}.img").unlink()),
        *(FileNotFoundError, rf"the wavelengths are in {WA}\.IMG, which is not beside it.*ENVI header"),
    ),
    "crism wavelength file without label": (
        *("crism", lambda f: (f / f"{WA.lower()}.lbl").unlink()),
        *(FileNotFoundError, rf"no label {WA.lower()}\.LBL beside it"),
    ),
    "crism wavelength file truncated": (
        *("crism", lambda f: cut(f / f"{WA.lower()}.img")),
        *(ValueError, rf"{WA.lower()}\.img: truncated"),
    ),
    "crism wavelength file of other bands": (
        *("crism", lambda f: (f / f"{WA.lower()}.lbl").write_text(label_of(f"{WA}.IMG", 2, 1, 5), newline="")),
        *(ValueError, r"wavelengths of 2 bands where .*TRR3\.LBL has 3"),
    ),
    "crism wavelength table without wavelengths": (
        *(
            "crism",
            lambda f: (edit(f / f"{CRISM}.LBL", rf"{WA}\.IMG", "W.TAB"), (f / "W.TAB").write_text("1, 2\n2, 3\n")),
        ),
        *(ValueError, r"W\.TAB: no column of wavelengths from 350 to 4100 nm"),
    ),
    "crism other number of wavelengths": (
        *("crism", break_side("crism", "    BAND_STORAGE", "    BAND_BIN_CENTER = (0.4, 0.5)\r\n    BAND_STORAGE")),
        *(ValueError, "2 values of BAND_BIN_CENTER for 3 bands"),
    ),
    "crism wavelengths are text": (
        *(
            "crism",
            break_side("crism", "    BAND_STORAGE", '    BAND_BIN_CENTER = ("a", "b", "c")\r\n    BAND_STORAGE'),
        ),
        *(ValueError, r"BAND_BIN_CENTER holds \['a', 'b', 'c'\] where numbers belong"),
    ),
    "crism unknown unit": (
        *(
            "crism",
            break_side(
                *("crism", "    BAND_STORAGE"),
                "    BAND_BIN_CENTER = (0.4, 0.5, 0.6)\r\n    BAND_BIN_UNIT = PARSEC\r\n    BAND_STORAGE",
            ),
        ),
        *(ValueError, r"TRR3\.LBL: units 'PARSEC' of 'wavelength' are not understood"),
    ),
}


def noise() -> np.ndarray:
    return np.random.default_rng(0).integers(1, 9999, (1, 40, 40)).astype(np.uint16)


@pytest.mark.parametrize("case", BROKEN)
def test_a_damaged_product_is_told_in_one_line_and_never_read_as_something_else(tmp_path: Path, case: str) -> None:
    kind, damage, error, message = BROKEN[case]
    path = MADE[kind](tmp_path)
    damage(tmp_path)
    with pytest.raises(error, match=message) as caught:
        open_cube(path)
    assert "\n" not in str(caught.value)
    assert str(tmp_path) in str(caught.value)


@pytest.mark.parametrize("kind", MADE)
def test_a_product_that_may_not_be_read_is_an_error(tmp_path: Path, kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    path = MADE[kind](tmp_path)

    def refuse(*args: object, **kwargs: object) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr("pathlib.Path.open", refuse)
    monkeypatch.setattr("os.listdir", refuse)
    with pytest.raises(PermissionError, match=rf"{path.name}: no permission to read this f(ile|older)"):
        open_cube(path)


@pytest.mark.parametrize("kind", MADE)
def test_products_hold_one_cube_each(tmp_path: Path, kind: str) -> None:
    with pytest.raises(ValueError, match="variable='r' is"):
        open_cube(MADE[kind](tmp_path), variable="r")


def test_a_zipped_product_is_to_be_unzipped(tmp_path: Path) -> None:
    path = tmp_path / SAFE.replace(".SAFE", ".zip")
    path.write_bytes(b"PK\x03\x04")
    with pytest.raises(ValueError, match="unzip the product"):
        open_cube(path)


@pytest.mark.parametrize(
    ("kind", "parts"),
    [
        (
            "enmap",
            [
                "y 5, x 6, wavelength 4",
                "reader enmap",
                "sensor EnMAP",
                "4 bands, 418.4 to 1390.2 nm, not in order",
                "3 bands marked good",
                "EPSG:32633, pixels of 30 x 30 metre",
            ],
        ),
        ("sentinel2", ["y 4, x 4, wavelength 6", "reader sentinel2", "Sentinel-2B", "442.2 to 2185.7 nm", "20 x 20"]),
        ("crism", ["y 4, x 5, wavelength 3", "reader crism", "sensor CRISM", "3 bands, 410.1 to 1000.2 nm, not in"]),
    ],
)
def test_info_tells_reader_sensor_bands_and_place_of_every_product(tmp_path: Path, kind: str, parts: list[str]) -> None:
    text = describe_file(MADE[kind](tmp_path))
    for part in parts:
        assert part in text


def test_info_takes_the_variable_and_the_reader_that_open_cube_takes(tmp_path: Path) -> None:
    assert "y 8, x 8, wavelength 2" in describe_file(safe(tmp_path), variable="10m")
    camera = write_tif(tmp_path / "camera.tif", np.ones((2, 3, 3), np.float32), names=["B1", "B2"])
    assert "2 bands: B1, B2" in describe_file(camera)
    assert "2 bands, 442.7 to 492.4 nm" in describe_file(camera, reader="sentinel2")
