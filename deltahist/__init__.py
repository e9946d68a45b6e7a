"""Distance-aware differentially private maps and range queries.

The six main classes are Domain, Neighbourhood, Strategy, Mechanism, Release and Ledger. Functions such as `count`,
`sensitivity`, `plan`, `publish` and `answer` do the work. `__init__.pyi` lists the public names. Names are imported on
first use, so that `import deltahist` and `deltahist --help` are fast.
"""

from __future__ import annotations

import lazy_loader

__version__ = "0.1.0"

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
