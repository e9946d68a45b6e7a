"""server/logs.py: lines of JSON without the message of an error."""

import json
import logging
import sys

from deltahist.server.logs import _Lines


def test_an_error_is_told_by_its_type_and_place_alone():
    try:
        raise ValueError("POLYGON ((7 7))")
    except ValueError:
        record = logging.LogRecord("deltahist.server", logging.ERROR, "", 1, "it failed", (), sys.exc_info())
    line = _Lines().format(record)
    event = json.loads(line)
    assert (event["level"], event["event"], event["error"]) == ("error", "it failed", "ValueError")
    assert event["at"][0].endswith("test_an_error_is_told_by_its_type_and_place_alone")
    assert "POLYGON" not in line
