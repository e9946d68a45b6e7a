"""What all tests of commands say of a command line: it works, or it is refused."""

import pytest

from deltahist.cli import main


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
