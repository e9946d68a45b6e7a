"""Write the numbers and the statements anew with `python -m tests.goldens`, and review the changes in `git diff`."""

import tempfile
import warnings
from pathlib import Path

from tests.goldens.cases import GROUPS, written
from tests.test_statement import KINDS, WORDING, statement_of

warnings.simplefilter("ignore")
with tempfile.TemporaryDirectory() as made:
    for group, cases in GROUPS.items():
        (Path(__file__).parent / f"{group}.txt").write_text(written(cases(Path(made))), encoding="utf-8")
for kind in KINDS:
    (WORDING / f"{kind}.txt").write_text(statement_of(kind), encoding="utf-8")
