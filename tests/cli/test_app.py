"""How commands run: imports, the project file, errors, and signals."""

import os
import signal
import socket
import struct
import subprocess
import sys
import threading
import time
from importlib import import_module
from pathlib import Path
from unittest.mock import Mock

import pytest

import deltahist as dh
from deltahist.cli import COMMANDS, format_table, main
from tests.cli.conftest import PLANE

ROOT = Path(dh.__file__).parent.parent
#: Packages that take long to import, and that no help needs.
SLOW = {"cvxpy", "duckdb", "geopandas", "ibis", "matplotlib", "numpy", "pandas", "pyarrow", "pyproj", "rasterio"}
SLOW |= {"scipy", "shapely", "sqlalchemy"}
#: Set before a run, as a process of its own has them.
FRESH = {**os.environ, "PYTHONPATH": str(ROOT)}


@pytest.mark.parametrize("line", [[], ["publish"], ["plan"], ["query"]])
def test_help_imports_nothing_slow(line):
    called = [sys.executable, "-X", "importtime", "-m", "deltahist", *line, "--help"]
    done = subprocess.run(called, capture_output=True, text=True, env=FRESH, check=True)
    assert not SLOW & {each.split("|")[-1].strip() for each in done.stderr.splitlines()}


def test_a_shell_completes_the_options_of_a_command():
    line = {"COMP_WORDS": "deltahist publish --eps", "COMP_CWORD": "2", "_DELTAHIST_COMPLETE": "complete_bash"}
    called = [sys.executable, "-c", "from deltahist.cli import main; main()"]
    assert subprocess.run(called, capture_output=True, text=True, env=FRESH | line).stdout.split() == ["--epsilon"]


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_has_help(run, name):
    assert "Usage:" in run(name, "--help").out


# the project file


def test_typed_values_win_over_the_project_file(run, visits):
    (visits / "deltahist.toml").write_text(
        'x = "x"\ny = "y"\nbounds = "0,0,8,8"\ncell = 1\ndelta = 1\nepsilon = 0.10\nstart = 0\n'
        '[publish]\nlimit = ["3:2", "any:3"]\nstrategy = "identity"\n[query]\nlevel = 0.9\n'
    )
    said = run("publish", "v.csv", "--out", "a.parquet")
    release = dh.load("a.parquet")
    assert (str(release.epsilon), release.domain.shape) == ("1/10", (8, 8))
    assert [str(limit.factor) for limit in release.neighbourhood.limits] == ["2", "3"]
    assert "epsilon is 1/10, from deltahist.toml" in said.err  # an amount that is spent is named
    said = run("publish", "v.csv", "--out", "b.parquet", "--epsilon", "2", "--limit", "any:4")
    release = dh.load("b.parquet")
    assert release.epsilon == 2
    assert [str(limit.factor) for limit in release.neighbourhood.limits] == ["4"]
    assert "epsilon is" not in said.err
    assert run("query", "b.parquet", "--box", "0,0,4,4").out != run("query", "b.parquet", "--box", "0,0,4,4",
                                                                    "--level", "0.95").out  # fmt: skip


@pytest.mark.parametrize(
    "text",
    [
        'colour = "red"',
        "[publish]\ncolour = 1",
        "[paint]\nx = 1",
        "x = ",
        '[publish]\nledger = "postgresql://ann:secret@host/city"',
    ],
)
def test_a_project_file_that_cannot_be_meant(refused, visits, text):
    (visits / "c.toml").write_text(text)
    refused(["--config", "c.toml", "publish", "v.csv", *PLANE, "--epsilon", "1", "-o", "r.parquet"])
    refused(["--config", "none.toml", "publish", "v.csv"])
    assert not (visits / "r.parquet").exists()


# errors and signals


def test_a_table_keeps_names_as_they_are_and_its_columns_flush():
    lines = format_table(
        ["name", "count"], [["[bold]a", "1"], ["東京", "1,000"], ["two\nlines \x1b[1m", "3"]]
    ).splitlines()
    assert [line.split()[0] for line in lines[2:]] == ["[bold]a", "東京", "two"]
    assert len(lines) == 5
    assert "\x1b" not in "".join(lines)


