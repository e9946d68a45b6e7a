"""The secret state of a chain of releases: one file, written before the release that it belongs to."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from deltahist._files import exclusive
from deltahist.errors import DamagedFile, InputError
from deltahist.kinds import SortedMechanism, SortedRelease
from deltahist.mechanisms import Mechanism
from deltahist.mechanisms.chain import Chain
from deltahist.publishers.state_files import new_token, read_state, write_state
from deltahist.releases import BaseRelease, Release
from deltahist.releases.base import from_bytes

#: Name of the file format.
_FORMAT = "deltahist-state"


@dataclass(frozen=True, eq=False)
class State:
    """What refines a release: the noise that is in it. Whoever has it can take the noise away, and sees the data.

    The file holds the last release of its chain too, so that nothing is lost where a process ends between writing the
    two. It is readable by its owner alone.

    Parameters
    ----------
    release : the last release of the chain. draws : (draws,) its noise; private.
    token : names this state in ledgers; another one for each release of the chain. source : token of the state that it
        came of; None for the first.

    >>> import tempfile, deltahist as dh, numpy as np
    >>> near = dh.Neighbourhood(dh.Domain((0, 8), (8,)), delta=1)
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     release = dh.publish(np.arange(8), near, epsilon=1, state=f"{folder}/line.state")
    ...     known = State.load(f"{folder}/line.state")
    >>> bool((known.release.values == release.values).all()), known
    (True, State(release 1 of chain ...))
    """

    release: Release | SortedRelease
    draws: NDArray[np.int64] = field(repr=False)
    token: str = field(repr=False, default_factory=new_token)
    source: str | None = field(repr=False, default=None)

    def __repr__(self) -> str:
        return f"State(release {self.chain.number} of chain {self.chain.name})"

    @property
    def chain(self) -> Chain:
        """Which release of which chain it belongs to."""
        chain = self.release.mechanism.chain
        assert chain is not None
        return chain

    @property
    def mechanism(self) -> Mechanism | SortedMechanism:
        """What was published, all but the numbers."""
        return self.release.mechanism

    @classmethod
    def load(cls, path: str | Path) -> State:
        """Read a state.

        Raises
        ------
        DamagedFile
            If the file is truncated, foreign, or contradicts itself.
        InputError
            If it is missing, of a newer version, or can be read by others.
        """
        description, arrays, token = read_state(Path(path), _FORMAT)
        try:
            release, draws = from_bytes(arrays["release"].tobytes(), path), arrays["draws"]
        except KeyError as problem:
            raise DamagedFile(f"state {str(path)!r} contradicts itself: it has no {problem}") from None
        return cls(_in_chain(release, draws, path), draws, token, description.get("source"))

    def begin(self, path: str | Path) -> None:
        """Write the state of a first release, durably; a file that exists is never overwritten."""
        self._write(path, new=True)

    def follow(self, path: str | Path) -> None:
        """Put the state of a finer release in the place of the one before, which is `held` meanwhile."""
        self._write(path, new=False)

    def next(self, release: Release | SortedRelease, draws: NDArray[np.int64]) -> Self:
        """The state of a finer release."""
        return replace(self, release=release, draws=draws, token=new_token(), source=self.token)

    def _write(self, path: str | Path, *, new: bool) -> None:
        content = np.frombuffer(self.release.to_bytes(), dtype=np.uint8)
        arrays: dict[str, NDArray[Any]] = {"release": content, "draws": self.draws}
        write_state(Path(path), _FORMAT, {"source": self.source}, arrays, self.token, new=new)


def check_new(path: str | Path) -> None:
    """InputError if a file is there already: a state is never overwritten."""
    if Path(path).exists():
        raise InputError(
            f"state {str(path)!r} exists already: it may refine another release, and is never overwritten; name a new "
            "file, or go on with that chain (`refine`)"
        )
    if not Path(path).parent.is_dir():
        raise InputError(f"folder {str(Path(path).parent)!r} of the state does not exist: make it first")
    if not os.access(Path(path).parent, os.W_OK):
        raise InputError(f"folder {str(Path(path).parent)!r} of the state cannot be written")


@contextlib.contextmanager
def held(path: str | Path) -> Iterator[State]:
    """A state, read, that no other process refines meanwhile."""
    if not Path(path).is_file():
        State.load(path)  # says what is missing
    with exclusive(Path(path), "state"):
        yield State.load(path)


def _in_chain(release: BaseRelease, draws: NDArray[Any], path: str | Path) -> Release | SortedRelease:
    """The release of a state, if it is in a chain and has as many draws as there are."""
    chain = release.mechanism.chain
    if chain is None or chain.copied is not None or not isinstance(release, Release | SortedRelease):
        raise DamagedFile(f"state {str(path)!r} holds a release that is in no chain")
    number = release.mechanism.draws
    if draws.shape != (number,) or draws.dtype != np.int64:
        raise DamagedFile(
            f"state {str(path)!r} has draws of shape {draws.shape} and type {draws.dtype}: there must be {number:,} "
            "int64"
        )
    return release
