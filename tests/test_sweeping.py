"""Sweeps have the errors of their mechanisms, and peers in the same rows."""

import itertools
import math

import numpy as np
import pytest

import deltahist as dh
from deltahist.planning.ranking import mechanism_for
from deltahist.sweeping import Peer, sweep
from experiments.peers import PEERS

DOMAIN = dh.Domain((0, 0, 16, 16), (16, 16))
COUNTS = np.random.default_rng(1).poisson(40, DOMAIN.shape)
NEARS = {str(limit): dh.Neighbourhood(DOMAIN, 1, limits=[(math.inf, limit)]) for limit in (1, 4)}
WORKLOADS = {"ranges": dh.workloads.all_ranges(DOMAIN), "boxes": dh.workloads.boxes([[0, 0, 4, 4], [2.5, 3, 9, 16]])}


def test_expected_errors_and_costs_are_those_of_each_mechanism():
    names = ["auto", "identity", "tents"]
    table = sweep(NEARS, WORKLOADS, [1, 0.1], {name: name for name in names})
    settings = itertools.product(NEARS.values(), WORKLOADS.values(), names, [1, 0.1])
    made = [(mechanism_for(near, name, epsilon, workload=work), work) for near, work, name, epsilon in settings]
    assert table["expected"].tolist() == pytest.approx([mechanism.rmse(work) for mechanism, work in made])
    assert table["any_move"].tolist() == pytest.approx([mechanism.any_move for mechanism, _ in made])
    assert table["measured"].isna().all()
    assert table.groupby("neighbourhood")["relation"].agg(set)["1"] == {"any move"}
    assert "moves within 1 unit" in set(table["relation"])
    assert len(dh.plots.plot_sweep(table).lines) == 12


def test_measured_errors_are_near_the_expected_ones_and_peers_name_their_relation():
    mechanisms = {"tents": dh.strategies.Tents.tuned, "HDMM": Peer(PEERS["HDMM"], "any move", 1)}
    table = sweep({"any": NEARS["1"]}, WORKLOADS, [0.5], mechanisms, counts=COUNTS, trials=40)
    own, other = (table[table["mechanism"] == name] for name in mechanisms)
    # Over 40 releases, a mean square is off by 22% of itself for one normal answer: six deviations of the root.
    assert own["measured"].to_numpy() == pytest.approx(own["expected"].to_numpy(), rel=0.67)
    assert other[["relation", "any_move"]].to_numpy().tolist() == [["any move", 0.5]] * 2
    assert (other["measured"] > 0).all()
    better = sweep({"any": NEARS["1"]}, WORKLOADS, [0.01], mechanisms, counts=COUNTS, trials=5, nonnegative=True)
    assert (better["measured"][:1] < better["expected"][:1]).all()
