"""Refine ten million counts (target: below 2 s), compared with drawing them again, and refine a whole map."""

from __future__ import annotations

import tempfile
from fractions import Fraction

import numpy as np

import deltahist as dh
from benchmarks.noise import seconds
from deltahist.noise.samplers import LaplaceSampler, RoundedGaussianSampler

COUNTS, ROUNDS = 10_000_000, 3
#: Noise scales before and after.
SCALES = ((2, 1), (20, 4), (10_000, 1_000))


def main() -> None:
    """Print a table of times."""
    print(f"{'noise':<9} {'scale':>14} {'refine 10⁷':>11} {'draw 10⁷':>9} {'first call':>11}")
    for before, after in SCALES:
        a, b = Fraction(1, before), Fraction(1, after)
        values = LaplaceSampler().start(a, COUNTS)
        first = seconds(lambda v=values, a=a, b=b: LaplaceSampler().refine(v[:1], a * Fraction(1001, 1000), b))
        own = min(seconds(lambda v=values, a=a, b=b: LaplaceSampler().refine(v, a, b)) for _ in range(ROUNDS))
        anew = min(seconds(lambda b=b: LaplaceSampler().start(b, COUNTS)) for _ in range(ROUNDS))
        print(f"{'Laplace':<9} {f'{before} to {after}':>14} {own:9.2f} s {anew:7.2f} s {1000 * first:8.1f} ms")
    process, million = RoundedGaussianSampler.for_level(Fraction(1, 100)), COUNTS // 10
    steps = process.start(Fraction(1, 100), million)
    own = min(seconds(lambda: process.refine(steps, Fraction(1, 100), Fraction(1, 25))) for _ in range(ROUNDS))
    print(f"{'Gaussian':<9} {'σ² 100 to 25':>14} {own:9.2f} s for 10⁶")
    whole_map()


def whole_map() -> None:
    """Print the time of `refine` for a map of a million cells, with its state on disk."""
    near = dh.Neighbourhood(dh.Domain((0, 0, 1, 1), (1000, 1000)), delta=1 / 1000)
    counts = np.random.default_rng(1).poisson(1, (1000, 1000))
    with tempfile.TemporaryDirectory() as folder:
        state = f"{folder}/state"
        alone = seconds(lambda: dh.publish(counts, near, "flow", epsilon=0.5))
        begun = seconds(lambda: dh.publish(counts, near, "flow", epsilon=0.5, state=state))
        finer = seconds(lambda: dh.refine(None, state, epsilon=1))
    print(f"a map of 1000 × 1000: publish {alone:.2f} s, with a state {begun:.2f} s, refine {finer:.2f} s")


if __name__ == "__main__":
    main()
