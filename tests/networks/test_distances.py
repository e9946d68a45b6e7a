"""Hops and resistance against networkx and against the definition; given distances; what is refused."""

import networkx
import numpy as np
import pandas as pd
import pytest

import deltahist as dh
from deltahist.networks import distances, distances_of
from deltahist.networks.network import Network


def all_pairs(network, kind):
    number = len(network)
    i, j = np.divmod(np.arange(number**2), number)
    return distances_of(network, kind).between(i, j).reshape(number, number)


@pytest.fixture(params=[1, 2, 3])
def graph(request):
    """Several components, also single nodes."""
    return networkx.gnm_random_graph(40, 45, seed=request.param)


def test_hops_are_those_of_networkx(graph):
    expected = np.full((40, 40), np.inf)
    for i, reached in networkx.all_pairs_shortest_path_length(graph):
        for j, hops in reached.items():
            expected[i, j] = hops
    network = Network.from_networkx(networkx.relabel_nodes(graph, str))
    order = network.index(range(40))
    assert (all_pairs(network, "hops")[np.ix_(order, order)] == expected).all()


def test_hops_of_a_directed_network_go_from_the_owner():
    graph = networkx.gnm_random_graph(30, 60, seed=1, directed=True)
    network = Network.from_networkx(graph)
    order = network.index(range(30))
    kind = distances_of(network)
    for i, reached in networkx.all_pairs_shortest_path_length(graph):
        expected = [reached.get(j, np.inf) for j in range(30)]
        assert kind.between(np.full(30, order[i]), order).tolist() == expected
        # Fewer requesters than owners: the search goes backwards.
        assert kind.between(order, np.full(30, order[0]))[i] == reached.get(0, np.inf)


def test_resistance_is_that_of_the_definition(graph):
    """2018, equation (2), with the pseudo-inverse of each component."""
    network = Network.from_networkx(graph)
    found = all_pairs(network, "resistance")
    for component in networkx.connected_components(graph):
        members = sorted(component)
        laplacian = networkx.laplacian_matrix(graph, nodelist=members).toarray().astype(float)
        inverse = np.linalg.pinv(laplacian)
        expected = np.diag(inverse)[:, None] + np.diag(inverse) - 2 * inverse
        order = network.index(members)
        np.testing.assert_allclose(found[np.ix_(order, order)], expected, atol=1e-10)
        assert np.isinf(found[order][:, np.setdiff1d(np.arange(40), order)]).all()
    assert (found == found.T).all()
    assert (np.diag(found) == 0).all()


def test_given_distances_hold_as_they_stand():
    network = Network.from_edges([("ann", "bob"), ("bob", "cem")])
    matrix = np.array([[0, 1, 2], [5, 0, np.inf], [0.5, 0, 0]])
    assert (all_pairs(network, matrix) == matrix).all()
    frame = pd.DataFrame([("bob", "ann", "5"), ("ann", "cem", 2)])
    expected = np.full((3, 3), np.inf)
    expected[1, 0], expected[0, 2] = 5, 2
    assert (all_pairs(network, frame) == expected).all()
    assert np.isinf(all_pairs(network, frame.iloc[:0])).all()


@pytest.mark.parametrize(
    ("kind", "said"),
    [
        ("miles", "distance is 'miles': it must be one of 'hops', 'resistance'"),
        (object(), "no array of numbers"),
        (np.zeros((2, 2)), r"shape \(2, 2\).*3 by 3"),
        (np.array([[0, 1, 2], [1, 0, -1], [2, 1, 0]]), "from 'bob' to 'cem' is -1"),
        (np.array([[0, 1, 2], [np.nan, 0, 1], [2, 1, 0]]), "from 'bob' to 'ann' is nan"),
        (pd.DataFrame([("ann", "bob")]), "2 column"),
        (pd.DataFrame([("ann", "bob", "far")]), "from 'ann' to 'bob' is far"),
        (pd.DataFrame([("ann", "bob", -2)]), "from 'ann' to 'bob' is -2"),
        (pd.DataFrame([("ann", "bob", 1), ("ann", "bob", 1)]), "from 'ann' to 'bob' stands there twice"),
        (pd.DataFrame([("ann", "eve", 1)]), "requester 'eve' is not in the network"),
    ],
)
def test_what_is_no_distance_is_refused(kind, said):
    network = Network.from_edges([("ann", "bob"), ("bob", "cem")])
    with pytest.raises(dh.InputError, match=said):
        distances_of(network, kind)


def test_resistance_takes_both_ways_and_memory(monkeypatch):
    with pytest.raises(dh.InputError, match="a resistor conducts both ways; take 'hops'"):
        distances_of(Network.from_edges([("ann", "bob")], directed=True), "resistance")
    # Thousands of users without an edge cost nothing.
    alone = Network.from_edges([("ann", "bob")], nodes=range(20_000))
    found = distances_of(alone, "resistance").between(np.array([0, 0, 5]), np.array([1, 9, 5]))
    assert found.tolist() == pytest.approx([1, np.inf, 0])
    monkeypatch.setattr("deltahist.errors.available_memory", lambda: 1 << 20)
    network = Network.from_networkx(networkx.path_graph(400))
    with pytest.raises(dh.InputError, match=r"resistance distances needs about .* take hops"):
        distances_of(network, "resistance")
    assert distances.hops_from(network.adjacency, 0)[-1] == 399
