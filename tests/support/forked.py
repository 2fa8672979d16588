"""Commands in processes of their own, forked from one that has imported everything: real ones, and ready at once."""

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

PATIENCE = 300.0
BLOCK = "64B"
"""Size of chunks that commands take from files without any: one pixel."""
MAIN = "from specinvert.cli import main; main()"
STARTER = """
import json, os, resource, signal, sys
import rioxarray, specinvert.cli, specinvert.inverter, specinvert.io.model_file, specinvert.io.writing, zarr
given = None
while given is None and (line := sys.stdin.readline()):
    asked = json.loads(line)
    if "pid" in asked:
        done, status = os.waitpid(asked["pid"], os.WNOHANG)
        print(json.dumps(os.waitstatus_to_exitcode(status) if done else None), flush=True)
    elif pid := os.fork():
        print(pid, flush=True)
    else:
        given = asked
if given is not None:
    for number, name in enumerate((os.devnull, given["out"], given["err"])):
        os.dup2(os.open(name, os.O_RDWR), number)
    os.chdir(given["folder"])
    signal.signal(signal.SIGINT, signal.default_int_handler)
    if given["most_bytes"] is not None:
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (given["most_bytes"],) * 2)
    sys.argv = ["-c", *given["arguments"]]
    exec(given["code"], {"__name__": "__main__"})
"""


class Starter:
    """The process from which commands are forked; pipes to them are in a folder."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.n_started = folder, 0
        self.process = subprocess.Popen(
            [sys.executable, "-c", STARTER],
            env=os.environ | {"DASK_ARRAY__CHUNK_SIZE": BLOCK},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def ask(self, **what: Any) -> Any:
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        print(json.dumps(what), file=self.process.stdin, flush=True)
        return json.loads(self.process.stdout.readline())

    def stop(self) -> None:
        self.process.communicate(timeout=PATIENCE)


class Command:
    """Python code with arguments, started in a folder; ``err`` may be a terminal, ``most_bytes`` limits its files."""

    def __init__(
        self, starter: Starter, code: str, folder: Path, *arguments: Any, err: str = "", most_bytes: int | None = None
    ) -> None:
        starter.n_started += 1
        self.starter, self.returncode = starter, None
        pipes = [starter.folder / f"{name}-{starter.n_started}" for name in ("out", "err")]
        for pipe in pipes:
            os.mkfifo(pipe)
        self.ends = [os.open(pipe, os.O_RDONLY | os.O_NONBLOCK) for pipe in pipes]
        self.said = [b"", b""]
        words = [str(argument) for argument in arguments]
        files = {"out": str(pipes[0]), "err": err or str(pipes[1]), "folder": str(folder)}
        self.pid = starter.ask(code=code, arguments=words, most_bytes=most_bytes, **files)

    def read(self) -> None:
        """Take in what it wrote so far."""
        for i, end in enumerate(self.ends):
            with contextlib.suppress(BlockingIOError):
                while part := os.read(end, 65536):
                    self.said[i] += part

    def poll(self) -> int | None:
        """The exit code once it ended."""
        if self.returncode is None:
            self.returncode = self.starter.ask(pid=self.pid)
            self.read()
            if self.returncode is not None:
                for end in self.ends:
                    os.close(end)
        return self.returncode

    def send_signal(self, number: signal.Signals) -> None:
        if self.poll() is None:
            os.kill(self.pid, number)

    def communicate(self) -> tuple[str, str]:
        """What it wrote as output and as errors, after its end."""
        deadline = time.monotonic() + PATIENCE
        while self.poll() is None:
            assert time.monotonic() < deadline, "the command does not end"
            time.sleep(0.01)
        return self.said[0].decode(), self.said[1].decode()
