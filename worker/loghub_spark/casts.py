"""Texts as decimals, dates and times, as Spark's own casts in a session of UTC read them.

Spark accepts more than Python in some cases (``2026-1-5 7:30``, a zone by name) and less in others:
``20260105`` and ``2026-W02-1`` are neither dates nor times. A time without a date, which Spark puts on the
day of the query, is left out on purpose. Dates and times are numbers, because Spark has years that Python
lacks.
"""

import re
from datetime import UTC, datetime, timedelta, timezone, tzinfo
from decimal import MAX_EMAX, MIN_EMIN, ROUND_HALF_UP, Context, Decimal
from functools import lru_cache
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

DAY_US, SECOND_US = 86_400_000_000, 1_000_000
MAX_PRECISION = 38  # digits of Spark's largest decimal type
INT_BITS, LONG_BITS = 31, 63
# For any result of at most `MAX_PRECISION` digits, and for rounding it before it is found to be too long.
_EXACT = Context(prec=2 * MAX_PRECISION, rounding=ROUND_HALF_UP, Emin=MIN_EMIN, Emax=MAX_EMAX)
_DECIMAL = re.compile(r"[+-]?(?P<whole>\d*)(?:\.(?P<part>\d*))?(?:[eE](?P<exponent>[+-]?\d{1,10}))?")
_DATE = re.compile(r"([+-]?[0-9]{4,7})(?:-([0-9]{1,2})(?:-([0-9]{1,2})(?:[ T].*)?)?)?", re.DOTALL)
_TIME = re.compile(
    r"([+-]?[0-9]{4,6})(?:-([0-9]{1,2})(?:-([0-9]{1,2})(?:[ T]"
    r"([0-9]{1,2})(?::([0-9]{1,2})(?::([0-9]{1,2})(?:\.([0-9]*))?([^0-9].*)?)?)?)?)?)?",
    re.DOTALL,
)
_OFFSET = re.compile(r"(?:UTC|GMT|UT)?([+-])(\d{1,2})(?::(\d{1,2})(?::(\d\d))?|(\d\d)(\d\d)?)?", re.ASCII)
_MAX_OFFSET_S = 18 * 3600  # the maximum of Java's ZoneOffset
_BLANKS = "".join(map(chr, range(33)))  # and control characters, as Java trims them
# Java's short names of zones and offsets.
_SHORT_NAMES = {
    "ACT": "Australia/Darwin", "AET": "Australia/Sydney", "AGT": "America/Argentina/Buenos_Aires",
    "ART": "Africa/Cairo", "AST": "America/Anchorage", "BET": "America/Sao_Paulo", "BST": "Asia/Dhaka",
    "CAT": "Africa/Harare", "CNT": "America/St_Johns", "CST": "America/Chicago", "CTT": "Asia/Shanghai",
    "EAT": "Africa/Addis_Ababa", "ECT": "Europe/Paris", "IET": "America/Indiana/Indianapolis",
    "IST": "Asia/Kolkata", "JST": "Asia/Tokyo", "MIT": "Pacific/Apia", "NET": "Asia/Yerevan",
    "NST": "Pacific/Auckland", "PLT": "Asia/Karachi", "PNT": "America/Phoenix", "PRT": "America/Puerto_Rico",
    "PST": "America/Los_Angeles", "SST": "Pacific/Guadalcanal", "VST": "Asia/Ho_Chi_Minh",
    "EST": "-05:00", "MST": "-07:00", "HST": "-10:00",
}  # fmt: skip


