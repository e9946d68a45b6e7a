"""A live city under budgets of its people: how many questions until the median person can pay for no more.

`python -m experiments.live_city [--small] [--out DIR]`. People of an invented city come and go through a year, visits
are inserted day by day, and every day some questions are asked about the day's visits: how many there were of one kind,
in the whole city or in one district. Under a global budget (PINQ) every question costs everyone; under personal budgets
it costs those whose visits it counted. Docs: docs/personal.md.
"""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

import deltahist as dh
from experiments._common import BLUE, GREY, ORANGE, Found, command, figure, print_table, save, write_csv

KINDS = ("cafe", "shop", "gym", "office", "school", "park", "clinic", "bus", "cinema", "library")
DISTRICTS = 40
#: Of a person, altogether; and of a question.
BUDGET, EPSILON = Fraction(1), Fraction(1, 20)


@dataclass(frozen=True)
class City:
    """Who lives there, from when on, and what they do."""

    people: int
    days: int
    questions: int

    def residents(self, rng: np.random.Generator) -> dict[str, NDArray[Any]]:
        """Three in five are there from the beginning; some go out a lot, most of them in their own district."""
        start = np.where(rng.random(self.people) < 0.6, 0, rng.integers(0, self.days, self.people))
        weights = 1 / np.arange(1, DISTRICTS + 1)
        return {
            "from": np.sort(start),
            "home": rng.choice(DISTRICTS, self.people, p=weights / weights.sum()),
            "visits": rng.lognormal(np.log(0.3), 1.0, self.people),
            "liking": rng.dirichlet(np.full(len(KINDS), 0.5), self.people).cumsum(axis=1),
        }

    def day(self, day: int, residents: dict[str, NDArray[Any]], rng: np.random.Generator) -> pd.DataFrame:
        """The visits of a day."""
        there = np.flatnonzero(residents["from"] <= day)
        who = np.repeat(there, rng.poisson(residents["visits"][there]))
        kind = (rng.random(len(who))[:, None] > residents["liking"][who]).sum(axis=1).clip(max=len(KINDS) - 1)
        away = rng.random(len(who)) < 0.3
        district = np.where(away, rng.integers(0, DISTRICTS, len(who)), residents["home"][who])
        return pd.DataFrame(
            {"person": [f"p{i}" for i in who], "day": day, "kind": np.array(KINDS)[kind], "district": district}
        )

    def asked(self, rng: np.random.Generator) -> list[tuple[str, int | None]]:
        """The questions of a day: a kind, half of them in one district."""
        return [
            (str(rng.choice(KINDS)), int(rng.integers(DISTRICTS)) if number % 2 else None)
            for number in range(self.questions)
        ]
