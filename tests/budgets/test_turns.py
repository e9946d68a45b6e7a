"""A line of threads: one at a time, in the order in which they came; who waited too long goes on without a turn."""

import threading
import time

from deltahist.budgets.turns import Line


def test_first_come_first_served():
    line, order, inside = Line(), [], []

    def work(number):
        with line.turn(30):
            inside.append(number)
            assert len(inside) == 1
            order.append(number)
            time.sleep(0.001)
            inside.remove(number)

    with line.turn(30):
        threads = []
        for number in range(20):
            threads.append(threading.Thread(target=work, args=(number,)))
            threads[-1].start()
            while len(line.waiting) < number + 2:
                time.sleep(0.001)
    for thread in threads:
        thread.join()
    assert order == list(range(20))
    assert not line.waiting


def test_who_waits_too_long_goes_on_and_stops_nobody():
    line, passed = Line(), threading.Event()

    def impatient():
        with line.turn(0.01):
            passed.set()

    with line.turn(30):
        thread = threading.Thread(target=impatient)
        thread.start()
        assert passed.wait(30)
        thread.join()
    with line.turn(0):
        pass
    assert not line.waiting
