"""Measured spectra with known parameters, and the simulations, noise and settings that `measured.py` trains with.

Everything here was written before a score was seen on its set, but for `lai` and `leaves`, whose blind recipes are that
of lai_sentinel2.py and a cleaner one than that of leaf_traits.py.  No file is shipped; `SOURCES` says where each is.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import lai_sentinel2
import leaf_traits
import numpy as np
import pandas as pd
import scipy.io
import scipy.optimize
import xarray as xr

from specinvert.nuisance import Gain, Noise, Nuisance, Offset

SIMULATIONS = 10000
COPIES = 25  # of each spectrum, where training is measured: each has its own draw of the nuisance
FULL: dict[str, Any] = {"n_components": 25, "n_latent": 0, "sigma": "full", "tol": 5e-3}
FEW: dict[str, Any] = {"n_components": 2, "n_latent": 0, "sigma": "full", "tied_sigma": True, "tol": 5e-3}

SOURCES = {
    "lai": "crop_traits_lai.csv of github.com/EOA-team/sentinel2_crop_traits (GPL-3)",
    "lai_2023": "results/validation_data_extended_angles_shift.pkl of github.com/EOA-team/RTMinv_ML, as a CSV file",
    "leaves": "ely_plsr_data of the R package spectratrait (GPL-3), as a CSV file",
    "sea": "tropical_pacific_matchups/seawifs_matchups.csv of github.com/nicpittman/TPCA_source_and_matchups",
    "sea_modis": "modis_matchups.csv there",
    "samson": "samson.mat, the scene with its abundances and end-members",
    "jasper": "UPCGIT_Jasper.mat, the scene with its abundances and end-members",
    "corn_mp5": "the folder testdata/corn of github.com/bitjungle/gopca; made by Cargill, eigenvector.com/data/Corn",
    "corn_mp6": "as corn_mp5",
    "sugarcane": "the files of Chaix, Bendoula and Zgouz, doi 10.17632/mjttsjfj2s.1 (CC BY 4.0)",
    "cassava": "the folder data of github.com/mlesnoff/JchemoData.jl",
}


@dataclass(frozen=True)
class MeasuredSet:
    """A problem: what to train with, and what to score on."""

    training: xr.Dataset  # without noise; may hold more variables than are wanted
    nuisance: Nuisance  # what is declared to lie between training and measurements, drawn for each training spectrum
    target: xr.Dataset  # measured spectra, true parameters, and the coordinate `group` along dimension `row`
    parameters: list[str]  # of the model; those that `target` has are scored
    settings: dict[str, Any]  # of GLLiMInverter
    others: dict[str, xr.Dataset] = field(default_factory=dict)  # estimates that came with the data: p, p_low, p_high
    fineness: float = 0.0  # half of what the truth is told to: an interval that ends so near to it holds it


def dataset(
    wavelengths: np.ndarray | list[float], spectra: np.ndarray, groups: np.ndarray | None = None, **values: Any
) -> xr.Dataset:
    """Spectra (row, wavelength) and parameters (row,), as GLLiMInverter takes them."""
    data = xr.Dataset(
        {"reflectance": (("row", "wavelength"), np.asarray(spectra, float), {"units": "1"})},
        coords={"wavelength": ("wavelength", np.asarray(wavelengths, float), {"units": "nm"})},
    )
    data = data.assign({name: ("row", np.asarray(value, float)) for name, value in values.items()})
    return data if groups is None else data.assign_coords(group=("row", np.asarray(groups)))


def canopies() -> xr.Dataset:
    """PROSAIL canopies as lai_sentinel2.py makes them."""
    return lai_sentinel2.labelled(*lai_sentinel2.simulate(SIMULATIONS))


def lai(path: Path) -> MeasuredSet:
    """Leaf area index of wheat from Sentinel-2; a group is a farm on a date."""
    rows = pd.read_csv(path).dropna(subset=["lai"]).reset_index(drop=True)
    spectra = rows[list(lai_sentinel2.BANDS)].to_numpy()
    groups = rows["parcel"].astype(str) + " " + rows["date_model"]
    target = dataset([c for c, _ in lai_sentinel2.BANDS.values()], spectra, groups.to_numpy(str), lai=rows["lai"])
    named = {"lai": "lai_all", "lai_low": "lai_q05_all", "lai_high": "lai_q95_all"}
    other = xr.Dataset({name: ("row", rows[column].to_numpy(float)) for name, column in named.items()})
    return MeasuredSet(canopies(), lai_sentinel2.WORLD, target, ["lai"], FULL, {"look-up table of the data": other})


def lai_2023(path: Path) -> MeasuredSet:
    """The rows of another season, of which the first table has none."""
    rows = pd.read_csv(path).dropna(subset=["lai"])
    rows = rows[rows["date"].str.startswith("2023")].reset_index(drop=True)
    spectra = rows[list(lai_sentinel2.BANDS)].to_numpy()
    groups = (rows["location"] + " " + rows["date"].str[:10]).to_numpy(str)
    target = dataset([c for c, _ in lai_sentinel2.BANDS.values()], spectra, groups, lai=rows["lai"])
    return MeasuredSet(canopies(), lai_sentinel2.WORLD, target, ["lai"], FULL)


def leaves(path: Path) -> MeasuredSet:
    """Water and dry mass of leaves, broad prior, declared offset and gain; a group is a species."""
    bands = np.arange(500, 2401, 20)
    traits, spectra = leaf_traits.simulate("broad", SIMULATIONS)
    inputs = {name: traits[:, i] for i, name in enumerate(leaf_traits.PROSPECT)}
    training = dataset(bands, spectra[:, bands - leaf_traits.GRID[0]], **inputs)
    measured = leaf_traits.read_leaves(path).sel(wavelength=bands)
    values = {name: measured[name].values for name in leaf_traits.TRAITS}
    groups = pd.read_csv(path)["Species_Code"].to_numpy(str)
    target = dataset(bands, measured["reflectance"].values, groups, **values)
    nuisance = Offset(0.0115, mean=0.01) | Gain(0.05) | Noise(white=0.002)
    return MeasuredSet(training, nuisance, target, list(leaf_traits.PROSPECT), FULL)


SEAWIFS, MODIS = (443.0, 490.0, 510.0, 555.0, 670.0), (443.0, 488.0, 547.0, 667.0)
WATER = {  # nm: absorption of water, 1/m (Pope and Fry, 1997), and of cells, factor chlorophyll^power (Bricaud, 1998)
    443.0: (0.00707, 0.0371, 0.615),
    488.0: (0.0145, 0.02589, 0.599),
    490.0: (0.0150, 0.02537, 0.607),
    510.0: (0.0325, 0.01618, 0.721),
    547.0: (0.0528, 0.00745, 0.924),
    555.0: (0.0596, 0.00625, 0.944),
    667.0: (0.4345, 0.01561, 0.816),
    670.0: (0.439, 0.01739, 0.814),
}


def sea_water(bands: tuple[float, ...], n: int, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Log10 of chlorophyll in mg/m3 (n,) and remote-sensing reflectance in 1/sr (n, bands) of case-1 waters.

    The absorption and scattering of cells, dissolved matter and detritus are drawn as for the synthetic set of IOCCG
    report 5 (2006, chapter 3), with chlorophyll from 0.01 to 30; reflectance is that of Lee et al. (2002).
    """
    nm = np.array(bands)
    water, factor, power = np.array([WATER[band] for band in bands]).T
    rng = np.random.default_rng(seed)
    log_chlorophyll, *u = rng.uniform(size=(9, n, 1))
    log_chlorophyll = -2.0 + 3.48 * log_chlorophyll
    chlorophyll = 10.0**log_chlorophyll
    cells = factor * chlorophyll**power
    blue = cells[:, :1]
    yellow = (0.3 + 5.7 * u[0] * blue / (0.02 + blue)) * blue * np.exp(-(0.01 + 0.01 * u[1]) * (nm - 440.0))
    detritus = (0.1 + 0.5 * u[2] * blue / (0.05 + blue)) * blue * np.exp(-(0.007 + 0.008 * u[3]) * (nm - 440.0))
    fresh = 1.0 + np.sqrt(chlorophyll)
    of_cells = (0.06 + 0.54 * u[4]) * chlorophyll**0.57 * (550.0 / nm) ** (-0.4 + (1.6 + 1.2 * u[5]) / fresh)
    of_detritus = (0.06 + 0.54 * u[6]) * chlorophyll**0.766 * (550.0 / nm) ** (-0.5 + (2.0 + 1.2 * u[7]) / fresh)
    back = 0.00144 * (nm / 500.0) ** -4.32 + 0.01 * np.maximum(of_cells - cells, 0.0) + 0.0183 * of_detritus
    share = back / (water + cells + yellow + detritus + back)
    below = (0.0895 + 0.1247 * share) * share
    return log_chlorophyll[:, 0], 0.52 * below / (1.0 - 1.7 * below)