@pytest.mark.parametrize(
    "problem",
    [MemoryError("5 GiB"), PermissionError(13, "Permission denied", "/x"), OSError("disk on fire"),
     KeyboardInterrupt(), ModuleNotFoundError(name="fastapi")],
)  # fmt: skip
def test_what_the_machine_refuses_is_one_line(monkeypatch, refused, problem):
    monkeypatch.setattr(import_module("deltahist.cli"), "invoke", Mock(side_effect=problem))
    error = refused(["query", "x"])
    assert error.startswith("error: ")
    assert len(error.splitlines()) == 1


@pytest.mark.parametrize("problem", [ZeroDivisionError(), ModuleNotFoundError(name="deltahist.servre")])
def test_programming_errors_keep_their_traceback(monkeypatch, problem):
    monkeypatch.setattr(import_module("deltahist.cli"), "invoke", Mock(side_effect=problem))
    with pytest.raises(type(problem)):
        main(["query", "x"])


@pytest.mark.parametrize("told", [signal.SIGTERM, signal.SIGHUP, signal.SIGINT])
def test_a_signal_leaves_nothing_half_written(visits, told):
    old = visits / ".o.parquet.abcd1234.parquet"  # of a process that was killed long ago
    old.write_bytes(b"part")
    os.utime(old, (0, 0))
    line = ["deltahist", "publish", "v.csv", *PLANE, "--epsilon", "1", "--out", "o.parquet"]
    code = (
        f"import signal, sys, time\nimport deltahist._files as base\nfrom deltahist.cli import main\n"
        f"signal.signal({int(told)}, signal.default_int_handler if {int(told)} == 2 else signal.SIG_DFL)\n"
        f"sys.argv = {line}\nreal = base.write_parquet\n"
        "def slow(*given):\n    real(*given)\n    print('writing', flush=True)\n    time.sleep(60)\n"
        "base.write_parquet = slow\nsys.exit(main())\n"
    )
    with subprocess.Popen(
        [sys.executable, "-c", code], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, env=FRESH
    ) as process:
        while b"writing" not in process.stdout.readline():
            assert process.poll() is None
        assert len(list(visits.iterdir())) == 2  # the table and one part: the old one is gone
        process.send_signal(told)
        assert process.wait(20) == 128 + told
    assert [each.name for each in visits.iterdir()] == ["v.csv"]


def test_a_server_from_a_project_file_gets_no_password(refused, visits, monkeypatch):
    """The author of the file chose the host; a server that asks for a password in clear text must not hear it."""
    heard, asks = [], struct.pack(">cII", b"R", 8, 3)  # AuthenticationCleartextPassword
    server = socket.create_server(("127.0.0.1", 0))

    def listen():
        while True:
            try:
                connection, _ = server.accept()
            except OSError:
                return
            with connection:
                connection.settimeout(5)
                while len(received := connection.recv(4096)) == 8:  # may they speak TLS, or GSSAPI? no
                    connection.sendall(b"N")
                connection.sendall(asks)
                heard.append(received + connection.recv(4096))

    threading.Thread(target=listen, daemon=True).start()
    where = f"postgresql://ann@127.0.0.1:{server.getsockname()[1]}/city"
    monkeypatch.setenv("PGPASSWORD", "s3cret")
    line = ["publish", "v.csv", *PLANE, "--epsilon", "1", "-o", "r.parquet"]
    line += ["--account", "visits", "--account-limit", "1"]
    refused([*line, "--ledger", where])
    assert b"s3cret" in heard.pop()  # typed: it is meant
    (visits / "deltahist.toml").write_text(f'ledger = "{where}"')
    refused(line, "PGPASSWORD is not sent")
    for _ in range(50):
        if not heard:
            time.sleep(0.1)
    server.close()
    assert heard
    assert b"s3cret" not in b"".join(heard)
