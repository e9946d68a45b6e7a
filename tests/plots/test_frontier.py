"""The picture of a frontier."""

import numpy as np
import pytest

import deltahist as dh
from deltahist.plots import plot_frontier, save_frontier

NEAR = dh.Neighbourhood(dh.Domain((0, 0, 6, 5), (6, 5)), 1)


@pytest.fixture(scope="module")
def found():
    return dh.frontier(NEAR, epsilon=1, probability=1e-6, limits=(1, 2, None))


def test_points_lie_at_what_they_cost(found):
    ax = plot_frontier(found)
    shown = {}
    for line in ax.lines:
        if line.get_marker() == "o":
            assert line.get_drawstyle() == "steps-post"
            shown[line.get_label()] = np.column_stack(line.get_data())
    assert set(shown) == {"laplace noise", "gaussian noise"}
    for noise in ("laplace", "gaussian"):
        true = sorted((p.times, p.best.rmse) for p in found if p.noise == noise)
        assert np.allclose(shown[f"{noise} noise"], true)
    assert {text.get_text() for text in ax.texts} >= {point.best.strategy.name for point in found}
    assert "ε = 1" in ax.get_title()
    assert "6 × 5 cells" in ax.get_title()
    assert "points" in ax.get_ylabel()


def test_rivals_are_dashed(found):
    dashed = [line for line in plot_frontier(found).lines if line.get_linestyle() == "--" and len(line.get_xdata())]
    assert len(dashed) == 2
    for line in dashed:
        assert line.get_xdata().tolist() == [1, 2]


def test_a_file_of_it(found, tmp_path):
    save_frontier(found, tmp_path / "frontier.svg")
    assert "<svg" in (tmp_path / "frontier.svg").read_text(encoding="utf-8")
    with pytest.raises(dh.InputError, match=r"\.png"):
        save_frontier(found, tmp_path / "frontier.doc")
    with pytest.raises(dh.InputError, match="no points"):
        save_frontier([], tmp_path / "empty.png")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["frontier.svg"]
