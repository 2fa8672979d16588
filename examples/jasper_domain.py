"""Out of the domain or not: a material that training has never seen, on the AVIRIS image of Jasper Ridge.

For each of the four materials: train on real pixels that hold less than 5 % of it, and ask for the quality flag of
pixels that hold more than 90 % (all should be flagged) and of a tenth of the others, held out (about 1 % should be).

    python examples/jasper_domain.py UPCGIT_Jasper.mat --output jasper_domain
    python examples/jasper_domain.py UPCGIT_Jasper.mat --output jasper_domain --study
"""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from pathlib import Path

import click
import numpy as np
import pandas as pd
import xarray as xr
from matplotlib.figure import Figure
from scipy.io import loadmat

import specinvert

MATERIALS = ("tree", "water", "soil", "road")
ABSENT, PURE = 0.05, 0.9
OUT_OF_DOMAIN = 4


@dataclass(frozen=True)
class Setting:
    """Structure of the model."""

    n_components: int = 10
    sigma: str = "diag"
    n_latent: int = 5
    tied: bool = False

    def __str__(self) -> str:
        return f"K = {self.n_components}, {self.sigma}{' tied' if self.tied else ''}, L_w = {self.n_latent}"


RECOMMENDED = Setting()
STUDY = (
    *(Setting(k, "diag", n) for k, n in ((20, 0), (10, 3), (10, 5), (20, 3), (20, 5), (30, 5))),
    Setting(10, "diag", 5, tied=True),
    Setting(10, "iso", 3),
    Setting(10, "iso", 5),
)


def read_image(path: Path) -> tuple[np.ndarray, np.ndarray]:
    """Reflectance (pixels, 198) and abundances (pixels, 4)."""
    table = loadmat(path)
    return table["Y"].T / 1e4, table["A"].T


def as_spectra(values: np.ndarray) -> xr.DataArray:
    """Labelled spectra."""
    return xr.DataArray(values, dims=("pixel", "band"), name="reflectance")


