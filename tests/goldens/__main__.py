"""`python -m tests.goldens` writes the texts anew; what changed is then seen by `git diff`."""

import os
import tempfile
import warnings
from pathlib import Path

from tests.goldens.cases import groups, written

os.environ["COLUMNS"] = "100"
warnings.simplefilter("ignore")
with tempfile.TemporaryDirectory() as made:
    for group, cases in groups(Path(made)).items():
        (Path(__file__).parent / f"{group}.txt").write_text(written(cases()), encoding="utf-8")
