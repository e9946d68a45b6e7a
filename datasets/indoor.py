"""Stand-in for data set 3 of the 2014 paper: tags worn by five people who walk, sit and lie in one room.

It resembles the 'Localization Data for Person Activity' (four tags per person, a reading about every 27 ms,
noisy positions). Every reading is artificial.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, NamedTuple, overload

import numpy as np

if TYPE_CHECKING:
    import pandas as pd

SIZE = 164_860
PEOPLE, SEQUENCES = "ABCDE", 5
ROOM = (5.7, 4.4)  # metres, x and y
TAGS = ("ankle left", "ankle right", "chest", "belt")

_MM = np.array([5_700, 4_400])  # the room in whole millimetres: rounding there makes the points reproducible
_SLOT = 0.027  # seconds between the readings of successive tags
_HEARD = np.array([0.92, 0.95, 0.96, 0.55])  # share of slots whose reading arrives; belts are often hidden
# Position of each tag, standing and lying: metres ahead of the body and to its left.
_STAND = np.array([[0.0, 0.11], [0.0, -0.11], [0.04, 0.0], [0.0, 0.0]])
_LIE = np.array([[-0.85, 0.12], [-0.85, -0.12], [0.35, 0.0], [0.0, 0.0]])
_CHAIR, _BED = np.array([4.3, 2.6]), np.array([2.2, 1.7])  # metres
_ACTS = {"stand": 30, "sit": 25, "lie": 30, "floor": 15}  # per cent; lying is on the bed
_POSE_SECONDS = 1.5  # to lie down or get up


class _Path(NamedTuple):
    """Corners of a path: time (k,) in s, place (k, 2) in m, lying (k,) from 0 to 1, heading (k,) in rad."""

    time: np.ndarray
    place: np.ndarray
    lying: np.ndarray
    heading: np.ndarray


@overload
def indoor_like(seed: int = ..., *, with_labels: Literal[False] = ...) -> np.ndarray: ...
@overload
def indoor_like(seed: int = ..., *, with_labels: Literal[True]) -> pd.DataFrame: ...
def indoor_like(seed: int = 2014, *, with_labels: bool = False) -> np.ndarray | pd.DataFrame:
    """Return a stand-in for data set 3: 164,860 artificial tag readings of five people in a room of 5.7 m by 4.4 m.

    Parameters
    ----------
    seed : int
        The same seed gives the same readings.
    with_labels : bool
        Return the table in metres instead of the normalised points.

    Returns
    -------
    numpy.ndarray or pandas.DataFrame
        float64 (164860, 2) in [0, 1): x / 5.7 m and y / 4.4 m. With labels, a table of the same rows: `person` (A to
        E), `sequence` (five each, A01 to E05), `tag`, `t` (seconds since the sequence began), `x` and `y` (metres),
        ordered by sequence and time.

    Examples
    --------
    >>> indoor_like().shape
    (164860, 2)
    """
    rng = np.random.default_rng(seed)
    sizes = _sizes(rng)
    slots, tags, places = zip(*(_sequence(rng, size) for size in sizes), strict=True)
    mm = np.concatenate(places)
    if with_labels:
        return _labelled(sizes, np.concatenate(slots), np.concatenate(tags), mm)
    return mm / _MM


def _labelled(sizes: np.ndarray, slot: np.ndarray, tag: np.ndarray, mm: np.ndarray) -> pd.DataFrame:
    import pandas as pd

    names = [f"{person}{number:02d}" for person in PEOPLE for number in range(1, SEQUENCES + 1)]
    sequence = np.repeat(names, sizes)
    columns = {"person": sequence.astype("U1"), "sequence": sequence, "tag": np.array(TAGS)[tag]}
    return pd.DataFrame({**columns, "t": slot * 27 / 1000, "x": mm[:, 0] / 1000, "y": mm[:, 1] / 1000})


def _sizes(rng: np.random.Generator) -> np.ndarray:
    """Return uneven numbers of readings per sequence, int64 (25,), which add up to SIZE."""
    share = rng.integers(5_000, 8_200, size=len(PEOPLE) * SEQUENCES)
    ends = np.cumsum(share) * SIZE // share.sum()
    return np.diff(ends, prepend=0)


def _sequence(rng: np.random.Generator, size: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return slot number (size,), tag (size,) and position in mm (size, 2) of the readings of one sequence."""
    slot = np.arange(2 * size)  # tags take turns; two slots per reading are plenty
    slot = slot[rng.random(slot.size) < _HEARD[slot % 4]][:size]
    tag, time = slot % 4, slot * _SLOT
    path = _walk(rng, time[-1])
    body = np.column_stack([np.interp(time, path.time, path.place[:, axis]) for axis in (0, 1)])
    lying = np.interp(time, path.time, path.lying)[:, None]
    heading = path.heading[np.searchsorted(path.time, time, side="right") - 1]
    limb = _turn((1 - lying) * _STAND[tag] + lying * _LIE[tag], heading)
    return slot, tag, _in_room(body + limb + _jitter(rng, size))


