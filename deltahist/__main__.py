"""Entry point of `python -m deltahist`."""

import sys

from deltahist.cli import main

if __name__ == "__main__":
    sys.exit(main())
