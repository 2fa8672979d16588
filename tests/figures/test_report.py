"""The report: a page that stands alone, says what to beware of, escapes all that files say, and fits a phone."""

import json
import re
import shutil
import subprocess
import sys
from dataclasses import replace
from functools import cache
from html import escape
from html.parser import HTMLParser
from importlib.resources import files
from itertools import pairwise

import numpy as np
import pytest
import xarray as xr

from labelled import QUICK, fitted, make_cube, make_training, make_truth, refuses, unsupervised
from specinvert import GLLiMInverter
from specinvert.cubes.bands import Bands
from specinvert.figures import report as module
from specinvert.figures.report import write_report
from specinvert.figures.report_tables import Safe, element, html_table
from specinvert.gllim.model.parameters import Constraints
from specinvert.inverter import evaluated
from specinvert.scores.findings import band_findings, evaluation_findings, map_findings, model_findings, other_model

NASTY = "<script>alert(1)</script>"
MARKUP = "\"><img src=x onerror='alert(2)'>"
CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome", "chrome"))), None)
WIDTHS = (1280, 390)


class Page(HTMLParser):
    """Elements with their attributes, and the text outside the style sheet."""

    def __init__(self, text):
        super().__init__()
        self.elements, self.text, self.open = [], [], []
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        self.elements.append((tag, dict(attrs)))
        if tag not in ("img", "meta"):
            self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        if self.open[-1:] != ["style"]:
            self.text.append(data)

    def all(self, *tags):
        return [attrs for tag, attrs in self.elements if tag in tags]


def nasty_training():
    training = make_training().rename(dust=NASTY)
    training[NASTY].attrs = {"units": "<b>$", "long_name": MARKUP}
    return training


@cache
def nasty():
    return GLLiMInverter(**QUICK).fit(nasty_training())


@pytest.fixture(scope="module")
def path(tmp_path_factory):
    """A report with every section, on a parameter whose name and attributes are markup."""
    path = tmp_path_factory.mktemp("report") / "report.html"
    truth = make_truth().rename(dust=NASTY)
    truth[NASTY].attrs = {"units": "<b>$"}
    maps = nasty().invert(make_cube())
    maps.attrs |= {"title": MARKUP, "history": NASTY}
    test = nasty_training().isel(sample=slice(0, 60))
    write_report(path, nasty(), maps, test, nasty_training(), truth, title=f"Scene & {NASTY}")
    return path


@pytest.fixture(scope="module")
def page(path):
    return Page(path.read_text(encoding="utf-8"))


def test_the_page_stands_alone_and_runs_nothing(page):
    assert not page.all("script", "link", "iframe", "object", "embed", "form")
    for _, attrs in page.elements:
        assert not [name for name in attrs if name.startswith("on")]
        for name in ("src", "href"):
            assert attrs.get(name, "#").startswith(("#", "data:image/png;base64,"))
    policy = next(m["content"] for m in page.all("meta") if m.get("http-equiv") == "Content-Security-Policy")
    assert "default-src 'none'" in policy
    assert not re.search(r"url\(|@import", files("specinvert.figures").joinpath("report_template.html").read_text())


def test_what_files_say_is_shown_as_text(page):
    text = "".join(page.text)
    assert text.count(NASTY) > 5
    assert MARKUP in text
    assert "<b>$" in text
    assert page.elements.count(("img", {"src": "x", "onerror": "alert(2)"})) == 0
    assert any(NASTY in image["alt"] for image in page.all("img"))


def test_the_page_is_well_formed_and_can_be_read_without_seeing_it(page):
    assert page.open == []
    assert page.all("html") == [{"lang": "en"}]
    assert {"name": "viewport", "content": "width=device-width, initial-scale=1"} in page.all("meta")
    levels = [int(tag[1]) for tag, _ in page.elements if re.fullmatch(r"h\d", tag)]
    assert levels[0] == 1
    assert levels.count(1) == 1
    assert all(b - a <= 1 for a, b in pairwise(levels))
    images = page.all("img")
    assert len(images) == 7
    assert all(len(image["alt"]) > 40 for image in images)
    assert len(page.all("caption")) == len(page.all("table")) == 5
    ids = [attrs["id"] for _, attrs in page.elements if "id" in attrs]
    assert len(ids) == len(set(ids)) == 5
    assert [link["href"] for link in page.all("a")] == [f"#{name}" for name in ids]


def test_text_has_enough_contrast_on_every_background():
    style = files("specinvert.figures").joinpath("report_template.html").read_text()

    def luminance(colour):
        digits = colour * 2 if len(colour) == 3 else colour
        parts = np.array([int(digits[i : i + 2], 16) for i in (0, 2, 4)]) / 255
        linear = np.where(parts <= 0.04045, parts / 12.92, ((parts + 0.055) / 1.055) ** 2.4)
        return float(linear @ [0.2126, 0.7152, 0.0722])

    colours = set(re.findall(r"[{; ]color: #([0-9a-f]+)", style))
    backgrounds = set(re.findall(r"background: #([0-9a-f]+)", style))
    assert (len(colours), len(backgrounds)) == (3, 4)
    for colour in colours:
        for background in backgrounds:
            assert (luminance(background) + 0.05) / (luminance(colour) + 0.05) >= 4.5, (colour, background)


