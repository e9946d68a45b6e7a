"""The service that answers range queries from published releases (the extra "serve"). It reads no private data."""
