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
from deltahist.kinds.diffusion import PrivacyLevels
from deltahist.kinds.network import Network, distances_of, hops_from, read_network, read_pairs

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
    with pytest.raises(dh.InputError, match=r"user '1', '2' is not in the network \(2 of 3 are not\)"):
        network.index(["ann", 1, 2])


def written(tmp_path, text):
    path = tmp_path / "edges.txt"
    path.write_text(text, encoding="utf-8")
    return path


@pytest.mark.parametrize(
    "text",
    [
        "1 2\n2 3\n",
        "# of 2012\n1\t2\n\n2\t3",
        "1,2\n2,3\n",
        "source,target\n1,2\n2,3\n",
        "\ufeffFrom; To; weight\n1; 2; 5\n2; 3; 1\n",
        '"1","2"\n"2","3"\n',
    ],
)
def test_edges_are_read_however_they_are_separated(tmp_path, text):
    network = read_network(written(tmp_path, text))
    assert network.nodes == ("1", "2", "3")
    assert network.adjacency.nnz == 4
    assert read_network(written(tmp_path, text), directed=True).adjacency.nnz == 2


def test_names_with_spaces_need_a_comma(tmp_path):
    assert read_pairs(written(tmp_path, "Ann Lee,Bob\n")).to_numpy().tolist() == [["Ann Lee", "Bob"]]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "is empty: it must have a line"),
        ("1,2\n3\n", "line 2 of .* is '3': it must have 2 columns"),
        ("# remark\n1,2\n3,\n", "line 3 of .* is '3,'"),
    ],
)
def test_what_is_no_table_of_pairs_is_refused(tmp_path, text, said):
    with pytest.raises(dh.InputError, match=said):
        read_pairs(written(tmp_path, text))


def test_files_that_cannot_be_read_are_named(tmp_path):
    with pytest.raises(dh.InputError, match=r"none\.txt' cannot be read as text: .*No such file"):
        read_pairs(tmp_path / "none.txt")
    (tmp_path / "binary").write_bytes(b"\xff\xfe\xfa")
    with pytest.raises(dh.InputError, match="binary' cannot be read as text"):
        read_pairs(tmp_path / "binary")


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
        (pd.DataFrame([("ann", "bob", "far")]), "from 'ann' to 'bob' is nan"),
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
    assert hops_from(network.adjacency, 0)[-1] == 399


@pytest.mark.parametrize(
    ("text", "function"),
    [
        ("exp(4-3.3d)", lambda d: math.exp(4 - 3.3 * d)),
        (" EXP( 4 - 3.3 * d ) ", lambda d: math.exp(4 - 3.3 * d)),
        ("exp(-0.5d)", lambda d: math.exp(-0.5 * d)),
        ("exp(-1-d)", lambda d: math.exp(-1 - d)),
        ("15*exp(-.5d)", lambda d: 15 * math.exp(-0.5 * d)),
        ("15 exp(-d/2)", lambda d: 15 * math.exp(-d / 2)),
    ],
)
def test_an_exponential_is_what_it_says(text, function):
    levels = PrivacyLevels(text)
    np.testing.assert_allclose(levels.at([0, 0.5, 3]), [function(d) for d in (0, 0.5, 3)], rtol=1e-14)
    assert levels.words == text


def test_a_table_never_promises_more_than_its_farther_entry():
    for levels in (PrivacyLevels("1:15, 2:8, 4:0.5"), PrivacyLevels({4: 0.5, 1: 15, 2: 8})):
        assert levels.at([0, 1, 1.001, 2, 3, 4, 99]).tolist() == [15, 15, 8, 8, 0.5, 0.5, 0.5]


def test_limits_cut_and_the_least_is_for_whoever_is_not_connected():
    levels = PrivacyLevels(lambda d: 10 / (1 + d), least=1, most=5)
    assert levels.at([0, 1, 4, 99, np.inf]).tolist() == [5, 5, 2, 1, 1]
    assert levels.words == "a function of the distance, at least 1, at most 5"
    with pytest.raises(dh.InputError, match=r"not connected.*least"):
        PrivacyLevels("exp(-d)").at([1, np.inf])


@given(st.floats(1e-9, 1e6))
@example(8.2)
@example(0.3)
def test_levels_are_never_above_what_is_promised(epsilon):
    (level,) = PrivacyLevels(lambda d: epsilon + 0 * d).billionths([1]).tolist()
    assert Fraction(level, 10**9) <= Fraction(repr(epsilon)) < Fraction(level + 1, 10**9)


def test_levels_are_a_billionth_at_least():
    assert PrivacyLevels("exp(-d)").billionths([0, 1000]).tolist() == [10**9, 1]


def test_a_function_that_grows_names_the_two_distances():
    with pytest.raises(
        dh.InputError, match=r"grows from 1 at distance 1 to 3 at distance 3: whoever is further"
    ):
        PrivacyLevels(lambda d: d).at([3, 1])
    assert PrivacyLevels(lambda d: 2 + 0 * d).at([3, 1]).tolist() == [2, 2]


@pytest.mark.parametrize(
    ("epsilon", "said"),
    [
        ("exp(4+3.3d)", "epsilon is 'exp.4.3.3d.': it must be a function that falls with the distance, such as"),
        ("exp(4-0d)", "must fall"),
        ("exp(99-d)", "at distance 0 it must be at most 10"),
        ("1:15,2:x", "such as exp"),
        ("1:15,1:8", "twice"),
        ("1:8,2:15", "grows from 8 at distance 1 to 15 at distance 2"),
        ("1:15,2:0", "epsilon is 0 at distance 2"),
        ("-1:15", "an entry at distance -1"),
        ("1:inf", "epsilon is inf at distance 1"),
        ({}, "empty table"),
        (3, "epsilon is 3: it must be a function"),
    ],
)
def test_what_is_no_privacy_level_is_refused(epsilon, said):
    with pytest.raises(dh.InputError, match=said):
        PrivacyLevels(epsilon)


@pytest.mark.parametrize(
    ("function", "said"),
    [
        (lambda d: 0 * d, "epsilon is 0 at distance 1"),
        (lambda d: -d, "epsilon is -1 at distance 1"),
        (lambda d: d * np.nan, "epsilon is nan at distance 1"),
        (lambda d: 1e7 + d, r"1e\+07 at distance 1"),
        (lambda d: d[:1], "one for each"),
    ],
)
def test_a_function_must_be_finite_and_above_zero(function, said):
    with pytest.raises(dh.InputError, match=said):
        PrivacyLevels(function).at([1, 2])


@pytest.mark.parametrize("distance", [-1.0, math.nan])
def test_distances_are_zero_or_more(distance):
    with pytest.raises(dh.InputError, match=f"a distance is {distance:g}: it must be zero or more"):
        PrivacyLevels("exp(-d)").at([1, distance])


def test_limits_are_checked():
    with pytest.raises(dh.InputError, match="least is 2 and most 1"):
        PrivacyLevels("exp(-d)", least=2, most=1)
    with pytest.raises(dh.InputError, match="least is 0: it must be a finite number above zero"):
        PrivacyLevels("exp(-d)", least=0)


@pytest.mark.parametrize("text", ["0*exp(4-d)", "0.0*exp(4-d)", "1e-400*exp(4-d)"])
def test_a_factor_of_nothing_is_refused(text):
    with pytest.raises(dh.InputError, match="must be above zero"):
        PrivacyLevels(text)
