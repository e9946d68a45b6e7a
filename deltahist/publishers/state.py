"""The secret state of a chain of releases: one file, written before the release that it belongs to."""

from __future__ import annotations

import contextlib
import json
import os
import secrets
import stat
import tempfile
import warnings
import zipfile
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import IO, Self

import numpy as np
from numpy.typing import NDArray

from deltahist._files import check_format, write_whole
from deltahist.budgets.sqlite import hold
from deltahist.errors import DamagedFile, DeltaHistWarning, InputError
from deltahist.mechanisms import Mechanism, SortedMechanism
from deltahist.mechanisms.chain import Chain
from deltahist.releases import BaseRelease, Release, SortedRelease
from deltahist.releases.files import from_bytes

_FORMAT, _VERSION = "deltahist-state", 1
_ABOUT, _RELEASE, _DRAWS = "about.json", "release.parquet", "draws.npy"


@dataclass(frozen=True, eq=False)
class State:
    """What refines a release: the noise that is in it. Whoever has it can take the noise away, and sees the data.

    The file holds the last release of its chain too, so that nothing is lost where a process ends between writing the
    two. It is readable by its owner alone.

    Parameters
    ----------
    release : the last release of the chain. draws : (draws,) its noise; private.
    token : names this state in ledgers; another one for each release of the chain.

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
    token: str = field(repr=False, default_factory=lambda: secrets.token_hex(16))

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
            If it is missing or of a newer version.
        """
        path = Path(path)
        if not path.is_file():
            raise InputError(
                f"state {str(path)!r} does not exist: only the state that was written with a release can refine it"
            )
        if os.name == "posix" and stat.S_IMODE(path.stat().st_mode) & 0o077:
            warnings.warn(
                f"state {str(path)!r} can be read by others, who could take the noise away: chmod 600 it",
                DeltaHistWarning,
                stacklevel=2,
            )
        try:
            with zipfile.ZipFile(path) as parts:
                about = json.loads(parts.read(_ABOUT))
                check_format(about, str(path), form=_FORMAT, version=_VERSION)
                release = _in_chain(from_bytes(parts.read(_RELEASE), path), path)
                with parts.open(_DRAWS) as member:
                    draws = _array(member, release.mechanism.draws, path)
                    member.read(1)  # the checksum is looked at where the part ends
        except (zipfile.BadZipFile, KeyError, ValueError, EOFError, OSError, TypeError) as problem:
            if isinstance(problem, InputError) and not isinstance(problem, DamagedFile):
                raise
            raise DamagedFile(
                f"state {str(path)!r} cannot be read (truncated, altered or foreign?): {problem}; nothing was drawn "
                "or spent"
            ) from None
        return cls(release, draws, str(about["token"]))

    def begin(self, path: str | Path) -> None:
        """Write the state of a first release, durably; a file that exists is never overwritten."""
        with hold(Path(path), "state"):
            check_new(path)
            write_whole(Path(path), self._write, secret=True)

    def follow(self, path: str | Path) -> None:
        """Put the state of a finer release in the place of the one before, which is `held` meanwhile."""
        write_whole(Path(path), self._write, secret=True)

    def next(self, release: Release | SortedRelease, draws: NDArray[np.int64]) -> Self:
        """The state of a finer release."""
        return replace(self, release=release, draws=draws, token=secrets.token_hex(16))

    def _write(self, part: Path) -> None:
        about = {"format": _FORMAT, "version": _VERSION, "token": self.token}
        with tempfile.TemporaryDirectory(prefix=".", dir=part.parent) as folder:
            published = Path(folder) / _RELEASE
            self.release.save(published)
            with zipfile.ZipFile(part, "w") as parts:
                parts.writestr(_ABOUT, json.dumps(about))
                parts.write(published, _RELEASE)
                with parts.open(_DRAWS, "w", force_zip64=True) as member:
                    np.lib.format.write_array(member, self.draws, allow_pickle=False)


def check_new(path: str | Path) -> None:
    """InputError if a file is there already: a state is never overwritten."""
    if Path(path).exists():
        raise InputError(
            f"state {str(path)!r} exists already: it is what refines another release, and is never overwritten; name "
            "a new file, or go on with that chain (`dh.refine`)"
        )
    if not Path(path).parent.is_dir():
        raise InputError(f"folder {str(Path(path).parent)!r} of the state does not exist: make it first")


@contextlib.contextmanager
def held(path: str | Path) -> Iterator[State]:
    """A state, read, that no other process refines meanwhile."""
    if not Path(path).is_file():
        State.load(path)  # says what is missing
    with hold(Path(path), "state"):
        yield State.load(path)


def _in_chain(release: BaseRelease, path: Path) -> Release | SortedRelease:
    chain = release.mechanism.chain
    if chain is None or chain.copied is not None or not isinstance(release, Release | SortedRelease):
        raise DamagedFile(f"state {str(path)!r} holds a release that is in no chain")
    return release


def _array(member: IO[bytes], number: int, path: Path) -> NDArray[np.int64]:
    """The draws, if there are as many as there must be: looked at before memory is taken."""
    version = np.lib.format.read_magic(member)
    read = np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
    shape, _, kind = read(member)
    if shape != (number,) or kind != np.dtype(np.int64):
        raise DamagedFile(
            f"state {str(path)!r} has draws of shape {shape} and type {kind}: there must be {number:,} int64"
        )
    return np.frombuffer(member.read(8 * number), dtype=np.int64).copy()
