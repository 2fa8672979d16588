"""Small files in the true layout of products of EnMAP, Sentinel-2 and CRISM."""

import functools
import re
import tempfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import rasterio
from affine import Affine
from rasterio.crs import CRS

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


MADE: dict[str, Callable[[Path], Path]] = {"enmap": enmap, "sentinel2": safe, "crism": crism}
