"""Allocation: 10⁶ steps offline, against Clarabel where it can follow, and one online decision; seconds."""

from __future__ import annotations

import time
import warnings

import numpy as np

from deltahist.accounts.allocation import Independent, allocate_offline, allocate_online


def main() -> None:
    """Print the table. Targets: 10⁶ steps with δ = 30 in under 10 s; a decision with 1,000 scenarios in under 0.2 s."""
    rng = np.random.default_rng(1)
    for name, make in (
        ("weights 0 or 1, p = 0.5", lambda n: (rng.random(n) < 0.5).astype(float)),
        ("weights uniform", lambda n: rng.random(n)),
    ):
        for steps in (10_000, 100_000, 1_000_000):
            weights = make(steps)
            start = time.perf_counter()
            allocate_offline(weights, length=30, epsilon=1.0)
            print(
                f"offline, δ = 30, {steps:>9,} steps, {name:<24}{time.perf_counter() - start:8.2f} s",
                flush=True,
            )
    weights = rng.random(10_000)
    start = time.perf_counter()
    ours = allocate_offline(weights, length=30, epsilon=1.0)
    middle = time.perf_counter()
    error, seconds = _clarabel(weights, 30)
    print(
        f"10,000 steps beside Clarabel: {middle - start:.2f} s and {seconds:.2f} s, "
        f"error {float((weights / ours**2).sum()) / error - 1:+.1e} of its own"
    )
    for window in (4, 7, 30):
        past = [0.8 / window] * (window - 1)
        times = []
        for seed in range(7):
            start = time.perf_counter()
            allocate_online(
                past,
                [1] * window,
                length=window,
                epsilon=1.0,
                model=Independent(),
                rng=np.random.default_rng(seed),
            )
            times.append(time.perf_counter() - start)
        print(f"online, δ = {window:<2}, 1,000 scenarios, one decision{np.median(times):20.3f} s")


def _clarabel(weights: np.ndarray, window: int) -> tuple[float, float]:
    """Least error by Clarabel through cvxpy, and what it takes."""
    import cvxpy as cp
    import scipy.sparse

    n = len(weights)
    # In units of equal shares, in which the solver is accurate.
    share = cp.Variable(n)
    held = scipy.sparse.diags_array(
        [np.ones(n)] * window, offsets=list(range(window)), shape=(n - window + 1, n)
    )
    problem = cp.Problem(cp.Minimize(weights @ cp.power(share, -2)), [held @ share <= window])
    start = time.perf_counter()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        value = problem.solve(solver="CLARABEL")
    return float(value) * window**2, time.perf_counter() - start


if __name__ == "__main__":
    main()