def matchups(path: Path, bands: tuple[float, ...]) -> MeasuredSet:
    """Chlorophyll of the tropical Pacific, log10; a group is a quarter of a year."""
    rows = pd.read_csv(path)
    spectra = rows[[f"rrs{band:.0f}" for band in bands]].to_numpy()
    groups = pd.to_datetime(rows["obs_date"]).dt.to_period("Q").astype(str).to_numpy(str)
    target = dataset(np.array(bands), spectra, groups, chlorophyll=np.log10(rows["in_situ_chl"]))
    names = {"NASA_chlor_a": "NASA OCI", "TPCA_chl": "TPCA", "chl_ocx": "OCx"}
    logs = np.log10(rows[list(names)])
    others = {label: xr.Dataset({"chlorophyll": ("row", logs[column])}) for column, label in names.items()}
    values, simulated = sea_water(bands, SIMULATIONS)
    training = dataset(np.array(bands), simulated, chlorophyll=values)
    return MeasuredSet(training, Noise(white=2e-4, relative=0.05), target, ["chlorophyll"], FULL, others)


def sea(path: Path) -> MeasuredSet:
    """By SeaWiFS."""
    return matchups(path, SEAWIFS)


def sea_modis(path: Path) -> MeasuredSet:
    """By MODIS-Aqua."""
    return matchups(path, MODIS)


