"""Times in the forms that people have them, and which form unreadable ones are likely to be in."""

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

import deltahist as dh
from deltahist.counting.steps import guess_formats, since_1970
from deltahist.preprocessing import check_format

WHEN = pd.to_datetime(["2010-12-31 08:15:00", "2011-01-02 20:45:00", "1969-07-20 20:17:00"])
SECONDS = np.array([1293783300, 1294001100, -14182980])


@pytest.mark.parametrize(
    "format",
    ["%d/%m/%Y %H:%M", "%m/%d/%Y %I:%M %p", "%Y%m%d%H%M", "%d %b %Y, %H:%M:%S", "%a %b %d %H:%M:%S %z %Y"],
)
def test_a_format_reads_what_it_wrote(format):
    texts = [*WHEN.tz_localize("UTC").strftime(format), "someday", None, ""]
    seconds, good = since_1970(pa.array([f" {t}" if t else t for t in texts]), check_format(format))
    assert seconds[:3].tolist() == SECONDS.tolist()
    assert good.tolist() == [True] * 3 + [False] * 3


@pytest.mark.parametrize(("format", "factor"), [("unix", 1), ("unix-ms", 1000)])
@pytest.mark.parametrize("kind", [pa.string(), pa.int64(), pa.float64()])
def test_seconds_since_1970(format, factor, kind):
    values = pa.array([int(s) * factor for s in SECONDS] + [None]).cast(kind)
    seconds, good = since_1970(values, format)
    assert (seconds[:3].tolist(), good.tolist()) == (SECONDS.tolist(), [True, True, True, False])


@pytest.mark.parametrize("format", [None, "%d/%m/%Y %H:%M", "unix"])
def test_columns_of_times_need_no_format(format):
    times = pa.array(WHEN)
    assert since_1970(times, format)[0].tolist() == SECONDS.tolist()


def test_numbers_are_no_dates():
    with pytest.raises(dh.InputError, match="time_format='unix'"):
        since_1970(pa.array([1293783300]), None)


@pytest.mark.parametrize("format", ["%H:%M", "%d/%m", "hello", "", "%d/%m/%Y %Q", 3])
def test_formats_without_a_day_of_a_year_are_refused(format):
    with pytest.raises(dh.InputError, match=r"time_format is .*'%d/%m/%Y %H:%M'"):
        check_format(format)


@pytest.mark.parametrize(
    ("texts", "found"),
    [
        (["31/12/2010 08:15", "01/02/2011 09:00"], ["%d/%m/%Y %H:%M"]),
        (["12/31/2010 8:15 PM"], ["%m/%d/%Y %I:%M %p"]),
        (["31.12.2010"], ["%d.%m.%Y"]),
        (["1/2/10"], ["%d/%m/%y", "%m/%d/%y"]),  # nothing can tell
        (["Tue Apr 03 18:00:09 +0000 2012"], ["%a %b %d %H:%M:%S %z %Y"]),
        (["1293783300"], ["unix"]),
        (["1293783300000"], ["unix-ms"]),
        (["yesterday", "31.12.2010"], []),
        ([], []),
    ],
)
def test_guesses(texts, found):
    assert guess_formats(texts) == found
