"""A live city under personal budgets: how many queries are possible before the median user has no budget left?

`python -m experiments.live_city [--small] [--out DIR]`. Users of an invented city come and go through a year. Visits
arrive day by day, and every day brings queries about that day's visits: the number of one kind, in the whole city or in
one district. Under a global budget (PINQ) a query costs everyone. Under personal budgets a query costs only the users
whose visits it counts. See docs/kinds.md.
"""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pandas as pd
from numpy.typing import NDArray

from deltahist.personal import People
from experiments._common import BLUE, GREY, ORANGE, Found, command, figure, print_table, save, write_csv

KINDS = ("cafe", "shop", "gym", "office", "school", "park", "clinic", "bus", "cinema", "library")
DISTRICTS = 40
#: Total ε of a user, and ε of one query.
BUDGET, EPSILON = Fraction(1), Fraction(1, 20)


@dataclass(frozen=True)
class City:
    """The users of the city, the day each arrives, and their habits."""

    people: int
    days: int
    questions: int

    def residents(self, rng: np.random.Generator) -> dict[str, NDArray[Any]]:
        """Draw the users. Three in five live there from the start; some go out a lot, mostly in their own district."""
        start = np.where(rng.random(self.people) < 0.6, 0, rng.integers(0, self.days, self.people))
        weights = 1 / np.arange(1, DISTRICTS + 1)
        return {
            "from": np.sort(start),
            "home": rng.choice(DISTRICTS, self.people, p=weights / weights.sum()),
            "visits": rng.lognormal(np.log(0.3), 1.0, self.people),
            "liking": rng.dirichlet(np.full(len(KINDS), 0.5), self.people).cumsum(axis=1),
        }

    def day(self, day: int, residents: dict[str, NDArray[Any]], rng: np.random.Generator) -> pd.DataFrame:
        """Return the visits of a day."""
        there = np.flatnonzero(residents["from"] <= day)
        who = np.repeat(there, rng.poisson(residents["visits"][there]))
        kind = (rng.random(len(who))[:, None] > residents["liking"][who]).sum(axis=1).clip(max=len(KINDS) - 1)
        away = rng.random(len(who)) < 0.3
        district = np.where(away, rng.integers(0, DISTRICTS, len(who)), residents["home"][who])
        return pd.DataFrame(
            {"person": [f"p{i}" for i in who], "day": day, "kind": np.array(KINDS)[kind], "district": district}
        )

    def asked(self, rng: np.random.Generator) -> list[tuple[str, int | None]]:
        """Yield the queries of a day: each counts visits of one kind, half of them in one district."""
        return [
            (str(rng.choice(KINDS)), int(rng.integers(DISTRICTS)) if number % 2 else None)
            for number in range(self.questions)
        ]


def simulate(city: City) -> list[dict[str, Any]]:
    """Yield a row per day: queries so far, users with no budget left, and the share of records not counted."""
    rng = np.random.default_rng(1)
    residents = city.residents(rng)
    rows: list[dict[str, Any]] = []
    global_left, asked = BUDGET, 0
    with tempfile.TemporaryDirectory() as folder:
        base, people = _found(folder)
        for day in range(city.days):
            visits = city.day(day, residents, rng)
            base.register("arrived", visits)
            base.execute("INSERT INTO visits BY NAME SELECT * FROM arrived")
            base.unregister("arrived")
            people.enrol()
            truth, before = 0, float(_spent(people).sum())
            for kind, district in city.asked(rng):
                where = f"day = {day} and kind = '{kind}'"
                chosen = visits["kind"] == kind
                if district is not None:
                    where, chosen = (f"{where} and district = {district}", chosen & (visits["district"] == district))
                people.records.where(where).count(epsilon=EPSILON)
                truth += int(chosen.sum())
                global_left -= EPSILON
            asked += city.questions
            spent = _spent(people)
            used, left = round((spent.sum() - before) / float(EPSILON)), float(BUDGET) - spent
            there = int((residents["from"] <= day).sum())
            # Users who have not been anywhere are not in the table yet and have spent nothing.
            left = np.concatenate([left, np.full(there - len(left), float(BUDGET))])
            rows.append(
                {
                    "day": day + 1,
                    "questions": asked,
                    "people": there,
                    "median spent": float(BUDGET) - float(np.median(left)),
                    "share of people who cannot pay": float((left < float(EPSILON) - 1e-9).mean()),
                    "share of visits left out": 1 - used / truth if truth else 0.0,
                    "global budget left": float(max(global_left, Fraction(0))),
                }
            )
    return rows


def _found(folder: str) -> tuple[Any, People]:
    base = duckdb.connect(f"{folder}/city.duckdb")
    base.execute("CREATE TABLE visits (person TEXT, day INTEGER, kind TEXT, district INTEGER)")
    return base, People(base, "visits", owner="person", ledger=f"{folder}/city.ledger", epsilon=BUDGET)


def _spent(people: People) -> NDArray[np.float64]:
    """Return the budget that each user has spent. It is private: only the experiment may see it."""
    with people.purses.open_turn() as turn:
        return turn.spent / 1e9


def run(out: Path, small: bool) -> Found:
    """Write live_city.csv (a row per day) and live_city.png."""
    city = City(400, 12, 5) if small else City(100_000, 365, 10)
    rows = simulate(city)
    write_csv(out / "live_city.csv", rows)
    print_table(rows[:: max(1, len(rows) // 12)])
    _draw(rows, out / "live_city.png")
    spent = np.array([row["median spent"] for row in rows])
    over = np.flatnonzero(spent > float(BUDGET - EPSILON) + 1e-9)
    return {
        "questions until the median person can pay for no more, global budget": int(BUDGET / EPSILON),
        "questions until the median person can pay for no more, personal budgets": (
            rows[over[0]]["questions"] if len(over) else f"more than {rows[-1]['questions']:,}"
        ),
        "median spent at the end": float(spent[-1]),
        "share of visits left out on the last day": rows[-1]["share of visits left out"],
    }


def _draw(rows: Sequence[dict[str, Any]], file: Path) -> None:
    drawn = figure(5.6, 4.2)
    ax = drawn.subplots()
    asked = [row["questions"] for row in rows]
    for key, label, colour in (
        ("median spent", "spent by the median person", BLUE),
        ("share of people who cannot pay", "share of people who cannot pay", ORANGE),
        ("share of visits left out", "share of visits left out of answers", GREY),
    ):
        ax.plot(asked, [row[key] for row in rows], label=label, color=colour)
    ax.axvline(float(BUDGET / EPSILON), color="black", ls=":", label="a global budget is spent")
    ax.set_xlabel("questions asked")
    ax.set_ylabel(f"share, or ε of {float(BUDGET):g}")
    ax.set_ylim(0, 1.02)
    ax.grid(alpha=0.3)
    ax.legend(frameon=False)
    save(drawn, file)


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the script from the command line."""
    command(run, __doc__, arguments)


if __name__ == "__main__":
    main()
