"""A real PostgreSQL server for tests: on loopback, one for a whole run, started when the first test asks for it.

Where there is none it is installed from Debian's packages, which takes root. Elsewhere its tests are skipped; under CI
they fail instead.
"""

import contextlib
import fcntl
import json
import os
import shutil
import socket
import subprocess
import tempfile
import uuid
from pathlib import Path

import psycopg
import pytest

#: The server does not run as root: this user comes with Debian's package.
_USER = "postgres"
_STATE = "postgres.json"


@pytest.fixture
def postgres_url(tmp_path_factory):
    """The address of an empty database of its own."""
    with new_database(tmp_path_factory.getbasetemp()) as url:
        yield url


@contextlib.contextmanager
def new_database(folder):
    """Make a database for a while; `folder` is that of the run."""
    server = _server(_shared(folder))
    name = f"test_{uuid.uuid4().hex}"
    with psycopg.connect(f"{server}/postgres", autocommit=True) as connection:
        connection.execute(f'CREATE DATABASE "{name}"')
    yield f"{server}/{name}"
    with psycopg.connect(f"{server}/postgres", autocommit=True) as connection:
        connection.execute(f'DROP DATABASE "{name}" WITH (FORCE)')


def break_others(connection):
    """End all other connections to the same database."""
    connection.execute(
        "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE pid <> pg_backend_pid()"
        " AND datname = current_database()"
    )


def stop(config):
    """Stop what this run has started; for the end of the run, in the process that began it."""
    with contextlib.suppress(AttributeError):
        state = config._tmp_path_factory.getbasetemp() / _STATE
        if state.exists():
            started = json.loads(state.read_text())
            _control(Path(started["folder"]), "stop", "-m", "immediate")
            shutil.rmtree(started["folder"], ignore_errors=True)
            state.unlink()


def _shared(folder):
    """The folder that all workers of a run share."""
    return folder.parent if "PYTEST_XDIST_WORKER" in os.environ else folder


def _server(shared):
    state = shared / _STATE
    with (shared / "postgres.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not state.exists():
            state.write_text(json.dumps(_start()))
    return json.loads(state.read_text())["url"]


def _start():
    if _binaries() is None:
        _install()
    # Not below the run's own folder, into which only its user may look.
    folder = Path(tempfile.mkdtemp(prefix="deltahist-postgres-"))
    if os.geteuid() == 0:
        shutil.chown(folder, _USER)
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    settings = f"-c listen_addresses=127.0.0.1 -p {port} -c unix_socket_directories='' -c max_connections=200"
    # Processes are killed, but no machine: nothing needs to reach the disk.
    settings += " -c fsync=off -c full_page_writes=off"
    _control(folder, "initdb", "-o", f"-U {_USER} -A trust -E UTF8 --locale=C.UTF-8 --no-sync")
    _control(folder, "start", "-w", "-l", str(folder / "log"), "-o", settings)
    _watch(folder)
    return {"folder": str(folder), "url": f"postgresql://{_USER}@127.0.0.1:{port}"}


def _watch(folder):
    """Let the server end with the run, also where that is killed and cannot stop it."""
    run = os.getppid() if "PYTEST_XDIST_WORKER" in os.environ else os.getpid()
    end = 'kill -QUIT "$(head -n 1 "$2/data/postmaster.pid")"; sleep 1; rm -rf "$2"'
    nothing = dict.fromkeys(("stdin", "stdout", "stderr"), subprocess.DEVNULL)
    command = ["sh", "-c", f'(while kill -0 "$1"; do sleep 1; done; {end}) &', "sh", str(run), str(folder)]
    subprocess.run(command, check=True, start_new_session=True, **nothing)


def _control(folder, *words):
    user = {"user": _USER, "group": _USER, "extra_groups": []} if os.geteuid() == 0 else {}
    command = [str(_binaries() / "pg_ctl"), "-D", str(folder / "data"), *words]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL, cwd=folder, **user)


def _binaries():
    """The folder of the newest server that is installed; None if there is none."""
    found = sorted(Path("/usr/lib/postgresql").glob("*/bin/pg_ctl"), key=lambda path: int(path.parts[-3]))
    there = str(found[-1]) if found else shutil.which("pg_ctl")
    return None if there is None else Path(there).resolve().parent


def _install():
    if os.geteuid() or not shutil.which("apt-get"):
        message = "there is no PostgreSQL server here, and it can only be installed by root of a Debian system"
        if os.environ.get("CI"):
            pytest.fail(message)
        pytest.skip(message)
    quiet = {"check": True, "stdout": subprocess.DEVNULL, "stdin": subprocess.DEVNULL}
    quiet["env"] = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    # A machine that has just been started may still be at its own updates.
    install = ["apt-get", "install", "-qq", "--no-install-recommends", "-o", "DPkg::Lock::Timeout=300"]
    subprocess.run(["apt-get", "update", "-qq"], **quiet)
    subprocess.run([*install, "postgresql-common"], **quiet)
    # The package would start a server of its own.
    settings = Path("/etc/postgresql-common/createcluster.conf")
    settings.write_text(settings.read_text() + "\ncreate_main_cluster = false\n")
    subprocess.run([*install, "postgresql"], **quiet)