class Trial:
    """A model that has never seen one material, with the pixels that it is tried on."""

    def __init__(self, spectra: np.ndarray, abundances: np.ndarray, material: int, setting: Setting, seed: int) -> None:
        self.rng = np.random.default_rng(seed)
        without = self.rng.permutation(np.flatnonzero(abundances[:, material] < ABSENT))
        held, rest = np.split(without, [len(without) // 10])
        self.held, self.strange = spectra[held], spectra[abundances[:, material] > PURE]
        self.range = float(spectra[rest].min()), float(spectra[rest].max())
        others = {m: ("pixel", abundances[rest, i]) for i, m in enumerate(MATERIALS) if i != material}
        training = xr.Dataset({"reflectance": as_spectra(spectra[rest]), **others})
        self.inverter = specinvert.GLLiMInverter(
            n_components=setting.n_components,
            n_latent=setting.n_latent,
            sigma=setting.sigma,
            tied_sigma=setting.tied,
            tol=1e-2,
            random_state=seed,
        ).fit(training, band_dim="band")

    def flagged(self, values: np.ndarray, noise: float = 0.0) -> np.ndarray:
        """Which spectra are out of the domain, given the noise beyond training's."""
        given = {"noise": noise} if noise else {}
        maps = self.inverter.invert(as_spectra(values), outputs=("flag",), band_dim="band", **given)
        return (maps["quality_flag"].values & OUT_OF_DOMAIN) > 0

    def rates(self) -> dict[str, tuple[float, float]]:
        """Percent flagged of the unseen material and of the held-out pixels, under each condition."""
        n_bands = self.held.shape[1]
        found = {"as they are": self._both()}
        for count in (n_bands // 4, 3 * n_bands // 4):
            gaps = np.isin(np.arange(n_bands), self.rng.permutation(n_bands)[:count])
            found[f"{count} bands missing in all"] = self._both(gaps=gaps)
        found["a quarter of the values missing"] = self._both(share=0.25)
        for noise in (0.002, 0.005, 0.01, 0.02):
            found[f"noise {noise} added and declared"] = self._both(added=noise, declared=noise)
        found["noise 0.02 declared, not there"] = self._both(declared=0.02)
        return found

    def _both(
        self, gaps: np.ndarray | None = None, share: float = 0.0, added: float = 0.0, declared: float = 0.0
    ) -> tuple[float, float]:
        rates = []
        for clean in (self.strange, self.held):
            values = clean + added * self.rng.standard_normal(clean.shape)
            if gaps is not None:
                values[:, gaps] = np.nan
            if share:
                values[self.rng.random(values.shape) < share] = np.nan
            rates.append(100.0 * float(self.flagged(values, declared).mean()))
        return rates[0], rates[1]

    def nonsense(self) -> dict[str, float]:
        """Percent flagged of spectra that are none."""
        n_bands = self.held.shape[1]
        constant = np.repeat(np.linspace(*self.range, 50)[:, None], n_bands, axis=1)
        return {
            "uniform noise in the range of training": 100.0
            * self.flagged(self.rng.uniform(*self.range, (200, n_bands))).mean(),
            "constant spectra over that range": 100.0 * self.flagged(constant).mean(),
        }


def markdown(rows: pd.DataFrame, by: str) -> str:
    """A row a condition or setting, a column a material: percent of the unseen / of held-out pixels, mean of seeds."""
    lines = [f"| {by} | " + " | ".join(MATERIALS) + " |", "| --- " * 5 + "|"]
    for name, group in rows.groupby(by, sort=False):
        cells = []
        for material in MATERIALS:
            part = group[group.material == material]
            alarms = "" if part.held_out.isna().all() else f" / {part.held_out.mean():.1f}"
            cells.append(f"{part.unseen.mean():.1f} ({part.unseen.min():.1f}){alarms}")
        lines.append(f"| {name} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def plot(spectra: np.ndarray, abundances: np.ndarray, trials: list[Trial], rows: pd.DataFrame) -> Figure:
    """Abundance and flag of each unseen material; what declared noise leaves of the flag."""
    figure = Figure(figsize=(11, 8.2), layout="constrained")
    grid = figure.subplots(3, 4, height_ratios=(1, 1, 1.1))
    for i, (material, trial) in enumerate(zip(MATERIALS, trials, strict=True)):
        top, middle, bottom = grid[:, i]
        maps = abundances[:, i], trial.flagged(spectra)
        for axis, values, title in zip((top, middle), maps, (f"share of {material}", "flagged"), strict=True):
            axis.imshow(values.reshape(100, 100).T, cmap="viridis" if axis is top else "Greys", vmin=0, vmax=1)
            axis.set(xticks=[], yticks=[], title=title if axis is top else f"out of domain, {material} unseen")
            axis.title.set_fontsize(10)
        mine = rows[(rows.material == material) & rows.condition.str.endswith("added and declared")]
        noise = mine.condition.str.extract(r"noise (\S+)")[0].astype(float)
        for column, colour in (("unseen", "#d55e00"), ("held_out", "#0072b2")):
            mean = mine.groupby(noise)[column].mean()
            base = rows[(rows.material == material) & (rows.condition == "as they are")][column].mean()
            bottom.plot([0.0, *mean.index], [base, *mean], "o-", color=colour, label=column.replace("_", " "))
        bottom.axhline(95.0, color="0.6", lw=0.8, ls="--")
        bottom.set(xlabel="noise added and declared", ylim=(-4, 104), ylabel="flagged, %" if i == 0 else "")
    grid[2, 0].legend(frameon=False, fontsize=9)
    return figure


@click.command()
@click.argument("image", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@click.option("--output", type=click.Path(file_okay=False, path_type=Path), default="jasper_domain", show_default=True)
@click.option("--seeds", type=click.IntRange(1), default=3, show_default=True, help="Seeds 0, 1, ... averaged.")
@click.option("--study", is_flag=True, help="Instead, compare structures of the model.")
def main(image: Path, output: Path, seeds: int, study: bool) -> None:
    """Flag materials unseen in training, in the IMAGE (UPCGIT_Jasper.mat: Y and A)."""
    warnings.filterwarnings("ignore", message=".*patterns.*")
    output.mkdir(parents=True, exist_ok=True)
    spectra, abundances = read_image(image)
    rows, first = [], []
    for setting in STUDY if study else (RECOMMENDED,):
        for i, material in enumerate(MATERIALS):
            for seed in range(seeds):
                trial = Trial(spectra, abundances, i, setting, seed)
                where = {"setting": str(setting), "material": material, "seed": seed}
                rates = {"as they are": trial._both()} if study else trial.rates()
                rows += [where | {"condition": c, "unseen": u, "held_out": h} for c, (u, h) in rates.items()]
                if not study:
                    rows += [where | {"condition": c, "unseen": u} for c, u in trial.nonsense().items()]
                    first += [trial] if seed == 0 else []
    table = pd.DataFrame(rows)
    text = markdown(table, "setting" if study else "condition")
    name = "study" if study else "table"
    table.to_csv(output / f"jasper_domain_{name}.csv", index=False, float_format="%.2f")
    (output / f"jasper_domain_{name}.md").write_text(text + "\n", encoding="utf-8")
    click.echo(text)
    if not study:
        plot(spectra, abundances, first, table).savefig(output / "jasper_domain.png", dpi=100)
    click.echo(f"written to {output}")


if __name__ == "__main__":
    main()
