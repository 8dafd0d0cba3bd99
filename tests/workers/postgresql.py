"""A PostgreSQL server of the tests' own, on loopback, in a folder that goes away."""

import os
import shutil
import socket
import subprocess
import tempfile
import time
from pathlib import Path


def find_programs():
    """Where `initdb` and `postgres` are; installs them where that is possible.

    Returns:
        The folder, or a sentence that says why there is none.
    """
    if (found := _installed()) is not None:
        return found
    if os.geteuid() != 0 or shutil.which("apt-get") is None:
        return "PostgreSQL is not installed, and apt-get cannot install it here"
    for command in (["update", "-qq"], ["install", "-y", "-qq", "postgresql"]):
        done = subprocess.run(
            ["apt-get", *command],
            capture_output=True,
            env={**os.environ, "DEBIAN_FRONTEND": "noninteractive"},
            check=False,
        )
    return _installed() or f"apt-get could not install PostgreSQL: {done.stderr!r}"


def _installed():
    folders = sorted(Path("/usr/lib/postgresql").glob("*/bin"), key=str)
    if (initdb := shutil.which("initdb")) is not None:
        folders.append(Path(initdb).resolve().parent)
    return next((f for f in reversed(folders) if (f / "initdb").exists()), None)


class Server:
    """A server that can be stopped and started again at the same address."""

    def __init__(self, programs):
        self.programs = programs
        self.folder = Path(tempfile.mkdtemp(prefix="pg", dir=_memory()))
        # PostgreSQL refuses to be run by root.
        self.user = {"user": "postgres"} if os.geteuid() == 0 else {}
        if self.user:
            shutil.chown(self.folder, "postgres")
        self.port = _free_port()
        self._call("initdb", "-D", self.folder / "data", "-A", "trust", "-U", "test")
        self.process = None

    def start(self):
        settings = {
            "port": self.port,
            "listen_addresses": "127.0.0.1",
            "unix_socket_directories": "",
            "fsync": "off",
        }
        flags = [part for k, v in settings.items() for part in ("-c", f"{k}={v}")]
        with open(self.folder.with_suffix(".log"), "ab") as log:
            self.process = subprocess.Popen(
                [self.programs / "postgres", "-D", self.folder / "data", *flags],
                stdout=log,
                stderr=log,
                cwd="/",
                **self.user,
            )
        for _ in range(600):
            ready = [self.programs / "pg_isready", "-q", "-h", "127.0.0.1"]
            ready += ["-p", str(self.port)]
            if subprocess.run(ready, check=False).returncode == 0:
                return
            time.sleep(0.1)
        raise AssertionError(self.folder.with_suffix(".log").read_text())

    def stop(self):
        """As an administrator would: connections are cut."""
        if self.process is not None:
            self.process.send_signal(2)
            self.process.wait(60)
            self.process = None

    def database(self, name):
        """The URL of a new, empty database."""
        self._call("createdb", "-h", "127.0.0.1", "-p", self.port, "-U", "test", name)
        return f"postgresql://test@127.0.0.1:{self.port}/{name}"

    def remove(self):
        self.stop()
        shutil.rmtree(self.folder, ignore_errors=True)
        self.folder.with_suffix(".log").unlink(missing_ok=True)

    def _call(self, program, *args):
        subprocess.run(
            [self.programs / program, *map(str, args)],
            check=True,
            capture_output=True,
            cwd="/",
            **self.user,
        )


def _memory():
    return "/dev/shm" if os.path.isdir("/dev/shm") else None


def _free_port():
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return one.getsockname()[1]