@pytest.mark.skipif(CHROMIUM is None, reason="no Chromium")
def test_a_browser_shows_it_at_desk_and_phone_width_without_overflow_or_errors(path, tmp_path):
    frames = "".join(f'<iframe style="width:{w}px" srcdoc="{escape(path.read_text())}"></iframe>' for w in WIDTHS)
    script = """<script>onload = () => { console.log("loaded"); document.title = JSON.stringify(
        [...document.querySelectorAll("iframe")].map(frame => { const d = frame.contentDocument; return {
            room: d.documentElement.clientWidth, page: d.documentElement.scrollWidth,
            broken: [...d.images].filter(i => !i.naturalWidth).length, images: d.images.length,
            high: frame.contentWindow.innerWidth }; })); }</script>"""
    (tmp_path / "frames.html").write_text(f"<!DOCTYPE html><title></title>{script}<body>{frames}", encoding="utf-8")
    options = ["--headless", "--no-sandbox", "--disable-gpu", "--enable-logging=stderr", "--dump-dom"]
    command = [CHROMIUM, *options, f"--user-data-dir={tmp_path / 'profile'}", (tmp_path / "frames.html").as_uri()]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=True)
    found = json.loads(re.search(r"<title>(.*?)</title>", done.stdout)[1])
    assert [frame["high"] for frame in found] == list(WIDTHS)
    for frame in found:
        assert frame["page"] <= frame["room"]
        assert (frame["images"], frame["broken"]) == (7, 0)
    said = [text for text in done.stderr.splitlines() if "CONSOLE" in text]
    assert len(said) == 1
    assert "loaded" in said[0]


def test_a_report_on_rows_or_on_a_model_alone_has_what_there_is(tmp_path):
    rows = fitted(1).invert(make_cube().isel(x=0), outputs=["mean", "ci90", "flag"])
    found = write_report(tmp_path / "rows.html", fitted(1), rows)
    page = Page((tmp_path / "rows.html").read_text())
    assert "Results" in page.text
    assert "No test set was given" in "".join(page.text)
    assert "".join(page.text).count("What to do: ") == len(found) > 0
    write_report(tmp_path / "bare.html", unsupervised())
    assert len(Page((tmp_path / "bare.html").read_text()).all("img")) == 1


