"""Distance-aware differentially private maps and range queries.

The six nouns are Domain, Neighbourhood, Strategy, Mechanism, Release and the ledger; everything else is a
function: `count`, `sensitivity`, `plan`, `publish`, `answer`. Names are imported when they are first used, so
that `import deltahist` and `deltahist --help` are instant.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

#: Public name -> module that defines it ("" for a submodule of the same name).
_HOME = {
    "Boxes": "workloads",
    "Budget": "budget",
    "BudgetExceeded": "errors",
    "Candidate": "planning",
    "DamagedFile": "errors",
    "DeltaHistWarning": "errors",
    "Domain": "domain",
    "Guarantee": "privacy",
    "InputError": "errors",
    "Mechanism": "mechanisms",
    "Neighbourhood": "neighbourhood",
    "Quantile": "releases",
    "Release": "releases",
    "SortedRelease": "releases",
    "Strategy": "strategies",
    "Window": "publishers",
    "allocate_offline": "allocation",
    "allocate_online": "allocation",
    "allocation": "",
    "answer": "answers",
    "check_strategy": "checks",
    "count": "counts",
    "count_file": "counts",
    "decode": "",
    "expected_error": "planning",
    "load": "releases",
    "noise": "",
    "plan": "planning",
    "protection_curve": "mechanisms.statement",
    "publish": "publishers",
    "publish_quantile": "publishers",
    "publish_sorted": "publishers",
    "quantile": "publishers.quantile",
    "register": "strategies",
    "sensitivity": "calibration",
    "strategies": "",
    "workloads": "",
}

__all__ = [
    "Boxes",
    "Budget",
    "BudgetExceeded",
    "Candidate",
    "DamagedFile",
    "DeltaHistWarning",
    "Domain",
    "Guarantee",
    "InputError",
    "Mechanism",
    "Neighbourhood",
    "Quantile",
    "Release",
    "SortedRelease",
    "Strategy",
    "Window",
    "__version__",
    "allocate_offline",
    "allocate_online",
    "allocation",
    "answer",
    "check_strategy",
    "count",
    "count_file",
    "decode",
    "expected_error",
    "load",
    "noise",
    "plan",
    "protection_curve",
    "publish",
    "publish_quantile",
    "publish_sorted",
    "quantile",
    "register",
    "sensitivity",
    "strategies",
    "workloads",
]

#: Names that were public once and still work: what must never be published is not among the top names.
_FORMER = {"smooth_sensitivity": "publishers"}


def __getattr__(name: str) -> Any:
    home = _HOME.get(name, _FORMER.get(name))
    if home is None:
        raise AttributeError(f"module 'deltahist' has no attribute {name!r}")
    module = importlib.import_module(f"deltahist.{home or name}")
    value = getattr(module, name) if home else module
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)


if TYPE_CHECKING:
    from deltahist import allocation, decode, noise, strategies, workloads
    from deltahist.allocation import allocate_offline, allocate_online
    from deltahist.answers import answer
    from deltahist.budget import Budget
    from deltahist.calibration import sensitivity
    from deltahist.checks import check_strategy
    from deltahist.counts import count, count_file
    from deltahist.domain import Domain
    from deltahist.errors import BudgetExceeded, DamagedFile, DeltaHistWarning, InputError
    from deltahist.mechanisms import Mechanism
    from deltahist.mechanisms.statement import protection_curve
    from deltahist.neighbourhood import Neighbourhood
    from deltahist.planning import Candidate, expected_error, plan
    from deltahist.privacy import Guarantee
    from deltahist.publishers import Window, publish, publish_quantile, publish_sorted
    from deltahist.publishers.quantile import quantile
    from deltahist.releases import Quantile, Release, SortedRelease, load
    from deltahist.strategies import Strategy, register
    from deltahist.workloads import Boxes
