"""`python -m tests.mutated 3000 [NAME]`: figures for each format, and what went wrong."""

import sys
import tempfile
from collections import Counter, defaultdict
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from mutated.campaign import run
from mutated.files import FORMATS

number = int(sys.argv[1]) if len(sys.argv) > 1 else 3000
formats = tuple(form for form in FORMATS if not sys.argv[2:] or sys.argv[2] in form.name)
found, wrong = defaultdict(list), []
with tempfile.TemporaryDirectory() as folder:
    for form, n, outcome in run(Path(folder), number, formats):
        found[form.name].append(outcome)
        if outcome.wrong:
            wrong.append((form.name, n))
            print(f"WRONG {form.name} {n}: {outcome.wrong}", flush=True)
for name, outcomes in found.items():
    ends = Counter(outcome.status for outcome in outcomes)
    print(
        f"{name:28} {len(outcomes):5} files, {ends[0]:5} read, {ends[2]:5} refused, longest "
        f"{max(o.seconds for o in outcomes):.2f} s, most {max(o.memory for o in outcomes) / 2**20:.0f} MB"
    )
print(f"{sum(map(len, found.values())):,} files, {len(wrong)} wrong: {wrong}")