PURE = 20  # pixels of the scene that stand for an end-member


def mixed(wavelengths: np.ndarray, scene: dict[str, Any], names: list[str]) -> MeasuredSet:
    """A square scene with known shares of materials, trained with mixtures of its end-members.

    The file has end-members of unit height, so each is the mean of the pixels nearest to it in angle.  Every third line
    and column and every second band is used; a group is one of 25 tiles.  The last share is one less the others, and no
    parameter.  Least squares are those of positive shares, divided by their sum.
    """
    shares, side = scene["S_GT"], len(scene["S_GT"])
    cube = scene["Y"].T.reshape(side, side, -1).swapaxes(0, 1)[..., ::2] / scene["Y"].max()
    flat = cube.reshape(side * side, -1)
    closeness = scene["GT"][:, ::2] @ flat.T / np.maximum(np.linalg.norm(flat, axis=1), 1e-12)
    ends = np.stack([flat[order[-PURE:]].mean(axis=0) for order in np.argsort(closeness, axis=1)])
    drawn = np.random.default_rng(0).dirichlet(np.full(len(ends), 0.5), SIMULATIONS // 2)
    training = dataset(wavelengths[::2], drawn @ ends, **{name: drawn[:, i] for i, name in enumerate(names)})
    y, x = (index[::3, ::3].ravel() for index in np.indices((side, side)))
    truth = {name: shares[y, x, i] for i, name in enumerate(names)}
    target = dataset(wavelengths[::2], cube[y, x], 5 * (5 * y // side) + 5 * x // side, **truth)
    nuisance = Gain(0.2) | Noise(white=0.01, relative=0.02)
    fitted = np.stack([scipy.optimize.nnls(ends.T, pixel)[0] for pixel in cube[y, x]])
    fitted /= np.maximum(fitted.sum(axis=1, keepdims=True), 1e-12)
    squares = {"least squares": xr.Dataset({name: ("row", fitted[:, i]) for i, name in enumerate(names)})}
    return MeasuredSet(training, nuisance, target, names[:-1], FULL | {"tied_sigma": True}, squares, 0.005)


def samson(path: Path) -> MeasuredSet:
    """Shares of soil, tree and water."""
    return mixed(np.linspace(401.0, 889.0, 156), scipy.io.loadmat(path), ["soil", "tree", "water"])


def jasper(path: Path) -> MeasuredSet:
    """Shares of tree, water, soil and road."""
    bands = np.delete(np.linspace(380.0, 2500.0, 224), np.r_[0:3, 107:112, 153:166, 219:224])
    return mixed(bands, scipy.io.loadmat(path), ["tree", "water", "soil", "road"])


def repeated(training: xr.Dataset) -> xr.Dataset:
    """Measured spectra in several copies, for as many draws of the nuisance."""
    return training.isel(row=np.tile(np.arange(training.sizes["row"]), COPIES))


def corn(path: Path, instrument: str) -> MeasuredSet:
    """Moisture, oil, protein and starch of corn: trained on one spectrometer, scored on other samples on another."""
    values = pd.read_csv(path / "corn_propvals.csv").rename(columns=str.lower)
    first, second = (pd.read_csv(path / f"corn_{name}spec.csv").iloc[:, ::10] for name in ("m5", instrument))
    bands, even = first.columns.astype(float).to_numpy(), np.arange(len(values)) % 2 == 0
    training = dataset(bands, first[even].to_numpy(), **{n: values[n][even] for n in values})
    groups = np.arange((~even).sum()) // 4
    target = dataset(bands, second[~even].to_numpy(), groups, **{n: values[n][~even] for n in values})
    nuisance = Offset(0.02) | Gain(0.02) | Noise(white=5e-4)
    return MeasuredSet(repeated(training), nuisance, target, list(values), FEW)


def corn_mp5(path: Path) -> MeasuredSet:
    """To the instrument mp5."""
    return corn(path, "mp5")


def corn_mp6(path: Path) -> MeasuredSet:
    """To the instrument mp6."""
    return corn(path, "mp6")


def sugarcane(path: Path) -> MeasuredSet:
    """Sugar and protein of sugarcane: from one hand-held spectrometer to another, on other samples."""
    files = ("Micronir1700rep1.CSV", "Nirscan_nano.CSV", "References.csv")
    read = [pd.read_csv(path / file, sep=";", index_col=0).map(str).replace(r"\s", "", regex=True) for file in files]
    first, second, values = (table.apply(pd.to_numeric, errors="coerce") for table in read)
    values = values[["TS", "CP"]].dropna()
    bands, others = (table.columns.astype(float).to_numpy() for table in (first, second))
    moved = np.stack([np.interp(bands, others, row) for row in second.loc[values.index].to_numpy()])
    first = first.loc[values.index]
    even = np.arange(len(values)) % 2 == 0
    named = {"sugar": values["TS"].to_numpy(), "protein": values["CP"].to_numpy()}
    training = dataset(bands, first.to_numpy()[even], **{name: v[even] for name, v in named.items()})
    groups = np.arange((~even).sum()) // 4
    target = dataset(bands, moved[~even], groups, **{name: v[~even] for name, v in named.items()})
    nuisance = Offset(0.02) | Gain(0.02) | Noise(white=5e-4)
    return MeasuredSet(repeated(training), nuisance, target, list(named), FEW)


def cassava(path: Path) -> MeasuredSet:
    """Carotene of cassava roots: trained on the harvests of 2009 to 2012, scored on that of 2013."""
    values = pd.read_csv(path / "cassav_Y.csv", sep=";")
    spectra = pd.read_csv(path / "cassav_X.csv", sep=";").iloc[:, ::5]
    bands, before = spectra.columns.astype(float).to_numpy(), (values["year"] < 2013).to_numpy()
    training = dataset(bands, spectra[before].to_numpy(), carotene=values["tbc"][before])
    groups = np.arange((~before).sum()) // 5
    target = dataset(bands, spectra[~before].to_numpy(), groups, carotene=values["tbc"][~before])
    nuisance = Offset(0.02) | Gain(0.02) | Noise(white=5e-4)
    return MeasuredSet(repeated(training), nuisance, target, ["carotene"], FEW)


SETS: dict[str, Callable[[Path], MeasuredSet]] = {
    "lai": lai,
    "lai_2023": lai_2023,
    "leaves": leaves,
    "sea": sea,
    "sea_modis": sea_modis,
    "samson": samson,
    "jasper": jasper,
    "corn_mp5": corn_mp5,
    "corn_mp6": corn_mp6,
    "cassava": cassava,
    "sugarcane": sugarcane,
}
