"""Distance-aware differentially private maps and range queries.

The six nouns are Domain, Neighbourhood, Strategy, Mechanism, Release and the ledger; everything else is a
function: `count`, `sensitivity`, `plan`, `publish`, `answer`. The public names are listed in `__init__.pyi` and
imported when they are first used, so that `import deltahist` and `deltahist --help` are instant.
"""

from __future__ import annotations

from typing import Any

import lazy_loader

__version__ = "0.1.0"

_attribute, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)


def __getattr__(name: str) -> Any:
    if name == "smooth_sensitivity":  # once a public name; no longer one, since it must never be published
        from deltahist.publishers.quantile import smooth_sensitivity

        return smooth_sensitivity
    return _attribute(name)
