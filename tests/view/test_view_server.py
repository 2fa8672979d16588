"""The viewer's server: where it listens, whom it answers, how it ends, and the page in a browser."""

import re
import shutil
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import xarray as xr

from labelled import fitted, make_cube

pytest.importorskip("bokeh")

from bokeh.client import pull_session
from bokeh.models import Select
from tornado.httputil import HTTPHeaders, HTTPServerRequest, RequestStartLine
from tornado.web import ErrorHandler

from specinvert.view import Viewer, serve
from specinvert.view.page import Application, allowed_origins, is_loopback

EVIL = "<script>window.hit=1</script>"
IMAGE = "<img src=x onerror=window.hit=2>"
CODE = """
import sys
from specinvert.view import serve
serve(*sys.argv[1:], port=0, open_browser=False, say=lambda line: print(line, flush=True))
"""


class Served:
    """A server in a process of its own."""

    def __init__(self, *paths: Path) -> None:
        command = [sys.executable, "-W", "error", "-c", CODE, *map(str, paths)]
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        found = re.search(r"http://127\.0\.0\.1:(\d+)/", line)
        assert found is not None, line + self.process.communicate()[1]
        self.url, self.port = found[0], int(found[1])

    def interrupt(self) -> tuple[int, str]:
        """Its exit status and what it wrote as errors, after Ctrl-C."""
        self.process.send_signal(signal.SIGINT)
        return self.process.wait(60), self.process.communicate()[1]


@pytest.fixture(scope="module")
def served(tmp_path_factory) -> Iterator[Served]:
    """Maps, their cube and model; names, units and meanings of flags try to be HTML."""
    folder = tmp_path_factory.mktemp("view")
    cube, inverter = make_cube(), fitted()
    maps = inverter.invert(cube).assign_attrs(title=IMAGE)
    maps["dust"].attrs.update(units=IMAGE, long_name=EVIL)
    maps["quality_flag"].attrs["flag_meanings"] = " ".join(f"{IMAGE.replace(' ', '/')}{i}" for i in range(6))
    maps["quality_flag"][:] = 63
    maps = maps.assign({EVIL.replace("/", "|"): maps["dust"] + 1.0, IMAGE: maps["dust"] + 2.0})
    maps.to_zarr(folder / "maps.zarr", consolidated=False)
    cube.drop_vars("spatial_ref", errors="ignore").to_dataset(name="reflectance").to_netcdf(folder / "cube.nc")
    inverter.to_netcdf(folder / "model.nc")
    server = Served(folder / "maps.zarr", folder / "cube.nc", folder / "model.nc")
    yield server
    server.process.kill()
    server.process.communicate()


def test_a_session_has_the_page_and_asks_nothing_of_other_machines(served):
    with urllib.request.urlopen(served.url, timeout=20) as answer:
        page = answer.read().decode()
    links = re.findall(r"""(?:src|href)=["']([^"']+)""", page)
    assert links
    assert not [link for link in links if re.match(r"(https?:)?//", link)]
    session = pull_session(url=served.url)
    try:
        (choice,) = session.document.select({"type": Select})
        assert "dust" in [label for _, label in choice.options]
    finally:
        session.close()


SOCKET = (
    "Upgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\n"
    "Sec-WebSocket-Version: 13\r\nOrigin: http://{}\r\n"
)


def status(served: Served, path: str, head: str, version: str = "1.1") -> int:
    """The status of the answer to a raw request."""
    with socket.create_connection(("127.0.0.1", served.port), timeout=10) as connection:
        connection.sendall(f"GET {path} HTTP/{version}\r\n{head}\r\n".encode())
        return int(connection.recv(200).split()[1])


def test_a_page_of_another_site_gets_no_websocket(served):
    for origin in ("example.com", f"example.com:{served.port}"):
        assert status(served, "/ws", f"Host: 127.0.0.1:{served.port}\r\n" + SOCKET.format(origin)) == 403


def test_requests_for_hosts_that_are_not_ours_are_refused_websockets_and_scripts_too(served):
    port, script = served.port, "/static/js/bokeh.min.js"
    for host in (f"localhost:{port}", f"LOCALHOST:{port}", f"[::1]:{port}", f"127.0.0.1:{port}"):
        assert [status(served, path, f"Host: {host}\r\n") for path in ("/", script)] == [200, 200], host
    foreign = [
        f"example.com:{port}",
        "example.com",
        "127.0.0.1",
        f"127.0.0.1:{port + 1}",
        f"localhost:{port}.example.com",
    ]
    for host in (*foreign, f"127.0.0.1.example.com:{port}", f"localhost:{port}\r\nHost: example.com:{port}"):
        for path in ("/", "/autoload.js", "/metadata", script, "/nothing"):
            assert status(served, path, f"Host: {host}\r\n") in (400, 403), (host, path)
        same = f"Host: {host}\r\n" + SOCKET.format(host.split("\r")[0])
        assert status(served, "/ws", same) in (400, 403), host
    assert status(served, f"http://example.com:{port}/", f"Host: example.com:{port}\r\n") == 403
    assert status(served, "/", "", version="1.0") == 403


