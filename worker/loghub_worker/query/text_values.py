"""What Spark reads in one text, as a number, a decimal or a timestamp (docs/pipelines.md 8). Pure.

The functions raise `ValueError` for a text in which Spark reads nothing. Which blanks may surround a value
differs: for whole numbers and times, they are all control characters of ASCII and the space; for other
numbers, U+007F is not among them.
"""

import datetime
import decimal
import math
import re
import zoneinfo
from functools import cache

_CONTROLS = "".join(map(chr, (*range(0x21), 0x7F)))
_BLANKS = "".join(map(chr, range(0x21)))
_INTEGER = re.compile(r"[+-]?[0-9]+")
_FLOAT = re.compile(
    r"([+-]?)(?:((?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?)[fFdD]?"
    r"|(0[xX](?:[0-9a-fA-F]+\.?[0-9a-fA-F]*|\.[0-9a-fA-F]+)[pP][+-]?[0-9]+)[fFdD]?|(NaN)|(Infinity))"
)
_SPECIAL = {
    "inf": math.inf,
    "+inf": math.inf,
    "infinity": math.inf,
    "+infinity": math.inf,
    "-inf": -math.inf,
    "-infinity": -math.inf,
    "nan": math.nan,
}
_DECIMAL = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?")
MAX_DIGITS = 38  # of Spark's decimals, and Arrow's of 128 bits
_MAX_INT = 2**31 - 1  # of the exponent of a Java BigDecimal


class DecimalRangeError(ValueError):
    """A number that has too many digits for its type; the text is Spark's message."""


def read_integer(text: str, bits: int) -> int:
    stripped = text.strip(_CONTROLS)
    if _INTEGER.fullmatch(stripped) is None:
        raise ValueError
    digits = stripped.lstrip("+-").lstrip("0")
    if len(digits) > 19:  # more than 64 bits can have, and Python bounds the digits that it reads
        raise ValueError
    number = -int(digits or "0") if stripped[0] == "-" else int(digits or "0")
    if not -(1 << (bits - 1)) <= number < 1 << (bits - 1):
        raise ValueError
    return number


def read_double(text: str) -> float:
    stripped = text.strip(_BLANKS)
    match = _FLOAT.fullmatch(stripped)
    if match is None:
        special = _SPECIAL.get(stripped.lower())
        if special is None:
            raise ValueError
        return special
    sign, digits, hexadecimal, nan, _ = match.groups()
    if nan:
        return math.nan
    try:
        value = float(digits) if digits else float.fromhex(hexadecimal) if hexadecimal else math.inf
    except OverflowError:
        value = math.inf
    return -value if sign == "-" else value


def read_decimal(text: str, precision: int, scale: int) -> decimal.Decimal:
    """Raises `DecimalRangeError` if it has too many digits."""
    stripped = text.strip(_BLANKS)
    match = _DECIMAL.fullmatch(stripped)
    if match is None or any(ord(character) > 0xFFFF for character in stripped):
        raise ValueError
    try:
        number = decimal.Decimal(stripped)
    except decimal.InvalidOperation:  # of the exponent
        raise ValueError from None
    _, digits, exponent = number.as_tuple()
    assert isinstance(exponent, int), "it is finite"
    if not -_MAX_INT <= exponent <= _MAX_INT:
        raise ValueError
    if len(digits) + exponent > MAX_DIGITS:
        raise DecimalRangeError(
            f"[NUMERIC_OUT_OF_SUPPORTED_RANGE] The value {text} cannot be interpreted as a numeric since it"
            f" has more than {MAX_DIGITS} digits. SQLSTATE: 22003"
        )
    context = decimal.Context(prec=MAX_DIGITS + scale + 2, rounding=decimal.ROUND_HALF_UP)
    rounded = number.quantize(decimal.Decimal((0, (1,), -scale)), context=context)
    if rounded.adjusted() >= precision - scale and rounded:
        raise DecimalRangeError(
            f"[NUMERIC_VALUE_OUT_OF_RANGE.WITH_SUGGESTION]  {number:f} cannot be represented as"
            f' Decimal({precision}, {scale}). If necessary set "spark.sql.ansi.enabled" to "false" to bypass'
            " this error, and return NULL instead. SQLSTATE: 22003"
        )
    return rounded


