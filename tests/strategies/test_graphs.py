"""Neighbourhoods and flows on any graph, against all moves one by one."""

import itertools
import math
from dataclasses import replace
from fractions import Fraction

import networkx
import numpy as np
import pytest
import scipy

import deltahist as dh
from deltahist.mechanisms.histogram import explicit_edge_cost
from deltahist.statement import list_facts
from deltahist.strategies import GraphFlow, Hierarchical, Identity

LINE = dh.Domain((0, 9), (9,))
PLANE = dh.Domain((0, 0, 3, 3), (3, 3))
GRAPHS = {
    "ring": (LINE, [(i, (i + 1) % 9) for i in range(9)]),
    "city blocks": (
        PLANE,
        [(a, b) for a in range(9) for b in range(9) if abs(a // 3 - b // 3) + abs(a % 3 - b % 3) == 1],
    ),
    "policy": (LINE, [(0, 1), (0, 2), (1, 2), (4, 5), (4, 4), (2, 1), (2, 3), (3, 4), (5, 6), (7, 5), (8, 5)]),
    "two parts": (LINE, [(0, 1), (1, 2), (3, 4), (4, 5), (5, 3), (6, 5)]),
    "no edges": (LINE, np.zeros((0, 2), int)),
}


def hops_between(edges, size):
    return paths_between(edges, np.ones(len(edges)), size)


def paths_between(edges, lengths, size):
    """Shortest paths between all cells, by repeated relaxation."""
    far = np.where(np.eye(size, dtype=bool), 0.0, math.inf)
    for (a, b), length in zip(edges, lengths, strict=True):
        far[a, b] = far[b, a] = min(far[a, b], length)
    for middle in range(size):
        far = np.minimum(far, far[:, [middle]] + far[[middle], :])
    return far


@pytest.mark.parametrize("name", GRAPHS)
@pytest.mark.parametrize("sources", [None, [2, 5]])
def test_edges_of_several_hops_are_all_pairs_with_such_paths(name, sources):
    domain, edges = GRAPHS[name]
    far = hops_between(edges, 9)
    near = dh.Neighbourhood.of(domain, edges, sources=sources, limits=[(2, 3), (3, 5), ("any", 7)])
    entries = {hops: [] if sources is None else np.flatnonzero(far[sources].min(axis=0) < hops) for hops in (1, 2, 3)}
    for (factor, relation), hops in zip(near.relations, (1, 2, 3), strict=False):
        expected = {(a, b) for a, b in itertools.combinations(range(9), 2) if far[a, b] <= hops}
        expected |= {(-1, cell) for cell in entries[hops]}
        if hops < near.diameter:
            assert {tuple(edge) for edge in relation.edges().tolist()} == expected
            assert factor == {1: 1, 2: 3, 3: 5}[hops]
    assert near.diameter == max(1, far[np.isfinite(far)].max())
    assert near.connected == np.isfinite(far).all()
    assert near.anywhere().fixed_membership == (sources is None)
    assert len(near.relations[-1][1].moves_within(100).edges()) == 36
    again = dh.Neighbourhood.from_description(domain, near.describe())
    assert again == near
    assert again.relations == near.relations


def test_lengths_give_the_pairs_within_delta():
    rng = np.random.default_rng(1)
    edges, lengths = rng.integers(0, 30, (60, 2)), rng.integers(0, 20, 60).astype(float)
    far = paths_between(edges, lengths, 30)
    expected = [[a, b] for a, b in itertools.combinations(range(30), 2) if far[a, b] <= 15]
    assert dh.Neighbourhood.of(30, edges, lengths=lengths, delta=15).edges().tolist() == expected
    near, paths = dh.Neighbourhood.of(*GRAPHS["policy"]), dh.Neighbourhood.of(*GRAPHS["policy"], delta=2)
    assert paths.edges().tolist() == near.moves_within(2).edges().tolist()


def test_a_graph_comes_as_pairs_a_matrix_or_a_file(tmp_path):
    _, edges = GRAPHS["policy"]
    pairs = np.array(edges)
    (tmp_path / "policy.csv").write_text(",to,from\n" + "\n".join(f"7,{a},{b}" for a, b in edges) + "\n")
    graph = networkx.Graph(edges, weight=2.0)
    matrix = scipy.sparse.csr_array((np.ones(len(pairs)), pairs.T), shape=(9, 9))
    near = dh.Neighbourhood.of(LINE, edges)
    assert all(dh.Neighbourhood.of(9, given) == near for given in (pairs, matrix, graph, tmp_path / "policy.csv"))
    chosen, stated = (dh.Neighbourhood.of(LINE, edges, sources=given) for given in (np.arange(9) > 6, [7, 8]))
    assert chosen == stated


@pytest.mark.parametrize("edges", [[(9, 9)], [(-1, 3)], [(0.5, 2)], [(0, 1, 2), (3, 4, 5)], "nowhere.csv"])
@pytest.mark.parametrize("delta", [None, 2])
def test_edges_that_join_no_cells_are_refused(edges, delta):
    with pytest.raises(ValueError):  # noqa: PT011
        dh.Neighbourhood.of(LINE, edges, delta=delta)


@pytest.mark.parametrize("change", [{"graph": "AAAA"}, {"sources": [1.5]}, {"sources": [9]}, {"sources": [-1]}])
def test_descriptions_that_no_graph_has_are_refused(change):
    stated = dh.Neighbourhood.of(LINE, [(0, 1)], sources=[1]).describe()
    with pytest.raises((ValueError, TypeError)):
        dh.Neighbourhood.from_description(LINE, stated | change)
    for other in ({"graph": "AQAAAAAAAAA="}, {"sources": [1, 1]}):  # which no release states, so that a file is refused
        assert dh.Neighbourhood.from_description(LINE, stated | other).describe() == stated


STRATEGIES = {
    "flow": lambda near, norm: GraphFlow.suited(replace(near, limits=()), norm),
    "flow with hubs": lambda near, norm: GraphFlow(near.domain, near.graph, near.sources, Fraction(3, 2)),
    "identity": lambda near, norm: Identity(near.domain),
    "hierarchical": lambda near, norm: Hierarchical(
        near.domain, 3, shares=(1, Fraction(1, 2), 2)[: 3 - (near.domain.ndim > 1)]
    ),
}


@pytest.mark.parametrize("norm", [1, 2])
@pytest.mark.parametrize("sources", [None, [2, 5]])
@pytest.mark.parametrize("strategy", STRATEGIES)
@pytest.mark.parametrize("name", GRAPHS)
def test_costs_are_those_of_the_worst_edge_and_draws_hide_it(name, strategy, sources, norm):
    domain, edges = GRAPHS[name]
    near = dh.Neighbourhood.of(domain, edges, sources=sources, limits=())
    if strategy == "flow" and not near.connected:
        return
    A = STRATEGIES[strategy](near, norm)
    other = dh.Neighbourhood.of(domain, [(0, 8), (3, 7), (1, 2)], sources=sources)
    for relation in (near, near.moves_within(2), near.moves_within(3), near.anywhere(), other):
        found = dh.sensitivity(A, relation, norm=norm)
        change = A.changes(relation)
        spread = np.stack([A.scatter(column) for column in change.toarray().T], axis=1) if change.shape[1] else change
        assert (np.asarray(spread) == (A.matrix() @ relation.incidence()).toarray()).all()
        worst, found = explicit_edge_cost(A, relation, norm), found if norm == 1 else found.squared
        # Arrivals far from the sources, and moves on a graph with other edges, have a bound.
        assert found == worst or (found > worst and strategy == "flow" and sources and relation is not near)


def test_a_road_network_publishes_answers_and_states_its_promise(tmp_path):
    rng, side = np.random.default_rng(1), 100
    cells = np.arange(side**2).reshape(side, side)
    streets = np.concatenate(
        [
            np.column_stack([cells[1:].ravel(), cells[:-1].ravel()]),
            np.column_stack([cells[:, 1:].ravel(), cells[:, :-1].ravel()]),
        ]
    )
    near = dh.Neighbourhood.of(side**2, streets[rng.random(len(streets)) < 0.9], limits=[("any", 4)])
    counts = rng.poisson(20, side**2)
    best = dh.plan(near, epsilon=1)[0]
    assert best.label == "GraphFlow"
    assert best.any_move == 4
    release = dh.publish(counts, near, epsilon=1, rng=rng)
    release.save(tmp_path / "roads.parquet")
    again = dh.load(tmp_path / "roads.parquet")
    found = dh.answer(again, [[0, 30 * side], [500, 501]])
    assert np.abs(found["estimate"] - [counts[: 30 * side].sum(), counts[500]]).max() < 6 * found["std_error"].max()
    assert again.any_move == pytest.approx(4)
    facts = list_facts(again)
    assert [row["exact"] for row in facts["protection"]] == [1, 2, 4, 4, 4]
    assert "edge" in dh.write_statement(again)
    by_cells, work = replace(best.mechanism, strategy=Identity(near.domain)), dh.workloads.boxes([[0, 3000]])
    assert 3 * best.mechanism.variance(work)[0] < by_cells.variance(work)[0]


def test_large_and_odd_graphs():
    path, star = np.roll(np.arange(3001), 1500), np.column_stack([np.arange(19_999), np.full(19_999, 19_999)])
    assert dh.Neighbourhood.of(3001, np.column_stack([path[1:], path[:-1]])).diameter >= 3000  # cell 0 is in the middle
    assert type(dh.Neighbourhood.of(20_000, star).moves_within(2)) is dh.Neighbourhood  # any move
    assert len(dh.Neighbourhood.of(3, [(0, 1), (1, 2)], lengths=[0.1, 0.2], delta=0.3).edges()) == 3
    assert GraphFlow(LINE, dh.Neighbourhood.of(*GRAPHS["ring"]).graph, (5, 2, 2)).sources == (2, 5)


def test_what_needs_a_grid_or_edges_is_refused():
    near, pairs = dh.Neighbourhood.of(LINE, GRAPHS["ring"][1]), dh.Neighbourhood.of(4, [(0, 1), (2, 3)])
    for make in (
        lambda: dh.publish(np.ones(9, int), near, "flow", 1),
        lambda: dh.Mechanism(near, Identity(LINE), dh.Budget(1)).cost_within("2m"),
        # Blocks of cells that no edge leaves would be published exactly.
        lambda: dh.publish(np.ones(4, int), pairs, dh.strategies.ShiftedGrids(pairs.domain, width=2, shift=2), 1),
        lambda: dh.publishers.publish_sorted([1.0, 2.0], near, epsilon=1),
        lambda: dh.publishers.publish_quantile([1.0, 2.0], 0.5, near, epsilon=1),
        lambda: dh.strategies.Tents.tuned(near),
        lambda: dh.Mechanism(near, dh.strategies.Flow(LINE), dh.Budget(1)).laws,
        lambda: dh.publish(np.ones(9, int), dh.Neighbourhood(LINE, 1), "graph", 1),
        lambda: dh.publish(np.ones(9, int), dh.Neighbourhood.of(*GRAPHS["no edges"]), "identity", 1),
    ):
        with pytest.raises(dh.InputError):
            make()
    parts = dh.Neighbourhood.of(*GRAPHS["two parts"], limits=())
    with pytest.raises(dh.InputError, match="connect"):  # which would publish the number of points in each part
        GraphFlow.suited(parts)
    mechanism = dh.Mechanism(parts, Identity(LINE), dh.Budget(1))
    assert (mechanism.any_move, mechanism.cost_within(parts.diameter)[1]) == (1, math.inf)
    assert "none" in dh.write_statement(mechanism).splitlines()[-1]
