"""Release of a quantile: one number, and its file."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

import numpy as np
from numpy.typing import NDArray

from deltahist._files import DIGEST, check_format, write_whole
from deltahist.budget import Payment
from deltahist.errors import InputError, whole
from deltahist.mechanisms import QuantileMechanism
from deltahist.mechanisms.base import vouched
from deltahist.releases.base import VERSION, BaseRelease, damaged, is_publishable

if TYPE_CHECKING:
    import pandas as pd


@dataclass(frozen=True, eq=False, repr=False)
class Quantile(BaseRelease):
    """A published quantile and what may be known about it.

    Parameters
    ----------
    mechanism : neighbourhood, which quantile of how many points, budget and method.
    values : (1,) int64, the published lattice step.
    publishable : as of every release. payment : which account paid, or None.

    >>> import deltahist as dh, numpy as np
    >>> near = dh.Neighbourhood(dh.Domain((0, 100), (100,)), delta=5)
    >>> found = dh.publish_quantile(np.arange(101), 0.5, near, epsilon=2.0, rng=np.random.default_rng(0))
    >>> abs(float(found) - 50) < 10, found.total
    (True, 101)
    """

    mechanism: QuantileMechanism
    values: NDArray[np.int64]
    publishable: bool = field(default=False, init=False)
    payment: Payment | None = None

    @property
    def step(self) -> int:
        """The published lattice step."""
        return int(self.values[0])

    @property
    def value(self) -> float:
        """The published quantile in the domain's units."""
        return self.domain.low[0] + self.step * self.domain.step[0]

    def __float__(self) -> float:
        return self.value

    @property
    def q(self) -> float:
        """Which quantile."""
        return self.mechanism.q

    @property
    def number(self) -> int:
        """Of points; public, since membership is fixed."""
        return self.mechanism.number

    @property
    def total(self) -> int:
        """The number of points."""
        return self.number

    @property
    def method(self) -> str:
        """How it was published."""
        return self.mechanism.method

    @property
    def probability(self) -> float | None:
        """With ε, the failure probability that was allowed."""
        return self.mechanism.budget.probability

    def estimates(self, *, nonnegative: bool = False) -> NoReturn:
        """Raises InputError: one number says nothing of cells."""
        self.cells()

    def cells(self, *, nonnegative: bool = False) -> NoReturn:
        """Raises InputError: one number says nothing of cells."""
        raise InputError(f"the release is {self.mechanism.words}: it has no cells")

    def methods(self) -> pd.DataFrame:
        """All ways to publish this quantile, by expected error (`quantile_methods`)."""
        return self.mechanism.methods()

    def describe(self) -> dict[str, Any]:
        return super().describe() | {"value": self.value, "step": self.step}

    def columns(self) -> dict[str, NDArray[Any]]:
        """None: the description has the value."""
        return {}

    def save(self, path: str | Path) -> None:
        """Write the description as one JSON file, whole or not at all."""
        write_whole(Path(path), lambda part: part.write_text(self.to_json() + "\n", encoding="utf-8"))

    def to_json(self) -> str:
        """The text of the file that `save` writes: the description with its digest."""
        return json.dumps(self.describe() | {DIGEST: self.digest}, indent=2, ensure_ascii=False)

    @classmethod
    def read(cls, description: dict[str, Any], file: Any, path: str) -> Quantile:
        check_format(description, path, form=QuantileMechanism.FORMAT, version=VERSION)
        mechanism = QuantileMechanism.from_description(description)
        step = whole(least=0, step=description["step"])
        if step >= mechanism.steps:
            raise damaged(path, f"states the lattice step {step:,} of {mechanism.steps:,}")
        payment = Payment.from_description(description.get("account"))
        found = vouched(
            cls(mechanism, np.array([step], dtype=np.int64), payment=payment), is_publishable(description)
        )
        if found.value != description["value"]:
            raise damaged(path, "states a value that is not that of its lattice step")
        return found
