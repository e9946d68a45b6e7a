"""Noise at every level at once, rounded exactly, for every user: a function of a key, and of nothing else.

A path is the process of `noise/euclidean.py` from a fixed base, ε = 1, downwards and upwards as far as is asked for.
Its uniform reals are read from a keyed cipher, so that any response can be given at any time, in any order, without a
store. What is returned has no floating-point error (`noise/pieces.py`, docs/processes.md).
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from deltahist.errors import NANO, InputError, one_of, whole
from deltahist.noise import euclidean
from deltahist.noise.pieces import MOST, VAGUE, KeyedPaths, PathSteps, checked, precision, real
from deltahist.noise.reals import Reals, exp, expm1, log1p, norm

#: What uniform reals are for.
_BASE, _FALL, _RISE, _RESET = range(4)
#: Noise exceeds this many times n + 1 scales with a probability below 2^−64.
_SPREAD = 48


class _State(NamedTuple):
    """Where the paths of some users are: between two jumps, the last of them at `level`."""

    rows: NDArray[np.int64]
    level: Reals  # (rows,)
    value: Reals  # (rows, n) times the level
    blur: NDArray[np.float64]  # (rows,) bound of the relative error of the level
    drift: NDArray[np.float64]  # (rows,) bound of the length of the error of the value
    undecided: NDArray[np.bool_]  # (rows,) whether a decision of the last step is open


def _open(difference: Reals, error: NDArray[np.float64]) -> NDArray[np.bool_]:
    """Whether the sign of a difference is open; twice the error, for terms of second order."""
    return ~(np.abs(real(difference)) > 2 * error)


@dataclass(frozen=True)
class VectorPaths(KeyedPaths):
    """The noise of every user at every level, in whole lattice steps; of density ∝ e^(−ε|v|/reach) before rounding.

    For a whole u, u + the noise is the whole vector nearest to u + V_ε: all that is given out at levels up to ε is a
    function of that one value and of independent noise (docs/processes.md). A key is for one set of data: the noise is
    the same whenever it is asked for, so that two different u of one user under the same key show their difference.

    Parameters
    ----------
    key : 32 secret bytes; whoever has them can take all noise away.
    dimension : n, of the vectors.
    reach : the distance, in lattice steps, over which a level of ε promises e^ε; whole. Other dimensions and reaches
        under the same key have independent noise.

    >>> paths = VectorPaths(bytes(32), dimension=2, reach=1000)
    >>> users, levels = np.array([7, 7, 8]), np.array([500_000_000, 2_000_000_000, 2_000_000_000])
    >>> paths.at(users, levels)
    array([[  -56, -1500],
           [  -56, -1500],
           [  121,   652]])
    >>> levels, noise = paths.signal(7, 500_000_000, 2_600_000_000)
    >>> levels.tolist(), noise.tolist()
    ([500000000, 2253708730, 2576572291], [[-56, -1500], [512, -1218], [478, -1656]])
    """

    dimension: int
    reach: int

    def __post_init__(self) -> None:
        super().__post_init__()
        # As Python's own integers: the reals of a path are those of this label.
        object.__setattr__(self, "dimension", whole(dimension=self.dimension))
        object.__setattr__(self, "reach", whole("the adjacency radius in lattice steps", reach=self.reach))

    def at(self, users: Any, levels: Any) -> NDArray[np.int64]:
        """Noise (m, n) for requests of users (m,) at levels (m,), in whole billionths of ε.

        Raises InputError unless users are whole numbers of at least 0, and levels of at least 1 and so large that no
        int64 overflows.
        """
        users, levels = checked(users, levels)
        if not len(users):
            return np.zeros((0, self.dimension), dtype=np.int64)
        self._fits(int(levels.min()))
        return self._found(users, levels)

    def signal(self, user: int, least: int, most: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Return where pieces of one user begin (K,), and their noise (K, n), from `least` to `most`.

        The k-th noise is that of every whole level from levels[k] to before levels[k + 1], the last one up to and
        with `most`; levels[0] is `least`. Nothing here depends on the path above `most`.

        Raises InputError as `at` does, and unless most ≥ least.
        """
        self._fits(int(checked([user, user], [least, most])[1].min()))
        return self._pieces(user, least, most)

    def _fits(self, level: int) -> None:
        least = -(-_SPREAD * (self.dimension + 1) * self.reach * NANO // MOST)
        if level < least:
            raise InputError(
                f"levels hold {level} billionths: with a reach of {self.reach} they must be at least {least}, so that "
                "no int64 overflows (is the level in units of ε, or the lattice too fine?)"
            )

    def _label(self) -> str:
        return f"vectors of dimension {self.dimension}, reach {self.reach}"

    def _steps(self, users: NDArray[np.int64], span: tuple[float, float], planes: int) -> PathSteps:
        steps, base = PathSteps(len(users)), self._start(users, planes)
        self._note(steps, base, 0, planes)
        steps.undecided |= base.undecided
        for sign, moved in ((-1, self._fallen), (1, self._risen)):
            state = base
            for place in itertools.count():
                state = moved(users[state.rows], state, place, planes)
                steps.undecided[state.rows] |= state.undecided
                inside = (state.level > span[0] if sign < 0 else state.level < span[1]).astype(bool)
                state = _State(*(part[inside] for part in state))
                if not len(state.rows):
                    break
                steps.jump(state.rows, sign * (place + 1), state.level, state.blur)
                self._note(steps, state, sign * (place + 1), planes)
        return steps

    def _note(self, steps: PathSteps, state: _State, place: int, planes: int) -> None:
        """Return the value itself, in lattice steps."""
        value = self.reach * state.value / state.level[:, None]
        error = state.drift + (state.blur + precision(planes)) * real(norm(state.value))
        steps.value(state.rows, place, value, self.reach * error / real(state.level))

    # A step adds to the errors `unit` times the sizes of its parts, and carries on what there was, to first order:
    # docs/processes.md derives the slopes.

    def _start(self, users: NDArray[np.int64], planes: int) -> _State:
        uniforms, edge = self._uniforms(_BASE, users, 0, euclidean.start_slots(self.dimension), planes)
        drawn, unit = euclidean.start(self.dimension, uniforms), precision(planes)
        scale, normal = np.sqrt(2 * real(drawn.mixing)), real(norm(drawn.normal))
        drift = unit * (scale * real(drawn.radius) + normal * (scale + real(drawn.spread) / scale))
        level = 0 * uniforms.value[:, 0] + 1
        return _State(np.arange(len(users)), level, drawn.value, 0 * drift, drift, edge)

    def _fallen(self, users: NDArray[np.int64], state: _State, step: int, planes: int) -> _State:
        uniforms, edge = self._uniforms(_FALL, users, step, euclidean.fall_slots(self.dimension), planes)
        ratio, unit = euclidean.next_below(self.dimension, uniforms), precision(planes)
        kept, added = ratio[:, None] * state.value, euclidean.fall(self.dimension, uniforms)
        sizes = real(norm(kept)) + real(added.scale) * (real(added.radius) + real(norm(added.normal)))
        drift = real(ratio) * state.drift + unit * sizes
        return _State(state.rows, state.level * ratio, kept + added.value, state.blur + unit, drift, edge)

    def _risen(self, users: NDArray[np.int64], state: _State, step: int, planes: int) -> _State:
        uniforms, edge = self._uniforms(_RISE, users, step, euclidean.rise_slots(self.dimension), planes)
        unit, size = precision(planes), norm(state.value)
        clocks = euclidean.next_above(size, uniforms)
        by_size = (clocks[1] < clocks[0]).astype(bool)
        ratio = np.where(by_size, clocks[1], clocks[0])
        vague = state.drift / real(size)
        blurs = np.full(len(users), unit), unit + (1 - real(1 / clocks[1])) * vague
        undecided = edge | (vague > VAGUE)
        undecided |= _open(clocks[0] - clocks[1], real(clocks[0]) * blurs[0] + real(clocks[1]) * blurs[1])

        jump = euclidean.rise(ratio[:, None] * state.value, by_size, uniforms)
        z, total, share, width, spread = (
            real(part) for part in (jump.size, jump.total, jump.share, jump.width, jump.spread)
        )
        # Of the value before the jump: of all of it, and of its size, which is z and another real by the second clock.
        carried = real(ratio) * state.drift + unit * z
        bend = np.where(by_size, state.drift + unit * z, carried)
        rounding = unit * (z + total + spread + np.sqrt(spread * z))
        coin = jump.coin * (jump.size / 2 + jump.roots[0]) - jump.size / 2
        undecided |= _open(coin, 2 * bend + rounding)
        # The slopes of the roots in z: (1 ± √(ν / (4z + ν))) / 2 for ν ≤ spread, √ν the normal in them.
        slope = np.where(jump.smaller, 0.5, (1 + np.sqrt(spread / (4 * z + spread))) / 2)
        loose = (slope * bend + rounding) / total
        undecided |= loose > VAGUE
        steep = unit * (1 - np.log(share))
        parts = real(norm(jump.normal)) * (loose / 2 + steep) + unit * real(jump.radius)
        drift = np.minimum(share * (carried + z * steep) + width * parts, 1)
        blur = np.minimum(state.blur + np.where(by_size, blurs[1], blurs[0]), 1)
        undecided |= blur > VAGUE
        return _State(state.rows, state.level * ratio, jump.value, blur, drift, undecided)


@dataclass(frozen=True)
class BitPaths(KeyedPaths):
    """Randomised response for the bits of all users at every level: flipped with probability 1/(1 + e^ε) at each.

    On τ = tanh(ε/2) lie resets, at the rate 1 in ln τ, each with a fair bit of its own. The response at ε is the bit of
    the lowest reset above τ, or the true bit where there is none. All responses at levels up to ε are a function of the
    one at ε and of independent bits (docs/processes.md).

    Parameters
    ----------
    key : 32 secret bytes; for one set of data, as for `VectorPaths`.

    >>> paths = BitPaths(bytes(32))
    >>> users, levels = np.arange(8), np.full(8, 1_000_000_000)
    >>> paths.at(users, levels, np.ones(8, dtype=int))
    array([1, 1, 0, 0, 1, 0, 1, 0], dtype=uint8)
    >>> levels, responses = paths.signal(3, 1, 30_000_000, 5_000_000_000)
    >>> levels.tolist(), responses.tolist()
    ([30000000, 32825073, 34848819, 119813967, 1267739197], [1, 0, 1, 0, 1])
    """

    def at(self, users: Any, levels: Any, bits: Any) -> NDArray[np.uint8]:
        """Responses (m,) of users (m,) with the true bits (m,), at levels (m,) in whole billionths of ε.

        Raises InputError unless users are whole numbers of at least 0, levels of at least 1, and bits 0 or 1.
        """
        users, levels = checked(users, levels)
        true = np.asarray(bits)
        if true.shape != users.shape:
            raise InputError(
                f"bits have the shape {true.shape} and users {users.shape}: there is one bit to each user"
            )
        if (unknown := ~np.isin(true, (0, 1))).any():
            raise InputError(f"bits hold {true[unknown][0]}: they must be 0 or 1")
        if not len(users):
            return np.zeros(0, dtype=np.uint8)
        found = self._found(users, levels)[:, 0]
        return np.where(found < 0, true, found).astype(np.uint8)

    def signal(
        self, user: int, bit: int, least: int, most: int
    ) -> tuple[NDArray[np.int64], NDArray[np.uint8]]:
        """Return where pieces of one user and bit begin (K,), and their responses (K,), from `least` to `most`.

        The k-th response is that of every whole level from levels[k] to before levels[k + 1], the last one up to and
        with `most`; levels[0] is `least`. Nothing here depends on the path above `most`.

        Raises InputError as `at` does, and unless most ≥ least.
        """
        one_of((0, 1), bit=bit)
        levels, values = self._pieces(user, least, most)
        responses = np.where(values[:, 0] < 0, bit, values[:, 0]).astype(np.uint8)
        # The true bit and a reset that equals it are not to be told apart.
        new = np.append(True, responses[1:] != responses[:-1])
        return levels[new], responses[new]

    def _label(self) -> str:
        return "bits"

    def _steps(self, users: NDArray[np.int64], span: tuple[float, float], planes: int) -> PathSteps:
        """Find resets from the top, τ = 1, downwards."""
        steps, unit, rows = PathSteps(len(users)), precision(planes), np.arange(len(users))
        steps.value(rows, 0, np.full((len(users), 1), -1.0), np.zeros(len(users)))
        depth: Any = 0  # −ln τ
        for place in itertools.count(1):
            uniforms, edge = self._uniforms(_RESET, users[rows], place - 1, 2, planes)
            steps.undecided[rows] |= edge
            depth = depth + uniforms.exponential(0)
            level = log1p(-2 * exp(-depth) / expm1(-depth))  # 2 artanh τ
            inside = (level > span[0]).astype(bool)
            rows, depth, level = rows[inside], depth[inside], level[inside]
            if not len(rows):
                return steps
            steps.jump(rows, -place, level, unit * (1 + real(depth)))
            steps.value(rows, -place, uniforms.coin(1)[inside, None].astype(np.float64), np.zeros(len(rows)))
        raise AssertionError("paths never end")
