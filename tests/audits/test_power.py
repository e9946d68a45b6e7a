"""How often planted bugs are caught, over many seeds; run by `make audit`."""

import pytest

from tests.audits.cases import BUGS, MECHANISMS
from tests.audits.harness import refuted
from tests.audits.test_mechanisms import gaussian_audit, pure_audit

RUNS = 100


@pytest.mark.slow
@pytest.mark.parametrize("name", MECHANISMS)
@pytest.mark.parametrize("bug", ["noise scaled by 0.9", "sensitivity understated by one"])
@pytest.mark.parametrize("kind", ["laplace", "gaussian"])
def test_power(name, bug, kind, monkeypatch):
    """At least 95 of 100 audits catch the bug; at a power of 99% fewer would have a chance of 3 in 10,000."""
    BUGS[bug](monkeypatch)
    run = pure_audit if kind == "laplace" else gaussian_audit
    caught = sum(refuted(run(name, seed=1000 + seed)) for seed in range(RUNS))
    print(f"{name}, {kind}, {bug}: caught {caught} of {RUNS}")
    assert caught >= 95
