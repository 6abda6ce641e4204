"""Times and durations as users write them. Pure: the present time is an argument.

A time is unix seconds, an ISO 8601 text (in the local time zone unless it names one), or an age such as
``10m``.
"""

import re
from datetime import datetime

_UNITS_S = {"s": 1, "m": 60, "h": 3600, "d": 86400}
_AGE = re.compile(r"(\d{1,9})([smhd])")
_MAX_UNIX_S = 0xFFFF_FFFF  # the time of a log has 32 bits
FORMS = "unix seconds, a time such as 2026-01-31T08:00:00Z, or an age such as 10m"


class BadTime(ValueError):  # noqa: N818 - says what is wrong
    """A text that is not a time; the message shows the forms."""


def parse_time(text: str, *, now_unix_s: float) -> int:
    """Unix seconds. Raises BadTime."""
    age = _AGE.fullmatch(text)
    if age is not None:
        unix_s = now_unix_s - int(age[1]) * _UNITS_S[age[2]]
    elif text.isascii() and text.isdigit():
        if 4 <= len(text.lstrip("0")) <= 8:  # 2026, 202601 or 20260131 would be days of 1970
            raise BadTime(
                f"{text!r} is a date or unix seconds: write {_dashed(text)}, or ten digits for seconds"
            )
        unix_s = float(text[:20])
    else:
        try:
            unix_s = datetime.fromisoformat(text).timestamp()
        except (ValueError, OverflowError) as error:
            raise BadTime(f"{text!r} is not a time: use {FORMS}") from error
    if not 0 <= unix_s <= _MAX_UNIX_S:
        raise BadTime(f"{text!r} is not a time between 1970 and 2106")
    return int(unix_s)


def _dashed(text: str) -> str:
    return "-".join(part for part in (text[:4], text[4:6] or "01", text[6:8] or "01") if part)


def parse_duration_s(text: str) -> float:
    """Seconds of ``30``, ``0.5``, ``30s`` or ``5m``. Raises BadTime."""
    age = _AGE.fullmatch(text)
    if age is not None:
        return float(int(age[1]) * _UNITS_S[age[2]])
    try:
        seconds = float(text)
    except ValueError:
        seconds = -1.0
    if not 0 <= seconds <= 86400 * 365:
        raise BadTime(f"{text!r} is not a duration: use seconds, or a number with s, m, h or d")
    return seconds
