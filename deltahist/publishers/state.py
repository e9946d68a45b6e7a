"""The state of a chain: a secret file with the noise of the last release, which the next release refines.

A state appears whole or not at all, and only its owner can read it.
"""

from __future__ import annotations

import contextlib
import json
import secrets
import zipfile
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NoReturn

import numpy as np
from numpy.typing import NDArray

from deltahist._files import check_creatable, check_format, check_secret, exclusive, open_regular, write_whole
from deltahist.errors import DamagedFile, InputError, check_memory
from deltahist.kinds import parse_release
from deltahist.laws import Law
from deltahist.mechanisms import BaseMechanism
from deltahist.mechanisms.base import Chain
from deltahist.noise.samplers import Refinable, sampler_of
from deltahist.releases import BaseRelease

Draws = NDArray[np.int64]

#: Name of the file format of a chain, and version of all states; older ones stay readable.
_FORMAT, _VERSION = "deltahist-state", 1


def new_token() -> str:
    """Return a unique name for one writing of a state: 32 hexadecimal digits."""
    return secrets.token_hex(16)


def write_state(
    path: Path, form: str, description: Mapping[str, Any], arrays: Mapping[str, NDArray[Any]], token: str,
    *, new: bool = False,
) -> None:  # fmt: skip
    """Write a state of a form, durably; InputError if it cannot be written, or if a `new` state exists already."""
    content = json.dumps({"format": form, "version": _VERSION, "token": token, **description}).encode()
    named = {"description": np.frombuffer(content, dtype=np.uint8), **arrays}

    def write(part: Path) -> None:
        with part.open("wb") as file:
            np.savez(file, allow_pickle=False, **named)

    if not write_whole(path, write, secret=True, replace=not new):
        refuse_existing(path)


def refuse_existing(path: str | Path) -> NoReturn:
    """Raise InputError: a state is never overwritten."""
    raise InputError(f"state {str(path)!r} exists already, and is never overwritten: name a new file, or refine it")


def check_new(path: str | Path) -> None:
    """Raise InputError unless a new state can be written."""
    if Path(path).exists():
        refuse_existing(path)
    check_creatable(path)


def read_state(path: Path, form: str, parse: Callable[..., Any] = lambda *content: content) -> Any:
    """Return `parse(description, arrays, token)` of a state, which is untrusted input.

    Raises InputError if the file is missing, other users can read it, or its version is newer; DamagedFile if it is
    truncated, of another form or no state, or if `parse` fails.
    """
    with open_regular(path, "state") as file:
        if zipfile.is_zipfile(file):  # other files are not states, so their permissions do not matter
            check_secret(path, "state")
            if (names := path.stat().st_nlink) > 1:
                raise InputError(
                    f"state {str(path)!r} has {names} names (hard links), and each would refine the same noise: keep "
                    f"one (`find FOLDER -samefile {str(path)!r}` shows them)"
                )
        try:
            with zipfile.ZipFile(file) as parts:
                check_memory(sum(part.file_size for part in parts.infolist()), f"state {str(path)!r}")
            file.seek(0)
            with np.load(file, allow_pickle=False) as content:
                arrays = {name: content[name] for name in content.files}
            description = json.loads(arrays.pop("description").tobytes())
            check_format(description, str(path), (form,), _VERSION)
            return parse(description, arrays, str(description["token"]))
        except Exception as problem:  # NumPy evaluates headers, and fails in many ways
            damage = DamagedFile(f"state {str(path)!r} is truncated, altered or no state: {problem}")
            raise problem if isinstance(problem, InputError) else damage from None


@dataclass(frozen=True, eq=False)
class State:
    """The noise in a release, needed to refine it. Anyone who has it can remove the noise and see the data.

    The file also holds the release, so that none is lost if the process ends between writing the two.

    Parameters
    ----------
    release : the last release of the chain. draws : (draws,) its noise; private.
    token : name of this state in ledgers. source : token of the previous state; None for the first.
    """

    release: BaseRelease
    draws: NDArray[np.int64] = field(repr=False)
    token: str = field(repr=False, default_factory=new_token)
    source: str | None = field(repr=False, default=None)

    def __repr__(self) -> str:
        return f"State(release {self.chain.number} of chain {self.chain.name})"

    @property
    def chain(self) -> Chain:
        """The chain up to its release."""
        assert self.mechanism.chain is not None
        return self.mechanism.chain

    @property
    def mechanism(self) -> BaseMechanism:
        """The mechanism of the release."""
        return self.release.mechanism

    @classmethod
    def load(cls, path: str | Path) -> State:
        """Read a state; raises as `read_state`."""

        def parse(description: dict[str, Any], arrays: dict[str, NDArray[Any]], token: str) -> State:
            release = parse_release(arrays["release"].tobytes(), path)
            draws = arrays["draws"].astype(np.int64, casting="equiv").reshape(release.mechanism.draws)
            chain = release.mechanism.chain
            if chain is None or chain.copied is not None:
                raise ValueError("its release is in no chain")
            return cls(release, draws, token, description.get("source"))

        found: State = read_state(Path(path), _FORMAT, parse)
        return found

    def write(self, path: str | Path, *, new: bool) -> None:
        """Write the state durably, as a `new` file or in place of the previous state, which the caller has locked."""
        content = np.frombuffer(self.release.to_bytes(), dtype=np.uint8)
        arrays: dict[str, NDArray[Any]] = {"release": content, "draws": self.draws}
        write_state(Path(path), _FORMAT, {"source": self.source}, arrays, self.token, new=new)


@contextlib.contextmanager
def lock_state(path: str | Path) -> Iterator[State]:
    """Yield a state, locked against refinement by other processes."""
    open_regular(Path(path), "state").close()  # a missing state gets no lock
    with exclusive(Path(path), "state"):
        yield State.load(path)


def draw_chain(mechanism: BaseMechanism, before: State | None, rng: np.random.Generator | None) -> Draws:
    """Draw noise (draws,) of a release given the previous state of its chain. Gaussian noise is in lattice steps."""
    out = np.zeros(mechanism.draws, dtype=np.int64)
    for place, (members, law) in enumerate(mechanism.noise_groups):
        if not law.parameter:
            continue
        path, level = _path_of(mechanism, law), 1 / law.parameter
        if before is None:
            out[members] = path.start(level, len(out[members]), rng=rng)
        else:
            known = 1 / before.mechanism.noise_groups[place][1].parameter
            move = path.refine if known < level else path.tighten
            out[members] = move(before.draws[members], known, level, rng=rng)
    return out


def check_refines(known: State, finer: BaseMechanism) -> None:
    """Refine a zero as a test before the charge; InputError if the budgets are too far apart or too close."""
    for (_, law), (_, other) in zip(known.mechanism.noise_groups, finer.noise_groups, strict=True):
        if law.parameter:
            _path_of(finer, other).refine(np.zeros(1, dtype=np.int64), 1 / law.parameter, 1 / other.parameter)


def released_noise(mechanism: BaseMechanism, draws: Draws) -> Draws:
    """Return the noise that the draws of a release add to its numbers."""
    noise = draws.copy()
    for members, law in mechanism.noise_groups:
        if law.parameter:
            noise[members] = _path_of(mechanism, law).round_values(draws[members])
    return mechanism.scatter(noise)


def _path_of(mechanism: BaseMechanism, law: Law) -> Refinable:
    """Return the process of a law; Gaussian noise lies on the lattice of the first release."""
    chain = mechanism.chain
    assert chain is not None
    path = sampler_of(law, chain.amounts[0] / chain.amount / law.parameter)
    assert isinstance(path, Refinable)
    return path
