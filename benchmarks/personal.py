"""Ten million records of a million users in DuckDB: filtered counts under personal budgets, against plain ones.

Target: at most 5 times the plain count of the same records, in the same run. The two alternate in one process. The time
includes everything: the query, the list of payers, the durable charge of up to a million users, and the noise.
"""

from __future__ import annotations

import statistics
import tempfile
import time
from collections.abc import Callable
from typing import Any

RECORDS, PEOPLE = 10_000_000, 1_000_000
ROUNDS = 5
CONDITIONS = (
    "kind = 'bus' and hour = 3",
    "kind = 'bus' and hour >= 18",
    "hour < 4",
    "kind = 'bus'",
    "hour < 12",
    "hour >= 0",
)
#: Public numbers that replace random draws of the data.
MAKE = f"""
INSERT INTO trip
SELECT hash(i) % {PEOPLE}, ['bus', 'tram', 'rail', 'foot'][(1 + hash(i + 1) % 4)::BIGINT], hash(i + 2) % 24
FROM range({RECORDS}) t(i)
"""


def main() -> None:
    """Print medians and ratios."""
    import duckdb

    from deltahist.personal import People

    with tempfile.TemporaryDirectory() as folder, duckdb.connect(f"{folder}/city.duckdb") as connection:
        connection.execute("CREATE TABLE trip (who INTEGER, kind TEXT, hour INTEGER)")
        connection.execute(MAKE)
        connection.execute("CHECKPOINT")
        people = People(connection, "trip", owner="who", ledger=f"{folder}/city.ledger", epsilon=1_000)
        spent, joined = _timed(people.enrol)
        print(f"{joined:,} people join: {spent:.1f} s")
        print(f"{RECORDS:,} records, medians of {ROUNDS} rounds")
        print(f"{'condition':30}{'records':>12}{'DuckDB':>10}{'budgets':>10}{'ratio':>8}")
        for condition in CONDITIONS:
            plain = f"SELECT count(*) FROM trip WHERE {condition}"
            query = people.records.where(condition)
            query.count(epsilon=0.001)
            rounds = []
            for _ in range(ROUNDS):
                bare, found = _timed(lambda sql=plain: connection.execute(sql).fetchone())
                own, answer = _timed(lambda of=query: of.count(epsilon=1))
                if abs(answer.estimate - found[0]) > 50:
                    raise RuntimeError(f"{answer} instead of {found[0]:,}")
                rounds.append((bare, own))
            bare, own = (statistics.median(each[i] for each in rounds) for i in (0, 1))
            ratio = statistics.median(b / a for a, b in rounds)
            print(f"{condition:30}{found[0]:12,}{bare:8.3f} s{own:8.3f} s{ratio:8.1f}")


def _timed(work: Callable[[], Any]) -> tuple[float, Any]:
    start = time.perf_counter()
    done = work()
    return time.perf_counter() - start, done


if __name__ == "__main__":
    main()
