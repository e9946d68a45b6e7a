"""The privacy statement of a mechanism, a release or a series."""

from deltahist.statement.facts import list_facts, list_rows, save_statement, write_statement

__all__ = ["list_facts", "list_rows", "save_statement", "write_statement"]
