"""Diffusion of private data over a network, and RAPPOR reports.

The modules `mechanism` and `rappor` use public values only. `diffusion` and `clients` read private data and draw noise.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
