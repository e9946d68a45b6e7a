"""Edges, distances and pairs as text files have them."""

import pytest

import deltahist as dh
from deltahist.networks import read_network, read_pairs


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
    with pytest.raises(dh.InputError, match=r"none\.txt' does not exist"):
        read_pairs(tmp_path / "none.txt")
    (tmp_path / "binary").write_bytes(b"\xff\xfe\xfa")
    with pytest.raises(dh.InputError, match="binary' cannot be read as text"):
        read_pairs(tmp_path / "binary")