def _walk(rng: np.random.Generator, seconds: float) -> _Path:
    """Return a path of at least `seconds`: walk to a waypoint, then stand, sit on the chair, or lie down."""
    time, place, lying, heading = [0.0], [rng.uniform((0.8, 0.8), (4.9, 3.6))], [0.0], [0.0]
    while time[-1] <= seconds:
        act = _act(rng)
        target, pause = _goal(rng, act)
        step = target - place[-1]
        heading[-1] = float(np.arctan2(step[1], step[0]))  # a corner's heading applies until the next corner
        facing = rng.normal(scale=0.15) if act == "lie" else rng.uniform(0.0, 2 * np.pi)  # beds do not turn
        waits = np.hypot(*step) / rng.uniform(0.5, 1.2), _POSE_SECONDS, pause, _POSE_SECONDS
        flat = float(act in ("lie", "floor"))
        time += list(time[-1] + np.cumsum(waits))
        place += [target] * 4
        lying += [0.0, flat, flat, 0.0]
        heading += [facing] * 4
    return _Path(np.array(time), np.array(place), np.array(lying), np.array(heading))


def _act(rng: np.random.Generator) -> str:
    chosen = np.searchsorted(np.cumsum(list(_ACTS.values())), rng.integers(100), side="right")
    return list(_ACTS)[chosen]


def _goal(rng: np.random.Generator, act: str) -> tuple[np.ndarray, float]:
    """Return the destination of an act (metres) and its duration (seconds)."""
    if act == "sit":
        return _CHAIR + rng.normal(scale=0.12, size=2), rng.uniform(6.0, 25.0)
    if act == "lie":
        return _BED + rng.normal(scale=0.15, size=2), rng.uniform(10.0, 35.0)
    anywhere = np.clip(rng.normal((2.9, 2.1), (1.1, 0.8)), 0.5, (5.2, 3.9))
    return anywhere, rng.uniform(8.0, 20.0) if act == "floor" else rng.uniform(0.5, 4.0)


def _turn(offset: np.ndarray, heading: np.ndarray) -> np.ndarray:
    """Rotate offsets (n, 2), ahead and to the left of a body, to its heading (n,)."""
    (ahead, left), cos, sin = offset.T, np.cos(heading), np.sin(heading)
    return np.column_stack([ahead * cos - left * sin, ahead * sin + left * cos])


def _jitter(rng: np.random.Generator, size: int) -> np.ndarray:
    """Draw sensor errors (size, 2) in metres: usually 5 cm, 45 cm for one reading in twenty."""
    wild = rng.random(size) < 0.05
    return rng.normal(size=(size, 2)) * np.where(wild, 0.45, 0.05)[:, None]


def _in_room(metres: np.ndarray) -> np.ndarray:
    """Round to millimetres inside the room, int64 (n, 2). Mirror at the walls: clipping would pile points up."""
    mm = np.abs(np.rint(metres * 1000).astype(np.int64))
    last = _MM - 1
    return np.clip(last - np.abs(last - mm), 0, last)
