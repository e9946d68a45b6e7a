"""Benchmarks: the cost of the defaults (`make bench`), and others by name (`make bench ARGS=noise`)."""
