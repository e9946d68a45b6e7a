"""Entry point of `python -m deltahist`."""

import sys

from deltahist.cli import main

sys.exit(main())
