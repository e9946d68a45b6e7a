"""Files of every format that were changed at random: read, or refused in one line, within 2 s and 1 GB."""

import pytest
from mutated.campaign import run
from mutated.files import FORMATS


@pytest.mark.parametrize(
    ("number", "formats"), [(30, FORMATS[::3]), pytest.param(3000, FORMATS, marks=pytest.mark.slow)], ids=["30", "3000"]
)
def test_changed_files_are_read_or_refused_in_one_line(tmp_path, capsys, number, formats):
    found = [(form.name, n, outcome) for form, n, outcome in run(tmp_path, number, formats)]
    assert [(name, n, outcome.wrong) for name, n, outcome in found if outcome.wrong] == []
    assert {name for name, _, outcome in found if outcome.status == 0} == {form.name for form in formats}
