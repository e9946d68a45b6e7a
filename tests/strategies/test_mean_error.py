"""The mean error of a flow, part by part."""

import numpy as np
import pytest

from deltahist.strategies.flow.lines import sums_before


@pytest.mark.parametrize("edges", [[0, 3, 6], [0, 2.5, 6], [0.25, 5.75]], ids=["whole", "one is cut", "all are cut"])
def test_sums_before_an_edge_take_a_part_of_what_is_cut(edges):
    before = np.random.default_rng(1).normal(size=(7, 3))
    expected = [np.interp(edges, np.arange(7), column) for column in before.T]
    assert sums_before(before, np.array(edges, dtype=float)) == pytest.approx(np.stack(expected, axis=1))
