"""When a recording began, from its file name."""

import re
from datetime import datetime

TIME_STAMP = re.compile(
    r"(?<![0-9])(?P<year>(?:19|20)[0-9]{2})(?P<dash>-?)(?P<month>[0-9]{2})(?P=dash)(?P<day>[0-9]{2})"
    r"[-_T$ ](?P<hour>[0-9]{2})(?P<colon>[-:_]?)(?P<minute>[0-9]{2})(?P=colon)(?P<second>[0-9]{2})(?![0-9])"
)
"""Date and time in the name of a recording, as field recorders write them."""


def recorded_at(name: str) -> datetime | None:
    """When a recording began, from the date and time in its file name; None if there is none.

    Field recorders write date and time next to each other. Impossible dates and dates without a time are ignored, and
    so are the names of folders. Of two times, a beginning and an end, the first counts.

    >>> print(recorded_at("plot 3/20260514_221500.WAV"), recorded_at("SM4-07_20260514_221500.wav"))
    2026-05-14 22:15:00 2026-05-14 22:15:00
    >>> print(recorded_at("2026-05-14T22-15-00.flac"), recorded_at("20261399_221500.wav"), recorded_at("10032-3-0.wav"))
    2026-05-14 22:15:00 None None
    """
    for match in TIME_STAMP.finditer(re.split(r"[/\\]", name)[-1]):
        try:
            digits = "".join(match.group("year", "month", "day", "hour", "minute", "second"))
            return datetime.strptime(digits, "%Y%m%d%H%M%S")
        except ValueError:  # 31 April, hour 25
            continue
    return None
