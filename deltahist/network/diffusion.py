"""Diffusion of private data over a network: every response is the nearest one's, with more noise."""

from __future__ import annotations

import functools
import hashlib
import hmac
import json
import os
from collections.abc import Iterable, Mapping
from fractions import Fraction
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from deltahist._files import check_secret, write_whole
from deltahist._progress import progress
from deltahist.budget import floor_nano
from deltahist.errors import NANO, DamagedFile, InputError, fits_memory
from deltahist.mechanisms.base import stamp
from deltahist.network.mechanism import DiffusionMechanism, Signal, on_lattice
from deltahist.noise.exact import source
from deltahist.noise.paths import BitPaths, VectorPaths

if TYPE_CHECKING:
    import pandas as pd

#: Bytes of a pair while it is answered.
_BYTES_PER_PAIR = 160
#: Bytes of a key.
KEY = 32
_FORMAT = "deltahist-diffusion-key-1"
#: A whole file has fewer bytes.
_MOST_BYTES = 1 << 10


class Diffusion:
    """Users' private data, as others in a network may know them.

    Whoever asks at distance d gets the data with the noise of ε(d), the same whenever they ask. Everybody's noise about
    one user is one path, so that what several learn together is what the nearest of them knows.
    Source: 2018, Problem 2, Theorem 4: y_ij = u_i + V_ε(d_ij); 2015, section 4.2. Proof: docs/privacy/diffusion.md.

    Parameters
    ----------
    data : private, one row for each user: a mapping of users to numbers (or sequences of n numbers, or bits), a series,
        or a frame with the mechanism's columns; users are its index. Users of the network that have none may still ask.
    mechanism : the promise to each requester.
    state : file of the key, which is made with mode 0600 if it is not there. All answers about the same data must come
        from one key. None: a key that ends with this object; the next one's answers are independent, and ε adds up.
    rng : a seeded generator, for experiments only: what it answers is not for publication.

    Raises InputError if a user has no finite numbers, or other bits than 0 and 1, stands there twice or is not in the
    network, a column is missing, there are no data, or the key is for other data; DamagedFile if the key's file is cut
    short or something else. Nothing is drawn then, and no file made.

    >>> import deltahist as dh
    >>> network = dh.Network.from_edges([("ann", "bob"), ("bob", "cem")])
    >>> mechanism = dh.DiffusionMechanism(network, "exp(3-d)", alpha=100, columns=("x", "y"))
    >>> homes = {"ann": (586_000, 4_512_000), "bob": (583_500, 4_507_000)}
    >>> diffusion = Diffusion(homes, mechanism)
    >>> diffusion
    Diffusion of 2 users' data over a network of 3
    >>> diffusion.responses([("ann", "bob"), ("bob", "cem")])[["owner", "requester", "epsilon"]]
      owner requester   epsilon
    0   ann       bob  7.389056
    1   bob       cem  7.389056
    """

    def __init__(
        self,
        data: Any,
        mechanism: DiffusionMechanism,
        *,
        state: str | Path | None = None,
        rng: np.random.Generator | None = None,
    ) -> None:
        source(rng)
        if rng is not None and state is not None:
            raise InputError("state is given with rng: a key file is for answers, a seeded generator for experiments")
        names, values = _read_data(data, mechanism)
        places = mechanism.network.index(names, "user")
        # Noise goes by the place of a name among them all, which neither the table nor the network decides.
        order = sorted(range(len(names)), key=names.__getitem__)
        values, places = values[order], places[order]
        self.mechanism, self.publishable = mechanism, rng is None
        self._values, self._rng = values, rng
        #: Where the data of each node stand; -1 for none.
        self._rows = np.full(len(mechanism.network), -1, dtype=np.int64)
        self._rows[places] = np.arange(len(places))
        self._state = None if state is None else Path(state)
        self._bound = _describe_bound(sorted(names), values, mechanism)
        # Without a file the key is drawn here: copies, forks or threads that drew their own would answer twice.
        if self._state is None or self._state.exists():
            _ = self._paths

    @functools.cached_property
    def _paths(self) -> Any:
        """All noise; a file of a key is made with the first answer, so that a mistaken question makes none."""
        if self._rng is not None:
            key = self._rng.bytes(KEY)
        else:
            key = os.urandom(KEY) if self._state is None else open_key(self._state, self._bound)
        mechanism = self.mechanism
        return BitPaths(key) if mechanism.bits else VectorPaths(key, mechanism.dimension, mechanism.reach)

    def response(self, owner: str, requester: str) -> NDArray[np.float64]:
        """Return what a user may know of another's data, (n,) in their units, as `responses` does."""
        return self.responses([(owner, requester)])[list(self.mechanism.columns)].to_numpy(np.float64)[0]

    @progress("working out answers")
    def responses(self, pairs: Iterable[tuple[Any, Any]] | pd.DataFrame) -> pd.DataFrame:
        """Return what users may know of others' data.

        Parameters
        ----------
        pairs : (m, 2) owners and requesters; of a frame its first two columns.

        Returns
        -------
        A frame with a row for each pair: owner, requester, distance, epsilon, the data's columns in their units, and
        rmse, the root mean square of their distance from the data (for bits flipped, the probability that they are the
        other one).

        Raises InputError if someone is not in the network, has no data or asks themselves, or two are not connected and
        the least ε is not stated.
        """
        import pandas as pd

        frame = pd.DataFrame(pairs)
        if len(frame) and frame.shape[1] < 2:
            raise InputError(f"pairs have {frame.shape[1]} column(s): there must be two, owner and requester")
        frame = frame if len(frame) else pd.DataFrame({0: [], 1: []})
        index = self.mechanism.network.index
        owners, requesters = index(frame.iloc[:, 0], "owner"), index(frame.iloc[:, 1], "requester")
        rows = self._rows_of(owners)
        return self._answer(owners, requesters, rows, self.mechanism.distances_between(owners, requesters))

    @progress("working out answers")
    def to(self, requester: str) -> pd.DataFrame:
        """Return what one user may know of everybody else's data, as `responses` gives it.

        Who is not connected is left out, unless the least ε is stated.

        Raises InputError if the user is not in the network.
        """
        place = int(self.mechanism.network.index([requester], "requester")[0])
        owners = np.flatnonzero(self._rows >= 0)
        return self._answer_connected(owners, np.full(len(owners), place))

    @progress("working out answers")
    def everything(self) -> pd.DataFrame:
        """Return what everybody may know of everybody else's data, as `to` gives it.

        Raises InputError if it does not fit into memory.
        """
        number, owners = len(self._rows), np.flatnonzero(self._rows >= 0)
        fits_memory(_BYTES_PER_PAIR * number * len(owners), "an answer for every pair")
        return self._answer_connected(np.repeat(owners, number), np.tile(np.arange(number), len(owners)))

    def signal(
        self, owner: str, requester: str | None = None, *, epsilon: float | Fraction | None = None
    ) -> Signal:
        """Return the responses about a user at all levels up to that of a requester, or up to an ε.

        Whoever has it can trim it for those further away (2018, section IV-A).

        Raises InputError unless one of both is given, or as `responses` does.
        """
        if (requester is None) == (epsilon is None):
            raise InputError("a signal ends at a requester's level or at an epsilon: give one of them")
        row = int(self._rows_of(self.mechanism.network.index([owner], "owner"))[0])
        if requester is not None:
            level = int(self.mechanism.levels([owner], [requester])[0])
        else:
            level = floor_nano(epsilon=epsilon)
            if level < 1:
                raise InputError(f"epsilon is {epsilon!r}: it must be a billionth at least")
        if self.mechanism.bits:
            starts, values = self._paths.signal(row, int(self._values[row, 0]), 1, level)
            values = np.asarray(values, dtype=np.int64).reshape(-1, 1)
        else:
            starts, values = self._paths.signal(row, 1, level)
            values = values + self._values[row]
        return stamp(Signal(self.mechanism, str(owner), starts, level, values), self.publishable)

    def __repr__(self) -> str:
        number = len(self._values)
        return f"Diffusion of {number:,} users' data over a network of {len(self._rows):,}"

    def _rows_of(self, owners: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the rows of the data of nodes; InputError if one has none."""
        rows = self._rows[owners]
        if len(rows) and rows.min() < 0:
            name = self.mechanism.network.nodes[owners[np.argmin(rows)]]
            raise InputError(f"user {name!r} has no data: ask for others, or add them to the data")
        return rows

    def _answer_connected(self, owners: NDArray[np.int64], requesters: NDArray[np.int64]) -> pd.DataFrame:
        """Answer pairs of owners who have data, without who asks themselves or may not ask."""
        others = owners != requesters
        owners, requesters = owners[others], requesters[others]
        distances = self.mechanism.distances.between(owners, requesters)
        there = (distances < np.inf) | (self.mechanism.epsilon.least is not None)
        owners, requesters, distances = owners[there], requesters[there], distances[there]
        return self._answer(owners, requesters, self._rows[owners], distances)

    def _answer(
        self,
        owners: NDArray[np.int64],
        requesters: NDArray[np.int64],
        rows: NDArray[np.int64],
        distances: NDArray[np.float64],
    ) -> pd.DataFrame:
        import pandas as pd

        mechanism = self.mechanism
        levels = mechanism.epsilon.billionths(distances)
        names = pd.Series(mechanism.network.nodes, dtype=str).array
        answers = {
            "owner": names.take(owners),
            "requester": names.take(requesters),
            "distance": distances,
            "epsilon": levels / NANO,
        }
        if mechanism.bits:
            answers[mechanism.columns[0]] = self._paths.at(rows, levels, self._values[rows, 0])
            answers["flipped"] = mechanism.flipped(levels)
        else:
            noisy = mechanism.in_units(self._values[rows] + self._paths.at(rows, levels))
            answers |= {name: noisy[:, axis] for axis, name in enumerate(mechanism.columns)}
            answers["rmse"] = mechanism.rmse(levels)
        frame = pd.DataFrame(answers)
        frame.attrs["publishable"] = self.publishable
        return frame


def _read_data(data: Any, mechanism: DiffusionMechanism) -> tuple[list[str], NDArray[np.int64]]:
    """Return names (m,) and data (m, n) in whole lattice steps."""
    import pandas as pd

    columns = list(mechanism.columns)
    try:
        if isinstance(data, Mapping):
            rows = np.array([np.ravel(value) for value in data.values()])
            frame = pd.DataFrame(rows, index=list(data), columns=columns)
        elif isinstance(data, pd.Series):
            frame = data.to_frame(columns[0])
        else:
            frame = pd.DataFrame(data)[columns]
        values = frame.to_numpy(np.float64)
    except (KeyError, TypeError, ValueError) as why:
        raise InputError(f"data are not {len(columns)} number(s) ({', '.join(columns)}) per user: {why}") from None
    names, number = [str(name) for name in frame.index], len(frame)
    if not number or values.shape[1] != len(columns):
        raise InputError(f"data have the shape {values.shape}: there must be {len(columns)} numbers per user")
    if not frame.index.astype(str).is_unique:
        raise InputError("data have several rows for one user: there must be one for each")

    def refuse(bad: NDArray[np.bool_], problem: str) -> None:
        if bad.any():
            first = names[int(np.argmax(bad))]
            raise InputError(f"{int(bad.sum()):,} of {number:,} users (such as {first!r}) {problem}")

    refuse(~np.isfinite(values).all(axis=1), "have missing, NaN or infinite data")
    if mechanism.bits:
        odd = ((values != 0) & (values != 1)).all(axis=1)
        refuse(odd, "have bits other than 0 and 1: numbers need alpha")
        return names, values.astype(np.int64)
    area = mechanism.area
    if area is not None:
        outside = np.any((values < area.low) | (values > area.high), axis=1)
        bounds = ", ".join(f"{b:.8g}" for b in area.bounds)
        refuse(outside, f"are outside the area of {mechanism.crs} ({bounds}): are x and y swapped?")
    return names, on_lattice(values, mechanism.lattice)


def _describe_bound(names: list[str], values: NDArray[np.int64], mechanism: DiffusionMechanism) -> bytes:
    """Return all that noise goes with, as bytes of these data and parameters alone; the network and ε(d) are free."""
    head = f"{mechanism.bits} {mechanism.dimension} {mechanism.lattice} {mechanism.reach} {len(names)}"
    text = "\n".join([head, *(f"{len(name)} {name}" for name in names)])
    return text.encode("utf-8", "surrogatepass") + values.astype("<i8").tobytes()


def open_key(path: Path, bound: bytes) -> bytes:
    """Read the key of a file for parameters and data, or make the file, durably; only its owner may read it.

    The file holds a keyed hash of `bound`: parameters and data, as bytes. The same noise on other data would tell how
    they differ, and with another α or lattice what they are.

    Raises DamagedFile if the file is cut short or something else; InputError if it is for other parameters or data,
    others can read it, or its folder cannot be written.
    """
    if not path.exists():
        key = os.urandom(KEY)
        content = json.dumps({"format": _FORMAT, "key": key.hex(), "bound": _digest(key, bound)})
        if write_whole(path, lambda part: part.write_text(content), secret=True, replace=False):
            return key
    try:
        with path.open("rb") as file:
            said = json.loads(file.read(_MOST_BYTES))
        key, known = bytes.fromhex(said["key"]), said["bound"].encode()
        if said["format"] != _FORMAT or len(key) != KEY:
            raise ValueError("another format")
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as problem:
        raise DamagedFile(f"key file {str(path)!r} is damaged or no key of a diffusion ({problem})") from None
    check_secret(path, "key file")
    if not hmac.compare_digest(_digest(key, bound).encode(), known):
        raise InputError(
            f"key file {str(path)!r} is for other data, other users, another α or another lattice: take the data that "
            "it was made for, or another file, whose ε adds to the old one"
        )
    return key


def _digest(key: bytes, bound: bytes) -> str:
    return hmac.new(key, bound, hashlib.sha256).hexdigest()