def test_what_cannot_be_reported_is_refused_and_the_old_page_stays(tmp_path, monkeypatch):
    target = tmp_path / "report.html"
    target.write_text("old")
    with refuses(ValueError, "not fitted"):
        write_report(target, GLLiMInverter())
    with refuses(ValueError, "none of the model's parameters ['water', 'dust']"):
        write_report(target, fitted(), xr.Dataset({"snow": ("x", [1.0])}))
    with refuses(ValueError, "'dust' not in the test set"):
        write_report(target, fitted(), test=make_training().drop_vars("dust"))
    with refuses(FileNotFoundError, "create it first"):
        write_report(tmp_path / "no" / "report.html", fitted())
    monkeypatch.setattr(module, "_body", lambda *_: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        write_report(target, fitted())
    assert target.read_text() == "old"
    assert list(tmp_path.iterdir()) == [target]


def test_without_matplotlib_the_error_says_what_to_install(tmp_path, monkeypatch):
    for name in [loaded for loaded in sys.modules if loaded.split(".")[0] == "matplotlib"]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(ImportError, match=r"pip install 'specinvert\[plot\]'"):
        write_report(tmp_path / "report.html", fitted())
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("change", [lambda s: s, lambda s: s.chunk(y=2), lambda s: s.transpose("x", "y", "band")])
def test_figures_are_of_a_part_of_a_large_test_set_and_scores_of_all(change, monkeypatch):
    monkeypatch.setattr(evaluated, "MAX_PAIRS", 12)
    scene = make_truth().assign(reflectance=make_cube())
    options = {"noise": 0.01, "band_dim": None, "tolerance": 1.0}
    sample = evaluated.evaluate_sample(fitted(1), change(scene), options)
    assert int(sample.evaluation["n"][0]) == 30
    assert sample.rows.shape == (12, 8)
    maps = fitted(1).invert(make_cube(), noise=0.01)["water"].values.ravel().tolist()
    places = [maps.index(value) for value in sample.estimates["water"].values]
    np.testing.assert_array_equal(sample.truth["water"], scene["water"].values.ravel()[places])
    np.testing.assert_array_equal(sample.rows, scene["reflectance"].values.reshape(30, 8)[places])
    fit = sample.estimates["fit_rmse"]
    assert float(fit.isel(sample.examples["greatest"])) == float(fit.max())


def healthy():
    """A model that leaves nothing to say."""
    model = fitted().model_
    bands = replace(model.bands, guessed=False)
    return replace(model, converged=True, n_removed=0, n_samples=10_000, log_tail=-4.0, bands=bands)


def full(model):
    theta = model.theta
    constraints = Constraints(sigma="full")
    return replace(theta, Sigma=theta.sigma_dense(), constraints=constraints)


def test_a_healthy_model_has_no_findings():
    assert model_findings(healthy()) == []


@pytest.mark.parametrize(
    ("changes", "parts"),
    [
        ({"converged": False}, ["did not converge", "4 iterations", "max_iter"]),
        ({"n_removed": 2}, ["removed", "2 components", "3 are left"]),
        ({"n_samples": 60}, ["Few training samples", "20 each", "30"]),
        ({"log_tail": np.nan}, ["domain", "10000 training samples"]),
        ({"log_tail": -60.0}, ["held out", "-60", "more latent dimensions"]),
    ],
    ids=lambda value: str(next(iter(value))),
)
def test_what_is_wrong_with_training_is_found(changes, parts):
    (finding,) = model_findings(replace(healthy(), **changes))
    said = f"{finding.title} {finding.what} {finding.todo}"
    for part in parts:
        assert part in said


def test_latents_at_the_end_of_the_search_and_an_overfitted_full_covariance_are_found():
    model = fitted(1).model_
    searched = replace(model, settings=model.settings | {"n_latent": "bic"}, bics={0: 3.0, 1: 1.0})
    searched = replace(searched, converged=True, n_removed=0, n_samples=10_000, log_tail=-4.0)
    (finding,) = model_findings(searched)
    assert "BIC chose 1 of 0, 1" in finding.what
    assert model_findings(replace(searched, bics={0: 3.0, 1: 1.0, 2: 2.0})) == []
    covariances = replace(healthy(), members=(full(healthy()),), n_samples=40, log_tail=-60.0)
    titles = [finding.title for finding in model_findings(covariances)]
    assert "Few training samples for a full noise covariance" in titles
    assert "sigma='diag'" in model_findings(covariances)[-1].todo


def scores(**columns):
    good = {"nrmse": [0.1, 0.2], "rmse": [1.0, 1.0], "bias": [0.1, 0.0], "coverage_90": [0.9, 0.89], "n": [900, 900]}
    both = {name: ("parameter", values) for name, values in (good | columns).items()}
    return xr.Dataset(both, coords={"parameter": ["lai", "cab"]})


@pytest.mark.parametrize(
    ("columns", "parts", "serious"),
    [
        ({"coverage_90": [0.9, 0.62]}, ["too small: cab", "62 % for cab", "recalibrate"], True),
        ({"coverage_90": [0.99, 0.98]}, ["too large: lai, cab", "99 % for lai, 98 % for cab"], False),
        ({"nrmse": [0.97, 0.2]}, ["Not retrievable", "lai", "0.97 for lai"], True),
        ({"bias": [-0.8, 0.1]}, ["too low: lai", "-0.8 (80 % of the RMSE)"], False),
        ({"n": [100, 100]}, ["small", "100 pairs", "6 %"], False),
        ({"n": [0, 900], "nrmse": [np.nan, 0.2], "coverage_90": [np.nan, 0.9]}, ["Not evaluated: lai"], True),
    ],
    ids=str,
)
def test_what_is_wrong_with_estimates_is_found(columns, parts, serious):
    assert evaluation_findings(scores()) == []
    (finding,) = evaluation_findings(scores(**columns))
    for part in parts:
        assert part in f"{finding.title} {finding.what} {finding.todo}"
    assert finding.serious is serious


def test_flags_are_told_by_their_share_of_the_pixels_with_data():
    assert map_findings({"none": 1.0, "nodata": 0.3, "multimodal": 0.1, "out_of_domain": 0.03}) == []
    (finding,) = map_findings({"nodata": 0.5, "out_of_domain": 0.04, "partial_bands": 0.1})
    assert finding.title.endswith("out of domain")
    assert "8 % of the pixels with data" in finding.what
    assert [f.title for f in map_findings({"nodata": 1.0})] == ["The maps are empty"]
    assert [f.title for f in map_findings({"nodata": 0.6})] == ["Much of the scene has no data"]
    assert other_model("0123456789ab", "0123456789ab") == other_model(None, "x") == []
    assert "model 0123456789ab" in other_model("0123456789ab", "cd")[0].what


def test_missing_and_constant_bands_are_named_by_wavelength():
    spectra = np.random.default_rng(0).random((40, 3))
    bands = Bands("band", 3, np.array([500.0, 600.0, 700.0]), "nm")
    assert band_findings(spectra, bands, "test spectra") == []
    spectra[:10, 1], spectra[:, 2] = np.nan, 0.5
    spectra[-5:] = np.nan
    missing, still = band_findings(spectra, bands, "test spectra")
    assert "1 of 3 bands lack values, in 29 %" in missing.what
    assert "600 nm" in missing.what
    assert "700 nm" in still.what


def test_text_is_escaped_once_and_only_text():
    assert element("p", "<", element("b", "&"), data_x='"') == '<p data-x="&quot;">&lt;<b>&amp;</b></p>'
    assert isinstance(element("p"), Safe)
    assert "<td>&lt;i&gt;</td>" in html_table("t", ["a", "b"], [("x", "<i>")])
