"""Secret states: files that refine a release, or users' reports; whole or not at all, and for the owner's eyes only."""

from __future__ import annotations

import contextlib
import json
import os
import secrets
import zipfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from deltahist._files import check_format, check_secret, exclusive, write_whole
from deltahist.errors import DamagedFile, InputError, fits_memory
from deltahist.kinds import SortedMechanism, SortedRelease
from deltahist.mechanisms import Mechanism
from deltahist.mechanisms.base import Chain
from deltahist.releases import Release
from deltahist.releases.base import from_bytes

#: Name of the file format of a chain, and version of all states; older ones stay readable.
_FORMAT, _VERSION = "deltahist-state", 1
#: Name of the description among the arrays.
_DESCRIPTION = "description"


def new_token() -> str:
    """Return a name that tells a writing from all others: 32 hexadecimal digits."""
    return secrets.token_hex(16)


def write_state(
    path: Path,
    form: str,
    description: Mapping[str, Any],
    arrays: Mapping[str, NDArray[Any]],
    token: str,
    *,
    new: bool = False,
) -> None:
    """Write a state of a form, durably; its token tells this writing from all others.

    Raises InputError if the folder cannot be written, or if the state is `new` and there is one already.
    """
    said = {"format": form, "version": _VERSION, "token": token, **description}
    named = {_DESCRIPTION: np.frombuffer(json.dumps(said).encode(), dtype=np.uint8), **arrays}

    def write(part: Path) -> None:
        with part.open("wb") as file:
            np.savez(file, allow_pickle=False, **named)

    if not write_whole(path, write, secret=True, replace=not new):
        _refuse_existing(path)


def _refuse_existing(path: str | Path) -> None:
    raise InputError(
        f"state {str(path)!r} exists already: it belongs to something else, and is never overwritten; name a new file, "
        "or go on with that one (`refine`)"
    )


def check_new(path: str | Path) -> None:
    """Raise InputError unless a new state can be written."""
    if Path(path).exists():
        _refuse_existing(path)
    folder = Path(path).parent
    if not folder.is_dir() or not os.access(folder, os.W_OK):
        why = "cannot be written" if folder.is_dir() else "does not exist: make it first"
        raise InputError(f"folder {str(folder)!r} of the state {why}")


def read_state(path: Path, form: str) -> tuple[dict[str, Any], dict[str, NDArray[Any]], str]:
    """Read description, arrays and token of a state.

    Raises InputError if there is no such file, others than its owner can read it, or it is of a newer version;
    DamagedFile if it is truncated, of another form or something else.
    """
    if not path.is_file():
        raise InputError(f"state {str(path)!r} does not exist: nothing can go on without the one that was written")
    if zipfile.is_zipfile(path):  # what is no state is called that, not a state that others can read
        check_secret(path, "state")
        if path.stat().st_nlink > 1:
            raise InputError(
                f"state {str(path)!r} has {path.stat().st_nlink} names (hard links), and each would refine the same "
                f"noise: leave one (`find FOLDER -samefile {str(path)!r}` shows them); nothing was drawn or spent"
            )
    try:
        with zipfile.ZipFile(path) as parts:
            fits_memory(sum(part.file_size for part in parts.infolist()), f"state {str(path)!r}")
        with np.load(path, allow_pickle=False) as file:
            arrays = {name: file[name] for name in file.files}
        description = json.loads(arrays.pop(_DESCRIPTION).tobytes())
        check_format(description, str(path), form=form, version=_VERSION)
        return description, arrays, str(description["token"])
    except InputError:
        raise
    except Exception as problem:  # NumPy reads headers as programs are read, and stumbles in as many ways
        raise DamagedFile(
            f"state {str(path)!r} is truncated or no state: {problem}; nothing was drawn or spent"
        ) from None


@dataclass(frozen=True, eq=False)
class State:
    """The noise in a release, which refines it. Whoever has it can take the noise away, and sees the data.

    The file holds the last release of its chain too, so that nothing is lost where a process ends between writing the
    two. It is readable by its owner alone.

    Parameters
    ----------
    release : the last release of the chain. draws : (draws,) its noise; private.
    token : names this state in ledgers; another one for each release of the chain. source : token of the state that it
        came of; None for the first.
    """

    release: Release | SortedRelease
    draws: NDArray[np.int64] = field(repr=False)
    token: str = field(repr=False, default_factory=new_token)
    source: str | None = field(repr=False, default=None)

    def __repr__(self) -> str:
        return f"State(release {self.chain.number} of chain {self.chain.name})"

    @property
    def chain(self) -> Chain:
        """The place of its release in the chain."""
        assert self.mechanism.chain is not None
        return self.mechanism.chain

    @property
    def mechanism(self) -> Mechanism | SortedMechanism:
        """The release but its numbers."""
        return self.release.mechanism

    @classmethod
    def load(cls, path: str | Path) -> State:
        """Read a state; raises as `read_state`, and DamagedFile if the file contradicts itself."""
        description, arrays, token = read_state(Path(path), _FORMAT)
        try:
            release, draws = from_bytes(arrays["release"].tobytes(), path), arrays["draws"]
        except KeyError as problem:
            raise DamagedFile(f"state {str(path)!r} contradicts itself: it has no {problem}") from None
        chain, number = release.mechanism.chain, release.mechanism.draws
        if chain is None or chain.copied is not None or not isinstance(release, Release | SortedRelease):
            raise DamagedFile(f"state {str(path)!r} holds a release that is in no chain")
        if draws.shape != (number,) or draws.dtype != np.int64:
            raise DamagedFile(
                f"state {str(path)!r} has draws of shape {draws.shape} and type {draws.dtype}: there must be "
                f"{number:,} int64"
            )
        return cls(release, draws, token, description.get("source"))

    def follow(self, release: Release | SortedRelease, draws: NDArray[np.int64]) -> Self:
        """Return the state of a finer release."""
        return replace(self, release=release, draws=draws, token=new_token(), source=self.token)

    def write(self, path: str | Path, *, new: bool) -> None:
        """Write the state, durably: `new`, or in the place of the one before, which is locked meanwhile."""
        content = np.frombuffer(self.release.to_bytes(), dtype=np.uint8)
        arrays: dict[str, NDArray[Any]] = {"release": content, "draws": self.draws}
        write_state(Path(path), _FORMAT, {"source": self.source}, arrays, self.token, new=new)


@contextlib.contextmanager
def lock_state(path: str | Path) -> Iterator[State]:
    """Yield a state that no other process refines meanwhile."""
    if not Path(path).is_file():
        State.load(path)  # says what is missing
    with exclusive(Path(path), "state"):
        yield State.load(path)
