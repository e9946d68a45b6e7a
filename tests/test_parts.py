"""Work in parts: every row once, errors are passed on, and a fork has threads of its own."""

import multiprocessing
import threading

import numpy as np
import pytest

import deltahist as dh
from deltahist._parts import in_parts


@pytest.mark.parametrize("number", [0, 1, 7, 8, 9, 1000])
def test_every_row_is_worked_on_once(number):
    seen = np.zeros(number, dtype=int)

    def work(rows):
        seen[rows] += 1

    in_parts(work, number, 8)
    assert (seen == 1).all()


def test_what_fails_in_a_part_fails():
    def work(rows):
        assert threading.current_thread() is not threading.main_thread()
        if rows.start == 40:
            raise KeyError("here")

    with pytest.raises(KeyError, match="here"):
        in_parts(work, 100, 8)


def _many():
    in_parts(lambda rows: None, 100, 8)


@pytest.mark.filterwarnings("ignore:.*multi-threaded.*:DeprecationWarning")
def test_a_fork_has_threads_of_its_own():
    _many()
    child = multiprocessing.get_context("fork").Process(target=_many, daemon=True)
    child.start()
    child.join(5)
    ended = child.exitcode
    child.kill()
    assert ended == 0


def test_many_boxes_are_answered_as_few():
    rng = np.random.default_rng(4)
    near = dh.Neighbourhood(dh.Domain((0, 0, 40, 40), (40, 40)), delta=1)
    release = dh.publish(rng.poisson(2, size=(40, 40)), near, epsilon=1, rng=rng)
    low = rng.uniform(0, 30, (40_000, 2))
    boxes = np.hstack([low, low + rng.uniform(0.1, 10, low.shape)])
    many = release.answerer().answer(dh.workloads.boxes(boxes), level=0.9)
    few = [release.answerer().answer(dh.workloads.boxes(part), level=0.9) for part in np.split(boxes, 40)]
    for name, column in many.items():
        assert np.allclose(column, np.concatenate([each[name] for each in few]), rtol=1e-9, atol=1e-9), name
