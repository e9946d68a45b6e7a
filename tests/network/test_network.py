"""Networks, their files, distances (against networkx and the definition) and levels ε(d); what is refused."""

import math
from fractions import Fraction

import networkx
import numpy as np
import pandas as pd
import pytest
import scipy.sparse
from hypothesis import example, given, strategies as st

import deltahist as dh
from deltahist.network.mechanism import Network, PrivacyLevels, measure_distances, read_pairs

EDGES = [("ann", "bob"), ("bob", "cem"), ("cem", "ann"), ("cem", "dia")]
PATH = Network.from_edges([("ann", "bob"), ("bob", "cem")])


def of_networkx(graph):
    return Network(tuple(graph), networkx.to_scipy_sparse_array(graph, weight=None), graph.is_directed())


def test_all_ways_lead_to_the_same_network():
    graph = networkx.Graph(EDGES)
    ways = [
        Network.from_edges(EDGES),
        Network.from_edges(pd.DataFrame(EDGES, columns=["one", "other"])),
        Network.from_edges(np.array([*EDGES, ("bob", "ann"), ("dia", "dia")])),  # twice, and oneself: no matter
        Network(tuple(graph), networkx.to_scipy_sparse_array(graph)),
        Network(tuple(graph), networkx.to_numpy_array(graph)),
    ]
    for network in ways:
        assert sorted(network.nodes) == ["ann", "bob", "cem", "dia"]
        assert repr(network) == "Network(users=4, edges=4, directed=False)"
        order = network.find_places(["ann", "bob", "cem", "dia"])
        matrix = network.adjacency.toarray()[np.ix_(order, order)].astype(int)
        assert matrix.tolist() == [[0, 1, 1, 0], [1, 0, 1, 0], [1, 1, 0, 1], [0, 0, 1, 0]]


def test_names_are_text():
    network = Network.from_edges([(7, 8), (8, 9)], nodes=[10, 7])
    assert network.nodes == ("7", "8", "9", "10")
    assert network.find_places([np.int64(8), "7"]).tolist() == [1, 0]
    assert len(Network.from_edges([])) == 0
    assert Network.from_edges([], nodes=["ann"]).nodes == ("ann",)


def written(tmp_path, text):
    path = tmp_path / "edges.txt"
    path.write_text(text, encoding="utf-8")
    return path


@pytest.mark.parametrize(
    "text",
    ["# of 2012\n1\t2\n\n2\t3", "1,2\n2,3\n", "\ufeffFrom; To; weight\n1; 2; 5\n2; 3; 1\n", '"1" "2"\n"2" "3"\n'],
)
def test_edges_are_read_however_they_are_separated(tmp_path, text):
    network = Network.from_edges(read_pairs(written(tmp_path, text)))
    assert network.nodes == ("1", "2", "3")
    assert network.adjacency.nnz == 4
    directed = Network.from_edges(read_pairs(written(tmp_path, text)), directed=True)
    assert directed.adjacency.toarray().astype(int).tolist() == [[0, 1, 0], [0, 0, 1], [0, 0, 0]]
    assert read_pairs(written(tmp_path, "Ann Lee,Bob\n")).to_numpy().tolist() == [["Ann Lee", "Bob"]]


def all_pairs(network, kind):
    number = len(network)
    i, j = np.divmod(np.arange(number**2), number)
    return measure_distances(network, kind).between(i, j).reshape(number, number)


@pytest.fixture(params=[1, 2])
def graph(request):
    """Several components, also single nodes."""
    return networkx.gnm_random_graph(40, 45, seed=request.param)


@pytest.mark.parametrize("directed", [False, True])
def test_hops_are_those_of_networkx(directed):
    """From the owner, whoever are fewer: the search may go backwards."""
    graph = networkx.gnm_random_graph(40, 60, seed=1, directed=directed)
    expected = np.full((40, 40), np.inf)
    for i, reached in networkx.all_pairs_shortest_path_length(graph):
        expected[i, list(reached)] = list(reached.values())
    network = of_networkx(graph)
    order = network.find_places(range(40))
    assert (all_pairs(network, "hops")[np.ix_(order, order)] == expected).all()
    for place in range(40):
        alone = np.full(40, order[place])
        assert (measure_distances(network).between(alone, order) == expected[place]).all()
        assert (measure_distances(network).between(order, alone) == expected[:, place]).all()


