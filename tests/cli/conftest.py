"""What all tests of commands say of a command line: it works, or it is refused."""

import numpy as np
import pandas as pd
import pytest

from deltahist.cli import main

#: How the columns x and y of `visits` are counted.
PLANE = ["--x", "x", "--y", "y", "--bounds", "0,0,8,8", "--cell", "1", "--delta", "1", "--strategy", "identity"]


@pytest.fixture
def visits(tmp_path, monkeypatch):
    """The folder that commands run in, with a table of 400 visits of 40 users."""
    rng = np.random.default_rng(7)
    places = pd.DataFrame({"x": rng.random(400) * 8, "y": rng.random(400) * 8, "id": np.arange(400) % 40})
    places["kind"], places["age"] = np.where(places["x"] < 2, "bus", "tram"), rng.integers(0, 120, 400)
    places["lon"], places["lat"] = -73.98 + places["x"] / 100, 40.70 + places["y"] / 150
    places.to_csv(tmp_path / "v.csv", index=False)
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def run(capsys):
    """Run a command line that must work; return what it printed, as `out` and `err`."""

    def run(*line):
        capsys.readouterr()
        code = main(list(map(str, line)))
        said = capsys.readouterr()
        assert code == 0, said.err
        return said

    return run


@pytest.fixture
def refused(capsys):
    """Run a command line that must end with 2 and a message that has all words; return the message."""

    def refused(line, *words):
        capsys.readouterr()
        assert main(list(map(str, line))) == 2
        error = capsys.readouterr().err
        assert [word for word in words if word not in error] == [], error
        return error

    return refused
