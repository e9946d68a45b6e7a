"""Diffusion of private data over a network. One noise path serves all responses about a user. Private."""

from __future__ import annotations

import contextlib
import functools
import hashlib
import hmac
import json
import os
from collections.abc import Iterable, Mapping
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from deltahist._files import check_secret, write_whole
from deltahist.budget import Budget
from deltahist.errors import NANO, DamagedFile, InputError, check_memory
from deltahist.mechanisms.base import weakness_of
from deltahist.network.mechanism import DiffusionMechanism, Signal, snap_to_lattice, take_columns
from deltahist.noise.exact import open_words
from deltahist.noise.paths import BitPaths, VectorPaths
from deltahist.preprocessing import normalize_name
from deltahist.publishers.publication import refuse_weak


class Diffusion:
    """Share users' private data noisily with other users of a network.

    A requester at distance d receives the data with noise scaled to ε(d). Repeated requests get the same response. All
    noise for one user lies on one path, so requesters who pool their responses learn no more than the nearest of them.
    Source: 2018, Problem 2, Theorem 4: y_ij = u_i + V_ε(d_ij); 2015, section 4.2. Proof: docs/privacy/diffusion.md.

    Parameters
    ----------
    data : private, one row per user, as a mapping from users to values (a number, n numbers or a bit), a series, or a
        frame with the mechanism's columns, indexed by user. Users without data may still make requests.
    mechanism : determines the noise for each requester.
    state : key file, created with mode 0600 if it is missing. All responses about the same data must use one key, or
        their ε add up. If no file is given, this object draws its own key.
    weak_protection_accepted : respond even if an ε hardly protects anything (docs/privacy/weak.md).
    rng : a seeded generator, for experiments only. Responses are then not for publication.

    >>> import deltahist as dh
    >>> network = dh.network.Network.from_edges([("ann", "bob"), ("bob", "cem")])
    >>> mechanism = dh.network.DiffusionMechanism(network, "exp(2-d)", alpha=100, columns=("x", "y"))
    >>> homes = {"ann": (586_000, 4_512_000), "bob": (583_500, 4_507_000)}
    >>> diffusion = Diffusion(homes, mechanism)
    >>> diffusion.responses([("ann", "bob"), ("bob", "cem")])[["owner", "requester", "epsilon"]]
      owner requester   epsilon
    0   ann       bob  2.718282
    1   bob       cem  2.718282
    """

    def __init__(
        self,
        data: Any,
        mechanism: DiffusionMechanism,
        *,
        state: str | Path | None = None,
        weak_protection_accepted: bool = False,
        rng: np.random.Generator | None = None,
    ) -> None:
        open_words(rng)
        names, self._values = _read_data(data, mechanism)
        self.mechanism, self.publishable, self._rng = mechanism, rng is None, rng
        self._accepts_weak = weak_protection_accepted or rng is not None
        #: Data row of each node; -1 if the node has no data.
        self._rows = np.full(len(mechanism.network), -1, dtype=np.int64)
        self._rows[mechanism.network.find_places(names)] = np.arange(len(names))
        self._state = None if state is None else Path(state)
        # A key is bound to the data and the parameters, but the network and ε(d) may change.
        head = f"{mechanism.bits} {mechanism.dimension} {mechanism.lattice} {mechanism.reach} {len(names)}"
        text = "\n".join([head, *(f"{len(name)} {name}" for name in names)])
        self._bound = text.encode("utf-8", "surrogatepass") + self._values.astype("<i8").tobytes()
        # If there is no file, draw the key now. Copies, forks and threads with keys of their own would spend more ε.
        if self._state is None or self._state.exists():
            _ = self._paths

    @functools.cached_property
    def _paths(self) -> Any:
        """The noise paths of all users. A missing key file is created with the first response."""
        if self._rng is not None:
            key = self._rng.bytes(32)
        else:
            key = os.urandom(32) if self._state is None else open_key(self._state, self._bound)
        mechanism = self.mechanism
        return BitPaths(key) if mechanism.bits else VectorPaths(key, mechanism.dimension, mechanism.reach)

    def response(self, owner: str, requester: str) -> NDArray[np.float64]:
        """Return the response to a requester about an owner, as n numbers in the data's units."""
        return np.asarray(self.responses([(owner, requester)])[list(self.mechanism.columns)], dtype=np.float64).ravel()

    def responses(self, pairs: Iterable[tuple[Any, Any]] | pd.DataFrame) -> pd.DataFrame:
        """Return responses for pairs of an owner and a requester, or for the pairs in a frame's first two columns.

        Each pair has a row of owner, requester, distance, epsilon, the data's columns in their units, and rmse (the
        root mean square distance between response and data). For bits, `flipped` (the chance of a flip) replaces rmse.
        """
        frame, find = take_columns(pairs, 2), self.mechanism.network.find_places
        owners, requesters = find(frame.iloc[:, 0], "owner"), find(frame.iloc[:, 1], "requester")
        self._find_rows(owners)
        return self._answer_pairs(owners, requesters, self.mechanism.measure_between(owners, requesters))

    def to(self, requester: str) -> pd.DataFrame:
        """Return `responses` to one requester about all connected owners, or about all owners if ε has a minimum."""
        return self._answer_connected(self.mechanism.network.find_places([requester], "requester"))

    def everything(self) -> pd.DataFrame:
        """Return the responses of `to` for all requesters."""
        return self._answer_connected(np.arange(len(self._rows)))

    def signal(self, owner: str, requester: str) -> Signal:
        """Return the responses about an owner at all levels up to the requester's (2018, section IV-A)."""
        row = int(self._find_rows(self.mechanism.network.find_places([owner], "owner"))[0])
        level = int(self.mechanism.find_levels([owner], [requester])[0])
        self._refuse_weak(level)
        if self.mechanism.bits:
            starts, values = self._paths.signal(row, int(self._values[row, 0]), 1, level)
            values = np.asarray(values, dtype=np.int64).reshape(-1, 1)
        else:
            starts, values = self._paths.signal(row, 1, level)
            values = values + self._values[row]
        return Signal(self.mechanism, str(owner), starts, level, values, self.publishable)

    def _refuse_weak(self, level: int) -> None:
        budget = Budget(Fraction(level, NANO))
        if not self._accepts_weak:
            refuse_weak(budget, weakness_of(budget.guarantee))

    def _find_rows(self, owners: NDArray[np.int64]) -> NDArray[np.int64]:
        rows = self._rows[owners]
        if (rows < 0).any():
            raise InputError(f"user {self.mechanism.network.nodes[owners[np.argmin(rows)]]!r} has no data")
        return rows

    def _answer_connected(self, users: NDArray[np.int64]) -> pd.DataFrame:
        """Respond to users about all other users, or only about connected users if ε has no minimum."""
        known = np.flatnonzero(self._rows >= 0)
        check_memory(160 * len(users) * len(known), "a response for every pair")  # 160 bytes per pair
        owners, requesters = np.repeat(known, len(users)), np.tile(users, len(known))
        distances = self.mechanism.distances.between(owners, requesters)
        answered = (owners != requesters) & ((distances != np.inf) | (self.mechanism.privacy_levels.least is not None))
        return self._answer_pairs(owners[answered], requesters[answered], distances[answered])

    def _answer_pairs(
        self, owners: NDArray[np.int64], requesters: NDArray[np.int64], distances: NDArray[np.float64]
    ) -> pd.DataFrame:
        mechanism = self.mechanism
        rows, levels = self._rows[owners], mechanism.privacy_levels.round_down(distances)
        self._refuse_weak(int(levels.max(initial=1)))
        names = pd.Series(mechanism.network.nodes, dtype=str).array
        answers = {"owner": names.take(owners), "requester": names.take(requesters), "distance": distances}
        answers["epsilon"] = levels / NANO
        if mechanism.bits:
            answers[mechanism.columns[0]] = self._paths.at(rows, levels, self._values[rows, 0])
            answers["flipped"] = mechanism.flip_probability(levels)
        else:
            noisy = mechanism.to_units(self._values[rows] + self._paths.at(rows, levels))
            answers |= {name: noisy[:, axis] for axis, name in enumerate(mechanism.columns)}
            answers["rmse"] = mechanism.rmse(levels)
        frame = pd.DataFrame(answers)
        frame.attrs["publishable"] = self.publishable
        return frame