def decimal_of(text: str, *, precision: int, scale: int) -> Decimal:
    """Rounded half up to the scale. Raises `ValueError`."""
    trimmed = text.strip(_BLANKS)
    match = _DECIMAL.fullmatch(trimmed)
    if match is None or not (match["whole"] or match["part"]) or max(trimmed) > "\uffff":
        raise ValueError(text)
    digits, exponent = match["whole"] + (match["part"] or ""), int(match["exponent"] or 0)
    own_scale = len(match["part"] or "") - exponent
    significant = max(1, len(str(int(digits)))) if len(digits) <= 4300 else len(digits.lstrip("0"))
    if not _fits(own_scale, INT_BITS) or significant - own_scale > MAX_PRECISION:
        raise ValueError(text)
    value = Decimal(trimmed)
    rounded = value.quantize(Decimal(1).scaleb(-scale), context=_EXACT)
    if len(rounded.as_tuple().digits) > precision and rounded:
        raise ValueError(text)
    return rounded


def days_of(text: str) -> int:
    """The days since 1970 of a date, with or without text after it. Raises `ValueError`."""
    match = _DATE.fullmatch(text.strip(_BLANKS + "\x7f"))
    if match is None:
        raise ValueError(text)
    days = _days(int(match[1]), int(match[2] or 1), int(match[3] or 1))
    if not _fits(days, INT_BITS):
        raise ValueError(text)
    return days


def microseconds_of(text: str, *, in_utc: bool) -> int:
    """The microseconds since 1970 of a time; without a zone it is in UTC. If not `in_utc`: the time of a
    clock in the zone. Further digits are cut. Raises `ValueError`."""
    match = _TIME.fullmatch(text.strip(_BLANKS + "\x7f"))
    if match is None:
        raise ValueError(text)
    year, month, day = int(match[1]), int(match[2] or 1), int(match[3] or 1)
    hour, minute, second = (int(match[n] or 0) for n in (4, 5, 6))
    if hour > 23 or minute > 59 or second > 59:
        raise ValueError(text)
    days = _days(year, month, day)
    part = int((match[7] or "")[:6].ljust(6, "0"))
    value = days * DAY_US + (hour * 3600 + minute * 60 + second) * SECOND_US + part
    if match[8] is not None:
        zone = _zone(match[8].strip(_BLANKS))
        if in_utc:
            like = datetime(_known_year(year), month, day, hour, minute, second, tzinfo=zone)
            offset = like.utcoffset()
            assert offset is not None
            value -= offset // timedelta(microseconds=1)
    if not _fits(value, LONG_BITS):
        raise ValueError(text)
    return value


def _known_year(year: int) -> int:
    """A year between 1 and 9999 in which a zone has the same offsets: its rules repeat after 400 years, as
    the calendar does."""
    first = 1 if year < 1 else 9600
    return year if 1 <= year <= 9999 else first + (year - first) % 400


def _fits(value: int, bits: int) -> bool:
    return -(1 << bits) <= value < 1 << bits


def _days(year: int, month: int, day: int) -> int:
    """The days since 1970 of a date of the Gregorian calendar, which repeats after 400 years of 146,097 days.
    Raises `ValueError`."""
    cycles = (year - 1970) // 400
    like = datetime(year - cycles * 400, month, day, tzinfo=UTC)
    return cycles * 146_097 + (like - datetime(1970, 1, 1, tzinfo=UTC)).days


@lru_cache(maxsize=1000)
def _zone(name: str) -> tzinfo:
    """Raises `ValueError`."""
    name = _SHORT_NAMES.get(name, name)
    if name in ("Z", "UTC", "GMT", "UT"):
        return UTC
    match = _OFFSET.fullmatch(name)
    if match is None:
        try:
            return ZoneInfo(name)
        except (ZoneInfoNotFoundError, OSError) as error:
            raise ValueError(name) from error
    minutes, seconds = match[3] or match[5] or 0, match[4] or match[6] or 0
    offset_s = int(match[2]) * 3600 + int(minutes) * 60 + int(seconds)
    if int(minutes) > 59 or int(seconds) > 59 or offset_s > _MAX_OFFSET_S:
        raise ValueError(name)
    return timezone(timedelta(seconds=-offset_s if match[1] == "-" else offset_s))
