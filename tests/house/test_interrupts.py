"""Ctrl-C in the first moments of the command: exit code 130 and not a word, and nothing of that in other programs."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

pytestmark = pytest.mark.stops

CODE = 130
SLOW = """
import sys, time
class Slow:
    def find_spec(self, name, path=None, target=None):
        if name == {module!r}:
            open({mark!r}, "w").close()
            time.sleep(30)
sys.meta_path.insert(0, Slow())
"""
"""A file that Python runs when it starts, which makes the import of a module wait."""


def interrupted(tmp_path: Path, module: str, *command: str, **options: object) -> tuple[int, str, str]:
    """Exit code, stdout and stderr of a command that SIGINT reaches in the import of a module."""
    mark = tmp_path / "importing"
    (tmp_path / "sitecustomize.py").write_text(SLOW.format(module=module, mark=str(mark)))
    environment = os.environ | {"PYTHONPATH": str(tmp_path)}
    process = subprocess.Popen(
        command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=tmp_path
    )
    deadline = time.monotonic() + 60
    while not mark.exists() and process.poll() is None and time.monotonic() < deadline:
        time.sleep(0.01)
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=60)
    return process.returncode, out, err


@pytest.fixture
def script(tmp_path: Path) -> str:
    """The command as installers write it."""
    path = tmp_path / "bin" / "specinvert"
    path.parent.mkdir()
    path.write_text("import sys\nfrom specinvert.cli import main\nif __name__ == '__main__':\n    sys.exit(main())\n")
    return str(path)


@pytest.mark.parametrize("module", ["xarray", "click"])
@pytest.mark.parametrize("way", ["script", "module"])
def test_ctrl_c_while_the_command_is_imported_is_quiet(tmp_path: Path, script: str, way: str, module: str) -> None:
    start = [script] if way == "script" else ["-m", "specinvert"]
    assert interrupted(tmp_path, module, sys.executable, *start, "info", "scene.nc") == (CODE, "", "")


def test_ctrl_c_while_a_command_imports_what_it_needs_is_one_line(tmp_path: Path, script: str) -> None:
    found = interrupted(tmp_path, "specinvert.io.model_file", sys.executable, script, "info", "scene.nc")
    assert found == (CODE, "", "Interrupted: stopped\n")


def test_another_program_that_imports_the_package_keeps_its_keyboard_interrupt(tmp_path: Path) -> None:
    code = """
try:
    import specinvert
except KeyboardInterrupt:
    print("mine")
"""
    (tmp_path / "other.py").write_text(code)
    for start in (["-c", code], ["-m", "other"], [str(tmp_path / "other.py")]):
        assert interrupted(tmp_path, "xarray", sys.executable, *start) == (0, "mine\n", "")
        (tmp_path / "importing").unlink()


@pytest.mark.parametrize("handler", ["signal.SIG_IGN", "print"])
def test_an_interrupt_that_is_ignored_or_handled_stays_so(handler: str) -> None:
    code = f"""
import signal, sys
signal.signal(signal.SIGINT, {handler})
sys.argv = ["/usr/bin/specinvert"]
from specinvert.cli import main
assert signal.getsignal(signal.SIGINT) == {handler}
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def test_python_m_is_the_command_line() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "specinvert", "--version"], capture_output=True, text=True, timeout=60, check=True
    )
    assert done.stdout.startswith("specinvert, version")


def test_the_exit_code_is_that_of_the_command_where_the_interrupt_came_in_an_exec(tmp_path: Path) -> None:
    """As dataclasses run one while a module is imported."""
    (tmp_path / "sitecustomize.py").write_text(
        SLOW.format(module="specinvert.io.model_file", mark=str(tmp_path / "importing")).replace(
            "time.sleep(30)", "exec('raise KeyboardInterrupt')"
        )
    )
    done = subprocess.run(
        [sys.executable, "-m", "specinvert", "info", "scene.nc"],
        env=os.environ | {"PYTHONPATH": str(tmp_path)},
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert (done.returncode, done.stdout, done.stderr) == (CODE, "", "Interrupted: stopped\n")
