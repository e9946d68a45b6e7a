"""The service (extra "serve") that answers range queries from published releases without reading private data."""
