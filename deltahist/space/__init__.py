"""The public space: a domain and its map, who may be confused with whom, and workloads of queries."""
