"""Entry point of `python -m deltahist.cli`."""

import sys

from deltahist.cli import main

if __name__ == "__main__":
    sys.exit(main())
