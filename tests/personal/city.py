"""What tests of people begin with: a small city in memory, and a model of who pays."""

from collections import Counter
from fractions import Fraction

import numpy as np
import pandas as pd

from deltahist.personal import aggregates
from deltahist.personal.database import Database
from deltahist.personal.people import People

COLUMNS = {"kind": "text", "hour": "whole", "fare": "number"}


def city(place, rows=(), where=":memory:", **budget):
    """People, and records (who, kind, hour, fare); the ledger is in a folder, or at a URL."""
    database = Database.open(where)
    database.create_records("trip", COLUMNS, owner="who")
    ledger = place if isinstance(place, str) else place / "city.ledger"
    people = People(database, "trip", owner="who", ledger=ledger, **(budget or {"epsilon": 1}))
    if rows:
        people.insert(frame(rows))
    return people


def frame(rows):
    """Records as people insert them."""
    return pd.DataFrame(rows, columns=["who", *COLUMNS])


def without_noise(monkeypatch):
    """Let answers be what is measured."""
    monkeypatch.setattr(aggregates, "draw", lambda law, size, rng: np.zeros(size, dtype=np.int64))


class Model:
    """Who pays, by the definition: whoever can pay for all of their derived records."""

    def __init__(self, unit="epsilon"):
        self.limits, self.spent, self.unit = {}, {}, unit

    def join(self, name, limit):
        self.limits.setdefault(name, Fraction(limit))
        self.spent.setdefault(name, Fraction(0))

    def used(self, owners, amount):
        """How many derived records are used, once their owners are charged."""
        used = 0
        for name, number in Counter(owners).items():
            cost = Fraction(amount) * (number if self.unit == "epsilon" else number**2)
            if self.spent[name] + cost <= self.limits[name]:
                self.spent[name] += cost
                used += number
        return used
