"""The report: a page that stands alone, says what to beware of, escapes all that files say, and fits a phone."""

import json
import re
import shutil
import subprocess
import sys
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
from specinvert.figures import report as module
from specinvert.figures.report import render, write_report

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
    return GLLiMInverter(n_latent=0, **QUICK).fit(nasty_training())


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
    assert not re.search(r"url\(|@import", files("specinvert.figures").joinpath("report.html").read_text())


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
    assert len(images) == 8
    assert all(len(image["alt"]) > 40 for image in images)
    assert len(page.all("caption")) == len(page.all("table")) == 5
    ids = [attrs["id"] for _, attrs in page.elements if "id" in attrs]
    assert len(ids) == len(set(ids)) == 5
    assert [link["href"] for link in page.all("a")] == [f"#{name}" for name in ids]


def test_text_has_enough_contrast_on_every_background():
    style = files("specinvert.figures").joinpath("report.html").read_text()

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
        assert (frame["images"], frame["broken"]) == (8, 0)
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
    with refuses(ValueError, "'water', 'dust' not in the test set"):
        write_report(target, fitted(), test=make_training().drop_vars(["water", "dust"]))
    with refuses(FileNotFoundError, "create it first"):
        write_report(tmp_path / "no" / "report.html", fitted())
    monkeypatch.setattr(module, "_page", lambda *_: 1 / 0)
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


def test_text_is_escaped_once_and_only_text():
    made = render("figures/parts.html", "table", caption='"&', head=["a", "b"], rows=[("x", "<i>\x00")], words=(1,))
    assert '<td class="words">&lt;i&gt; </td>' in made
    assert 'aria-label="&#34;&amp;"' in made
    assert "<dt>&lt;b&gt;</dt><dd>1</dd>" in render("figures/parts.html", "facts", rows=[("<b>", 1)])
