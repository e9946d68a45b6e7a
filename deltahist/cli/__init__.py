"""The command line. `main` is the entry point; everything heavy is imported by the command that needs it."""

from deltahist.cli.run import main

__all__ = ["main"]
