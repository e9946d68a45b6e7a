"""`python -m tests.goldens` writes the numbers anew; `git diff` then shows what changed."""

import tempfile
import warnings
from pathlib import Path

from tests.goldens.cases import GROUPS, written

warnings.simplefilter("ignore")
with tempfile.TemporaryDirectory() as made:
    for group, cases in GROUPS.items():
        (Path(__file__).parent / f"{group}.txt").write_text(written(cases(Path(made))), encoding="utf-8")