_CLOCK = r"([0-9]{1,2})(?::([0-9]{1,2})(?::([0-9]{1,2})(?:\.([0-9]*))?([^0-9.].*|\..*)?)?)?"
_DATE = re.compile(
    rf"([+-]?)([0-9]{{4,6}})(?:-([0-9]{{1,2}})(?:-([0-9]{{1,2}})(?:[ T]{_CLOCK})?)?)?", re.DOTALL
)
_TIME_OF_TODAY = re.compile(rf"(?=T|[0-9]+:)T?{_CLOCK}", re.DOTALL)
_SHORT_HOUR = re.compile(r"([+-])([0-9]):")
_SHORT_MINUTE = re.compile(r"([+-][0-9]{2}):([0-9])$")
_OFFSET = re.compile(r"([+-])([0-9]{1,2}|[0-9]{4}|[0-9]{6}|[0-9]{2}:[0-9]{2}(?::[0-9]{2})?)")
_MAX_OFFSET_S = 18 * 3600  # of Java's ZoneOffset
# Java's meaning of names that are not in the database of time zones, or mean something else there.
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
_CYCLE_YEARS, _CYCLE_DAYS = 400, 146_097  # after which the calendar repeats, days of the week included
_EPOCH = datetime.date(1970, 1, 1).toordinal()


def read_timestamp(text: str, now: datetime.datetime) -> int:
    """Microseconds since 1970 in UTC, which is the time zone of a text without one. A time of day is of the
    current day, which begins with `now` in the zone of the text."""
    stripped = text.strip(_CONTROLS)
    match = _DATE.fullmatch(stripped)
    if match is not None:
        sign, year, month, day, *clock = match.groups()
        years = int(sign + year)
        zone = _zone(clock[4])
        days = _days(years, int(month or 1), int(day or 1))
    else:
        match = _TIME_OF_TODAY.fullmatch(stripped)
        if match is None or (stripped[0] == "T" and text[0] != "T"):
            raise ValueError
        clock = list(match.groups())
        zone = _zone(clock[4])
        today = now.astimezone(zone).date()
        years, days = today.year, today.toordinal() - _EPOCH
    hour, minute, second = (int(part or 0) for part in clock[:3])
    fraction = int(((clock[3] or "") + "000000")[:6])
    time = datetime.time(hour, minute, second)  # raises ValueError
    seconds = days * 86_400 + hour * 3600 + minute * 60 + second - _offset_s(zone, years, days, time)
    micros = seconds * 1_000_000 + fraction
    if not -(1 << 63) <= micros < 1 << 63:
        raise ValueError
    return micros


def _days(year: int, month: int, day: int) -> int:
    """Days from 1970 to a day of any year. Raises `ValueError` if there is no such day."""
    within = (year - 1) % _CYCLE_YEARS + 1
    cycles = (year - within) // _CYCLE_YEARS
    return datetime.date(within, month, day).toordinal() - _EPOCH + cycles * _CYCLE_DAYS


def _offset_s(zone: datetime.tzinfo, year: int, days: int, time: datetime.time) -> int:
    """The offset of a zone at a local time. In an hour that does not exist, or exists twice, the offset from
    before counts. Before the year 1 and after 9999 the zone has the rules of the years next to these."""
    shift = 0
    if year > datetime.MAXYEAR - 1:
        shift = -((year - datetime.MAXYEAR + 1) // _CYCLE_YEARS + 1)
    elif year < 2:
        shift = (2 - year) // _CYCLE_YEARS + 1
    date = datetime.date.fromordinal(days + _EPOCH + shift * _CYCLE_DAYS)
    offset = zone.utcoffset(datetime.datetime.combine(date, time))
    assert offset is not None, "a zone has an offset"
    return offset.days * 86_400 + offset.seconds


def _zone(text: str | None) -> datetime.tzinfo:
    """The time zone with a name or an offset. Raises `ValueError` if there is none."""
    if text is None:
        return datetime.UTC
    name = _SHORT_HOUR.sub(r"\g<1>0\2:", text.strip(_BLANKS), count=1)
    name = _SHORT_MINUTE.sub(r"\1:0\2", name)
    name = _SHORT_NAMES.get(name, name)
    if name in ("Z", "UTC", "GMT", "UT"):
        return datetime.UTC
    for prefix in ("UTC", "GMT", "UT"):
        if name.startswith(prefix) and name[len(prefix)] in "+-":
            return _offset(name.removeprefix(prefix))
    if name.startswith(("+", "-")):
        return _offset(name)
    if name not in _names():
        raise ValueError
    return zoneinfo.ZoneInfo(name)


@cache
def _names() -> frozenset[str]:
    return frozenset(zoneinfo.available_timezones())


def _offset(text: str) -> datetime.tzinfo:
    match = _OFFSET.fullmatch(text)
    if match is None:
        raise ValueError
    digits = match[2].replace(":", "")
    hours, minutes, seconds = (int(digits[at : at + 2] or 0) for at in (0, 2, 4))
    total = hours * 3600 + minutes * 60 + seconds
    if minutes > 59 or seconds > 59 or total > _MAX_OFFSET_S:
        raise ValueError
    return datetime.timezone(datetime.timedelta(seconds=-total if match[1] == "-" else total))