def test_resistance_is_that_of_the_definition(graph):
    """2018, equation (2), with the pseudo-inverse of each component."""
    network = of_networkx(graph)
    found = all_pairs(network, "resistance")
    for component in networkx.connected_components(graph):
        members = sorted(component)
        inverse = np.linalg.pinv(networkx.laplacian_matrix(graph, nodelist=members).toarray().astype(float))
        expected = np.diag(inverse)[:, None] + np.diag(inverse) - 2 * inverse
        order = network.find_places(members)
        np.testing.assert_allclose(found[np.ix_(order, order)], expected, atol=1e-10)
        assert np.isinf(found[order][:, np.setdiff1d(np.arange(40), order)]).all()
    assert (found == found.T).all()
    assert (np.diag(found) == 0).all()


def test_resistance_takes_both_ways_and_memory(monkeypatch):
    with pytest.raises(dh.InputError):
        measure_distances(Network.from_edges([("ann", "bob")], directed=True), "resistance")
    # Thousands of users without an edge cost nothing.
    alone = Network.from_edges([("ann", "bob")], nodes=range(20_000))
    found = measure_distances(alone, "resistance").between(np.array([0, 0, 5]), np.array([1, 9, 5]))
    assert found.tolist() == pytest.approx([1, np.inf, 0])
    monkeypatch.setattr("deltahist.errors.available_memory", lambda: 1 << 20)
    network = of_networkx(networkx.path_graph(400))
    with pytest.raises(dh.InputError, match=r"resistance distances needs about"):
        measure_distances(network, "resistance")
    assert measure_distances(network).between(np.array([0]), np.array([399])) == 399


@pytest.mark.parametrize(
    ("text", "values"),
    [
        (" EXP( 4 - 3.3 * d ) ", [math.exp(4), math.exp(4 - 3.3 * 3)]),
        ("exp(-0.5d)", [1, math.exp(-1.5)]),
        ("exp(-1-d)", [math.exp(-1), math.exp(-4)]),
        ("15*exp(-.5d)", [15, 15 * math.exp(-1.5)]),
        ("15 exp(-d)", [15, 15 * math.exp(-3)]),
    ],
)
def test_an_exponential_is_what_it_says(text, values):
    levels = PrivacyLevels(text)
    np.testing.assert_allclose(levels.at([0, 3]), values, rtol=1e-14)
    assert str(levels) == text


def test_a_table_never_promises_more_than_its_farther_entry():
    for levels in (PrivacyLevels("1:15, 2:8, 4:0.5"), PrivacyLevels({4: 0.5, 1: 15, 2: 8})):
        assert levels.at([0, 1, 1.001, 2, 3, 4, 99]).tolist() == [15, 15, 8, 8, 0.5, 0.5, 0.5]


@given(st.floats(1e-9, 1e6))
@example(8.2)
@example(0.3)
def test_levels_are_never_above_what_is_promised(epsilon):
    (level,) = PrivacyLevels(lambda d: epsilon + 0 * d).round_down([1]).tolist()
    assert Fraction(level, 10**9) <= Fraction(repr(epsilon)) < Fraction(level + 1, 10**9)


def _ask(kind):
    return dh.network.DiffusionMechanism(PATH, "exp(-d)", distance=kind).find_levels(["ann"], ["bob"])


BAD = [
    (Network.from_edges, ([("ann", "bob"), ("cem", None)],)),
    (Network, (("ann", float("nan")), np.zeros((2, 2)))),
    (Network, (("ann", "ann"), np.zeros((2, 2)))),
    (Network, (("ann", "bob"), np.zeros((2, 3)))),
    (Network, (("ann", "bob"), [[0, 0.5], [0.5, 0]])),
    (Network, (("ann", "bob"), scipy.sparse.csr_array([[0, 1], [0, 0]]))),
    (PATH.find_places, (["eve"], "owner")),
    (_ask, ("miles",)), (_ask, (np.zeros((3, 3)),)), (_ask, (pd.DataFrame([("ann", "eve", 1)]),)),
    *((_ask, (pd.DataFrame([("ann", "bob", distance)]),)) for distance in (-1, np.nan, "far")),
    *((PrivacyLevels, (text,)) for text in (
        "exp(4+3.3d)", "exp(4-0d)", "exp(99-d)", "1:15,2:x", "1:15,1:8", "1:8,2:15", "1:15,2:0", "-1:15", "0.0*exp(4-d)"
    )),
]  # fmt: skip


@pytest.mark.parametrize(("make", "given"), BAD)
def test_bad_networks_distances_and_levels_are_refused(make, given):
    with pytest.raises(dh.InputError):
        make(*given)


@pytest.mark.parametrize("text", ["", "from,to\n", "1,2\n3\n", "# remark\n1,2\n3,\n"])
def test_what_is_no_table_of_pairs_is_refused(tmp_path, text):
    with pytest.raises(dh.InputError):
        read_pairs(written(tmp_path, text))
