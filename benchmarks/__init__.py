"""Benchmarks: the table of what defaults take (`make bench`), and others by name (`make bench ARGS=noise`)."""