def _read_data(data: Any, mechanism: DiffusionMechanism) -> tuple[list[str], NDArray[np.int64]]:
    """Return m names, sorted so that row order does not matter, and their (m, n) data in whole lattice steps."""
    columns, area, most = list(mechanism.columns), mechanism.area, (1 << 40) * float(mechanism.lattice)
    names, values = [], np.zeros((0, len(columns)))
    with contextlib.suppress(KeyError, TypeError, ValueError, OverflowError):  # the errors may quote private data
        if isinstance(data, Mapping):
            # NumPy would unmask masked values, so replace them with NaN, which is refused.
            rows = np.ma.asarray(list(data.values()), dtype=np.float64).filled(np.nan)
            data = pd.DataFrame(rows, index=list(data), columns=columns)
        frame = data.to_frame(columns[0]) if isinstance(data, pd.Series) else pd.DataFrame(data)[columns]
        values, names = frame.to_numpy(np.float64), [normalize_name(user=name) for name in frame.index]
    usable = np.isin(values, (0, 1)) if mechanism.bits else np.abs(values) < most
    kind = "bits, 0 or 1 (numbers need alpha)" if mechanism.bits else f"numbers between -{most:g} and {most:g}"
    if area is not None:
        usable &= (values >= area.low) & (values <= area.high)
        kind += f" in the area of {mechanism.crs}, {', '.join(f'{b:.8g}' for b in area.bounds)} (x and y swapped?)"
    if not names or len(set(names)) < len(names) or not usable.all():
        raise InputError(f"data are unusable: each user must have a name and one row of {kind}, in columns {columns}")
    order = sorted(range(len(names)), key=names.__getitem__)
    steps = values.astype(np.int64) if mechanism.bits else snap_to_lattice(values, mechanism.lattice)
    return [names[row] for row in order], steps[order]


def open_key(path: Path, bound: bytes) -> bytes:
    """Read a key from a file, or create the file so that only its owner can read it.

    The file contains a keyed hash of the data and parameters (`bound`). The same noise on other data would reveal how
    the data differ. The same key with another α or lattice would reveal the data themselves.
    """
    if not path.exists():
        key = os.urandom(32)
        content = json.dumps({"format": "deltahist-diffusion-key-1", "key": key.hex(), "bound": _digest(key, bound)})
        if write_whole(path, lambda part: part.write_text(content), secret=True, replace=False):
            return key
    try:
        with path.open("rb") as file:
            content = json.loads(file.read(1 << 10))
        key, known = bytes.fromhex(content["key"]), content["bound"].encode()
        fits = content["format"] == "deltahist-diffusion-key-1" and len(key) == 32
        fits = fits and hmac.compare_digest(_digest(key, bound).encode(), known)
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        fits = False
    if not fits:
        rule = "use another file (the ε of its responses adds to the ε spent with the old file)"
        raise DamagedFile(f"key file {str(path)!r} is damaged, or is for different data, users, α or lattice: {rule}")
    check_secret(path, "key file")
    return key


def _digest(key: bytes, bound: bytes) -> str:
    return hmac.new(key, bound, hashlib.sha256).hexdigest()
