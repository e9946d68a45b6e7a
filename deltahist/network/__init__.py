"""Diffusion of private data over a network, and RAPPOR reports.

The modules `mechanism` and `rappor` use public values only. `diffusion` and `clients` read private data and draw noise.
"""
