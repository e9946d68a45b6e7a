"""Service of range queries over published releases (the extra "serve"): it reads release files, and nothing private."""
