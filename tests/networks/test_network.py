"""Networks from edges, matrices and networkx graphs, and what is refused."""

import networkx
import numpy as np
import pandas as pd
import pytest
import scipy.sparse

import deltahist as dh

EDGES = [("ann", "bob"), ("bob", "cem"), ("cem", "ann"), ("cem", "dia")]


def adjacency_of(network):
    return network.adjacency.toarray().astype(int).tolist()


def test_all_ways_lead_to_the_same_network():
    graph = networkx.Graph(EDGES)
    ways = [
        dh.Network.from_edges(EDGES),
        dh.Network.from_edges(pd.DataFrame(EDGES, columns=["one", "other"])),
        dh.Network.from_edges(np.array(EDGES)),
        dh.Network.from_networkx(networkx.relabel_nodes(graph, str)),
        dh.Network(tuple(graph), networkx.to_scipy_sparse_array(graph)),
        dh.Network(tuple(graph), networkx.to_numpy_array(graph)),
    ]
    for network in ways:
        assert sorted(network.nodes) == ["ann", "bob", "cem", "dia"]
        order = network.index(["ann", "bob", "cem", "dia"])
        matrix = network.adjacency.toarray()[np.ix_(order, order)].astype(int)
        assert matrix.tolist() == [[0, 1, 1, 0], [1, 0, 1, 0], [1, 1, 0, 1], [0, 0, 1, 0]]


def test_loops_and_repetitions_change_nothing():
    network = dh.Network.from_edges([*EDGES, ("bob", "ann"), ("ann", "bob"), ("dia", "dia")])
    assert adjacency_of(network) == adjacency_of(dh.Network.from_edges(EDGES))
    assert repr(network) == "Network of 4 users and 4 edges"


def test_names_are_text():
    network = dh.Network.from_edges([(7, 8), (8, 9)], nodes=[10, 7])
    assert network.nodes == ("7", "8", "9", "10")
    assert network.index([np.int64(8), "7"]).tolist() == [1, 0]
    assert network.with_users([9, 11]).nodes == (*network.nodes, "11")
    assert network.with_users([]).nodes == network.nodes
    # The order of a private table, by income perhaps, is not that of the answers.
    assert network.with_users(["y", 11, "x"]).nodes == (*network.nodes, "11", "x", "y")


def test_directed_edges_lead_one_way():
    network = dh.Network.from_edges([("ann", "bob")], directed=True)
    assert adjacency_of(network) == [[0, 1], [0, 0]]
    assert adjacency_of(dh.Network.from_networkx(networkx.DiGraph([("a", "b")]))) == [[0, 1], [0, 0]]


def test_a_network_may_be_empty():
    assert len(dh.Network.from_edges([])) == 0
    assert dh.Network.from_edges([], nodes=["ann"]).nodes == ("ann",)
    assert dh.Network.from_networkx(networkx.empty_graph(3)).nodes == ("0", "1", "2")


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (lambda: dh.Network.from_edges([("ann",)]), "1 column"),
        (lambda: dh.Network.from_edges([("ann", "bob"), ("cem", None)]), "edge 2 lacks a user"),
        (lambda: dh.Network.from_edges("ann,bob"), "edges are no table"),
        (lambda: dh.Network(("ann", "ann"), np.zeros((2, 2))), "called 'ann'"),
        (lambda: dh.Network(("ann", ""), np.zeros((2, 2))), "called ''"),
        (lambda: dh.Network(("ann", "bob"), np.zeros((2, 3))), r"shape \(2, 3\)"),
        (lambda: dh.Network(("ann", "bob"), [[0, 0.5], [0.5, 0]]), "holds 0.5: it must be zeros and ones"),
        (lambda: dh.Network(("ann", "bob"), [[0, np.nan], [np.nan, 0]]), "holds nan"),
        (
            lambda: dh.Network(("ann", "bob"), scipy.sparse.csr_array([[0, 1], [0, 0]])),
            "not symmetric.*directed=True",
        ),
        (lambda: dh.Network(("ann", "bob"), "edges"), "no matrix"),
    ],
)
def test_what_is_no_network_is_refused(make, said):
    with pytest.raises(dh.InputError, match=said):
        make()


def test_unknown_users_are_named_with_what_users_are_called_like():
    network = dh.Network.from_edges(EDGES)
    with pytest.raises(dh.InputError, match=r"owner 'eve' is not in the network.*called like 'ann'"):
        network.index(["eve"], "owner")
    with pytest.raises(dh.InputError, match=r"2 of 3 users are not in the network \('1', '2'\)"):
        network.index(["ann", 1, 2])