def test_a_proxy_passes_on_the_host_that_browsers_see_with_or_without_its_port():
    maps = xr.Dataset({"water": (("y", "x"), np.zeros((2, 2)))})
    application = Application(Viewer(maps), ["maps.example.org:443"], "")
    for host, answered in (("maps.example.org", True), ("maps.example.org:443", True), ("example.org", False)):
        line = RequestStartLine("GET", "/", "HTTP/1.1")
        request = HTTPServerRequest(start_line=line, headers=HTTPHeaders({"Host": host}), connection=SimpleNamespace())
        assert (application.find_handler(request).handler_class is not ErrorHandler) == answered, host


def test_only_the_loopback_is_listened_on(served):
    listening = Path("/proc/net/tcp")
    if not listening.exists():
        pytest.skip("needs /proc")
    rows = [row.split() for row in listening.read_text().splitlines()[1:]]
    found = [row[1] for row in rows if row[1].endswith(f":{served.port:04X}") and row[3] == "0A"]
    assert found == [f"0100007F:{served.port:04X}"]


def test_a_port_in_use_is_named_and_what_to_do():
    maps = xr.Dataset({"water": (("y", "x"), np.zeros((2, 2)))})
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        with pytest.raises(OSError, match=f"port {port} of 127.0.0.1 is in use: .*choose another port"):
            serve(maps, port=port, open_browser=False)
    with pytest.raises(ValueError, match="between 0 and 65535"):
        serve(maps, port=70000)


def test_addresses_beyond_the_loopback_are_warned_of_and_answered_by_name():
    assert [is_loopback(a) for a in ("127.0.0.1", "::1", "localhost", "0.0.0.0", "192.0.2.1", "")] == 3 * [True] + 3 * [
        False
    ]
    assert allowed_origins("127.0.0.1", 5006) == ["127.0.0.1:5006", "localhost:5006", "[::1]:5006"]
    assert {"0.0.0.0:5006", f"{socket.gethostname()}:5006"} <= set(allowed_origins("0.0.0.0", 5006))
    assert not any("*" in origin for origin in allowed_origins("0.0.0.0", 5006))


PLACE = """
const found = []
const walk = view => {
  if (view.model.type == "Figure") found.push(view)
  for (const child of view.child_views ?? []) walk(child)
}
for (const view of [...Bokeh.index]) walk(view)
const area = found[0].canvas_view.events_el.getBoundingClientRect(), frame = found[0].frame.bbox
return [area.x + frame.x0 + frame.width * arguments[0], area.y + frame.y0 + frame.height / 2]
"""
TEXT = """
const text = root => [...root.querySelectorAll("*")].map(e => e.shadowRoot ? text(e.shadowRoot) : "").join(" ") +
  " " + (root.body ?? root).textContent
return text(document)
"""


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    """A headless Chromium; skips where there is none."""
    chromium, driver = shutil.which("chromium") or shutil.which("google-chrome"), shutil.which("chromedriver")
    webdriver = pytest.importorskip("selenium.webdriver")
    if chromium is None or driver is None:
        pytest.skip("needs chromium and chromedriver")
    options = webdriver.ChromeOptions()
    options.binary_location = chromium
    for argument in ("--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage"):
        options.add_argument(argument)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    page = webdriver.Chrome(options=options, service=webdriver.ChromeService(driver))
    yield page
    page.quit()


def wait_for(found, what: str):
    """The first result of a call that is true, within some seconds."""
    end = time.monotonic() + 20
    while time.monotonic() < end:
        result = found()
        if result:
            return result
        time.sleep(0.1)
    raise AssertionError(f"{what} did not come")


def test_in_a_browser_a_click_shows_the_numbers_and_no_text_of_the_file_runs(served, browser):
    browser.get(served.url)
    wait_for(lambda: "Click a pixel" in browser.execute_script(TEXT), "the page")
    places = []
    for width, share in ((1280, 0.6), (390, 0.4)):
        metrics = {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": width < 700}
        browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", metrics)
        time.sleep(1.0)
        x, y = browser.execute_script(PLACE, share)
        mouse = {"x": x, "y": y, "button": "left", "clickCount": 1}
        browser.execute_cdp_cmd("Input.dispatchMouseEvent", {"type": "mouseMoved", "x": x, "y": y})
        wait_for(lambda: "place" in browser.execute_script(TEXT), "the value under the pointer")
        for kind in ("mousePressed", "mouseReleased"):
            browser.execute_cdp_cmd("Input.dispatchMouseEvent", {"type": kind, **mouse})

        def another() -> re.Match[str] | None:
            found = re.search(r"Pixel y (\d+), x (\d+)", browser.execute_script(TEXT))
            return found if found is not None and found[0] not in places else None

        place = wait_for(another, "the pixel")
        places.append(place[0])
        found = fitted().invert(make_cube().isel(y=int(place[1]), x=int(place[2])))
        shown = browser.execute_script(TEXT)
        for name in ("water", "dust"):
            assert f"{float(found[name]):.5g}" in shown
        assert shown.count("<img") >= 6
        assert browser.execute_script("return document.documentElement.scrollWidth") <= width
    assert browser.execute_script("return window.hit") is None
    assert [entry for entry in browser.get_log("browser") if entry["level"] == "SEVERE"] == []


@pytest.mark.stops
def test_ctrl_c_ends_the_server_and_frees_the_port(served):
    status, errors = served.interrupt()
    assert status == 0
    assert "Traceback" not in errors
    with socket.create_server(("127.0.0.1", served.port)) as free:
        assert free.getsockname()[1] == served.port
