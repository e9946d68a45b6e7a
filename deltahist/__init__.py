"""Distance-aware differentially private maps and range queries.

The six nouns are Domain, Neighbourhood, Strategy, Mechanism, Release and the ledger; everything else is a
function: `count`, `sensitivity`, `plan`, `publish`, `answer`. The public names are listed in `__init__.pyi` and
imported when they are first used, so that `import deltahist` and `deltahist --help` are instant.
"""

from __future__ import annotations

import lazy_loader

__version__ = "0.1.0"

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
