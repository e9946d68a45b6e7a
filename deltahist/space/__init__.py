"""The public space: a domain and its map, the neighbourhood relation, and workloads of queries."""

import lazy_loader

__getattr__, __dir__, _ = lazy_loader.attach(__name__, submodules=["workloads"])
