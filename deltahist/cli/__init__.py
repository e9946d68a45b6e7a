"""The command line. `main` is the entry point; everything heavy is imported by the command that needs it."""

from deltahist.cli.app import main

__all__ = ["main"]
