"""`deltahist statement`: by suffix, without --out, and what stops it."""

import numpy as np
import pytest

import deltahist as dh


@pytest.fixture
def city(tmp_path):
    near = dh.Neighbourhood(dh.Domain((0, 0, 4, 4), (4, 4)), 1)
    dh.publish(np.ones((4, 4), dtype=int), near, "identity", epsilon=1).save(tmp_path / "city.parquet")
    return tmp_path / "city.parquet"


def test_the_statement_is_written_in_the_form_of_its_suffix(city, run):
    out = city.with_name("statement.html")
    assert f"wrote {out}" in run("statement", city, "--out", out, "--title", "A <city>").err
    assert "<h1>A &lt;city&gt;</h1>" in out.read_text(encoding="utf-8")


def test_without_a_file_it_is_printed_as_inspect_does(city, run):
    printed = run("statement", city).out
    assert run("inspect", city).out == printed
    assert "Guarantee" in printed


@pytest.mark.parametrize(
    ("out", "words"),
    [
        ("statement.pdf", "its suffix must be one of .html, .htm, .md, .txt"),
        ("nowhere/statement.html", "does not exist: make it first"),
    ],
)
def test_what_cannot_be_written_is_said_first(city, refused, out, words):
    refused(["statement", city, "--out", str(city.parent / out)], words)
    assert list(city.parent.iterdir()) == [city]
