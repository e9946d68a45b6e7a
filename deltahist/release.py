"""Release: the only thing that crosses from the private to the public side, and its file."""

from __future__ import annotations

import functools
import math
import warnings
from dataclasses import dataclass, replace
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from deltahist._files import check_header, read_columns, read_described, save_described
from deltahist._validate import DeltaHistWarning, InputError, one_of, whole
from deltahist.calibration import Root, approximate_epsilon, calibrate, sensitivity
from deltahist.counting import POINTS, Counting
from deltahist.decode import (
    Decoder,
    Projection,
    SpectralDecoder,
    decoder,
    metric,
    nonnegative,
    prefix_sums,
)
from deltahist.domain import Domain
from deltahist.neighbourhood import Neighbourhood
from deltahist.privacy import Guarantee, Law
from deltahist.strategies.base import Strategy
from deltahist.strategies.registry import from_description

FORMAT = "deltahist-release"
VERSION = 2
#: Working memory per cell and per released value when a release is read and decoded, in bytes.
_BYTES_PER_NUMBER = 48


@dataclass(frozen=True, eq=False)
class Release:
    """What was published: exact noisy answers to a strategy, and the whole public description.

    Parameters
    ----------
    neighbourhood : who may be confused with whom; holds the domain.
    strategy : what was measured.
    values : (k,) int64, y = A c + η.
    epsilon, rho : the guarantee, one of them; exact fractions.
    total : the number of points, if membership is fixed and nothing was dropped; else None.
    counting : how rows became counts: whose points they are, what was left out, the way to the map.
    publishable : False if the noise came from a seeded generator.
    """

    neighbourhood: Neighbourhood
    strategy: Strategy
    values: NDArray[np.int64]
    epsilon: Fraction | None = None
    rho: Fraction | None = None
    total: int | None = None
    counting: Counting = POINTS
    publishable: bool = True

    def __post_init__(self) -> None:
        if self.values.shape != (self.strategy.shape[0],) or self.values.dtype != np.int64:
            raise InputError(
                f"values have shape {self.values.shape} and type {self.values.dtype}: "
                f"the strategy has {self.strategy.shape[0]} rows of int64"
            )

    @property
    def domain(self) -> Domain:
        """The public space."""
        return self.neighbourhood.domain

    @property
    def contributions(self) -> int:
        """Points of one user that may move at once."""
        return self.counting.contributions

    @property
    def dropped(self) -> tuple[str, ...]:
        """What kinds of rows were left out before counting ("bad rows", "points outside")."""
        return self.counting.dropped

    @property
    def guarantee(self) -> Guarantee:
        """Pure ε or ρ-zCDP."""
        return Guarantee(epsilon=self.epsilon, rho=self.rho)

    @property
    def noise(self) -> str:
        """ "laplace" or "gaussian"."""
        return "laplace" if self.rho is None else "gaussian"

    @functools.cached_property
    def laws(self) -> tuple[Law, ...]:
        """Noise law of each group of rows."""
        return calibrate(
            self.strategy,
            self.neighbourhood,
            epsilon=self.epsilon,
            rho=self.rho,
            contributions=self.contributions,
        )

    @functools.cached_property
    def decoder(self) -> Decoder:
        """Least squares for this release."""
        return decoder(self.strategy, self.laws, total_known=self.total is not None)

    @functools.cached_property
    def _cells(self) -> NDArray[np.float64]:
        cells = self.decoder.estimate(self.values, self.total)
        cells.flags.writeable = False
        return cells

    @functools.cached_property
    def projection(self) -> Projection:
        """Non-negative estimates with their certificate: `cells(nonnegative=True)` and how near they are."""
        decoder = self.decoder
        known = decoder.total_known
        field = (
            decoder.on_torus(self.values, self.total) if isinstance(decoder, SpectralDecoder) else self._cells
        )
        found = nonnegative(field, metric(decoder), self.total if known else None)
        found.cells.flags.writeable = False
        return found

    def cells(self, *, nonnegative: bool = False) -> NDArray[np.float64]:
        """Estimates of all cells (domain.shape).

        Least squares by default: unbiased, so that some are negative. With `nonnegative` the nearest cells, in
        the noise's own metric, that are not negative and add up to the total if that is public: biased, but
        usually much nearer where many cells are empty.
        """
        return self.projection.cells if nonnegative else self._cells

    @functools.cached_property
    def prefix(self) -> NDArray[np.float64]:
        """Sums of the estimates from the low corner to every cell edge."""
        return prefix_sums(self._cells)

    @property
    def measured(self) -> str:
        """What was measured, for people."""
        return self.strategy.name

    def noise_rows(self) -> list[dict[str, Any]]:
        """Law and standard deviation of each group of rows, JSON-ready."""
        pairs = zip(self.strategy.groups, self.laws, strict=True)
        return [
            {"rows": g.name, "law": law.kind, "std": math.sqrt(law.variance()) * float(g.unit)}
            for g, law in pairs
        ]

    @functools.cached_property
    def determines_cells(self) -> bool:
        """Whether the numbers determine every cell."""
        known = self.strategy.determines_cells
        if known is None:
            return bool(np.linalg.matrix_rank(self.strategy.matrix().toarray()) == self.domain.size)
        return known

    def cost_under(self, moves: Neighbourhood) -> Fraction:
        """Budget that another relation costs: the ratio of its sensitivity to the neighbourhood's own.

        That is the largest Σ share |A (e_u − e_v)| over cells that are neighbours there, in units of ε or ρ.
        """
        norm = 1 if self.rho is None else 2
        own = sensitivity(self.strategy, self.neighbourhood, norm=norm)
        wide = sensitivity(self.strategy, moves, norm=norm)
        if isinstance(own, Root) and isinstance(wide, Root):
            assert self.rho is not None
            return self.rho * wide.squared / own.squared if own else Fraction(0)
        assert self.epsilon is not None
        return self.epsilon * Fraction(wide) / Fraction(own) if own else Fraction(0)

    def approximate(self, probability: float) -> float:
        """ε of the (ε, δ_prob) guarantee at a failure probability δ_prob; a pure release's own ε."""
        return approximate_epsilon(self.laws, self.strategy, self.guarantee, probability)

    def describe(self) -> dict[str, Any]:
        """The complete public description, JSON-ready; with `values` it makes the release again."""
        return {
            "format": FORMAT,
            "version": VERSION,
            "domain": self.domain.describe(),
            "neighbourhood": self.neighbourhood.describe(),
            "strategy": self.strategy.describe(),
            "epsilon": None if self.epsilon is None else str(self.epsilon),
            "rho": None if self.rho is None else str(self.rho),
            "laws": [law.describe() for law in self.laws],
            "groups": [part.name for part in self.strategy.parts],
            "total": self.total,
            **self.counting.describe(),
            "publishable": self.publishable,
        }

    def save(self, path: str | Path) -> None:
        """Write one Parquet file: a row per released value, the description in the file's metadata.

        Columns: `group` (int16, index into the description's groups) and `value` (int64). The file appears
        whole or not at all.
        """
        save_described(path, {"group": _group_of_rows(self.strategy), "value": self.values}, self.describe())

    @classmethod
    def load(cls, path: str | Path) -> Release:
        """Read a release file; it is treated as untrusted input.

        Raises
        ------
        InputError
            If the file is missing, truncated, foreign, of a newer version, larger than its description says
            or than memory allows, or contradicts itself.
        """
        return read_described(path, cls._read)

    @classmethod
    def _read(cls, description: dict[str, Any], file: Any, path: str) -> Release:
        check_header(description, file, path, form=FORMAT, version=VERSION, memory=_BYTES_PER_NUMBER)
        rows = file.metadata.num_rows
        domain = Domain(**description["domain"])
        near = Neighbourhood.from_description(domain, description["neighbourhood"])
        strategy = from_description(domain, description["strategy"])
        if strategy.shape[0] != rows:
            raise InputError(
                f"release file {path!r} has {rows:,} values: its strategy has {strategy.shape[0]:,} rows (altered?)"
            )
        table = read_columns(file, path, ["group", "value"])
        column = table.column("value")
        epsilon, rho, total = description["epsilon"], description["rho"], description["total"]
        counting = Counting.from_description(description, crs=domain.crs)
        if "points outside" in counting.dropped and near.sources != "boundary":
            raise InputError(f"release file {path!r} states drops that do not go with its sources (altered?)")
        if (total is not None) != (near.fixed_membership and not counting.dropped):
            raise InputError(
                f"release file {path!r} states a number of points against its own membership rule (altered?)"
            )
        if description["groups"] != [g.name for g in strategy.parts] or not np.array_equal(
            table.column("group").to_numpy(), _group_of_rows(strategy)
        ):
            raise InputError(
                f"release file {path!r} has groups of rows that are not its strategy's (altered?)"
            )
        release = cls(
            near,
            strategy,
            column.to_numpy(),
            epsilon=None if epsilon is None else Fraction(epsilon),
            rho=None if rho is None else Fraction(rho),
            total=None if total is None else _total(total),
            counting=counting,
            publishable=bool(one_of((True, False), publishable=description["publishable"])),
        )
        stated = [Law(law["kind"], Fraction(law["parameter"])) for law in description["laws"]]
        if list(release.laws) == stated:
            return release
        # The first version priced a geometry's cells inside the bounds only, not the rim where points outside count.
        if description["version"] == 1 and not isinstance(near.sources, str | None):
            return release._at_true_cost(stated, path)
        raise _not_its_noise(path)

    def _at_true_cost(self, laws: list[Law], path: str) -> Release:
        """The same values with the budget that their noise, as it is stated, really costs."""
        if [law.kind for law in laws] != [law.kind for law in self.laws]:
            raise _not_its_noise(path)
        # Scales are in proportion to 1/ε, variances to 1/ρ.
        dearer = {own.parameter / law.parameter for own, law in zip(self.laws, laws, strict=True)}
        if len(dearer) != 1:
            raise _not_its_noise(path)
        times = dearer.pop()
        warnings.warn(
            f"release file {path!r} was made by a version that did not price arrivals of points outside the bounds: "
            f"its guarantee is {float(times):.4g} times the {'ε' if self.rho is None else 'ρ'} that it was made for, "
            "and is stated so now",
            DeltaHistWarning,
            stacklevel=6,
        )
        return replace(
            self,
            epsilon=None if self.epsilon is None else self.epsilon * times,
            rho=None if self.rho is None else self.rho * times,
        )

    def facts(self) -> dict[str, Any]:
        """The privacy statement as data."""
        from deltahist.statement import facts

        return facts(self)

    def statement(self) -> str:
        """The privacy statement for people."""
        from deltahist.statement import statement

        return statement(self)


def _not_its_noise(path: str) -> InputError:
    return InputError(
        f"release file {path!r} states noise that does not follow from its strategy and budget (altered?)"
    )


def _total(value: Any) -> int:
    number = whole(least=0, total=value)
    if number >= 1 << 63:
        raise InputError(f"total is {value!r}: it must be less than 2^63")
    return number


def _group_of_rows(strategy: Strategy) -> NDArray[np.int16]:
    """Number of the group of each released value."""
    group = np.empty(strategy.shape[0], dtype=np.int16)
    for i, part in enumerate(strategy.parts):
        group[part.rows] = i
    return group
