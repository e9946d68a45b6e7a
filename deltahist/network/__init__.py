"""Diffusion of private data over a network, and RAPPOR reports; the core never imports this package.

Public: `graph`, `mechanism`, `rappor`. Private, since they see data or draw noise: `diffusion`, `clients`.
"""
