"""Diffusion of private data over a network, and RAPPOR reports.

`mechanism` and `rappor` are public. `diffusion` and `clients` see private data and draw noise.
"""
