"""Distance-aware differentially private maps and range queries.

The six nouns are Domain, Neighbourhood, Strategy, noise, Release and the budget; everything else is a
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
    "Candidate": "planner",
    "DeltaHistWarning": "_validate",
    "Domain": "domain",
    "Guarantee": "privacy",
    "InputError": "_validate",
    "Neighbourhood": "neighbourhood",
    "Quantile": "quantiles",
    "Release": "release",
    "SortedRelease": "sorted_points",
    "Strategy": "strategies",
    "Window": "publishers",
    "allocate_offline": "allocation",
    "allocate_online": "allocation",
    "allocation": "",
    "answer": "answers",
    "count": "counts",
    "count_file": "counts",
    "expected_error": "error",
    "noise": "",
    "plan": "planner",
    "protection_curve": "statement",
    "publish": "publishers",
    "publish_sorted": "publishers",
    "quantile": "publishers",
    "sensitivity": "calibration",
    "smooth_sensitivity": "publishers",
    "strategies": "",
    "workloads": "",
}

__all__ = [
    "Boxes",
    "Candidate",
    "DeltaHistWarning",
    "Domain",
    "Guarantee",
    "InputError",
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
    "count",
    "count_file",
    "expected_error",
    "noise",
    "plan",
    "protection_curve",
    "publish",
    "publish_sorted",
    "quantile",
    "sensitivity",
    "smooth_sensitivity",
    "strategies",
    "workloads",
]


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module 'deltahist' has no attribute {name!r}")
    home = _HOME[name]
    module = importlib.import_module(f"deltahist.{home or name}")
    value = getattr(module, name) if home else module
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)


if TYPE_CHECKING:
    from deltahist import allocation, noise, strategies, workloads
    from deltahist._validate import DeltaHistWarning, InputError
    from deltahist.allocation import allocate_offline, allocate_online
    from deltahist.answers import answer
    from deltahist.calibration import sensitivity
    from deltahist.counts import count, count_file
    from deltahist.domain import Domain
    from deltahist.error import expected_error
    from deltahist.neighbourhood import Neighbourhood
    from deltahist.planner import Candidate, plan
    from deltahist.privacy import Guarantee
    from deltahist.publishers import Window, publish, publish_sorted, quantile, smooth_sensitivity
    from deltahist.quantiles import Quantile
    from deltahist.release import Release
    from deltahist.sorted_points import SortedRelease
    from deltahist.statement import protection_curve
    from deltahist.strategies import Strategy
    from deltahist.workloads import Boxes
