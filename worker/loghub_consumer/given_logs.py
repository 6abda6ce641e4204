"""Logs that a test or a dry run writes down, as the log groups that a log service would hand over.

A log is a dictionary, or a text, which is a log with the one field ``line``, as `loghub put` writes a line.
The rest of a log has the names that SLS gives it, as in the lines of `loghub pull`, so a sample that was
pulled can be given as it is. A log of its own is a log group of its own, so that one that fails is alone; a
list is one log group.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from loghub.wire.loggroup import Log, LogGroup, decode, encode

GivenLog: TypeAlias = Mapping[str, object] | str
GivenLogs: TypeAlias = Iterable[GivenLog | Sequence[GivenLog]]

LINE = "line"
_TIME, _TIME_NS, _TOPIC, _SOURCE = "__time__", "__time_ns__", "__topic__", "__source__"
_TAG, _FIELD = "__tag__:", "__field__:"
_PLACE = ("__shard__", "__cursor__", "__index__")  # where a pulled log was; it gets a new place
_RESERVED = frozenset((_TIME, _TIME_NS, _TOPIC, _SOURCE, *_PLACE))
TIME_S = 1_700_000_000  # of a log that says none: the same in each run, so that a test may compare it


@dataclass(frozen=True, slots=True, kw_only=True)
class RejectedLog:
    """A log that a group would put into its dead letter, or skip.

    `number` is the place of its log group in the given logs. `reason` is in CamelCase, as a dead letter has
    it: of a processor ``ProcessorFailed`` where `process` raised, ``Refused`` after `Tracker.nack`,
    ``Rejected`` after `Tracker.reject`.
    """

    log: dict[str, str]
    number: int
    reason: str
    message: str
    attempts: int


def log_groups(logs: GivenLogs) -> tuple[bytes, ...]:
    """The log groups, encoded. Raises `TypeError` for what is no log, and `ValueError` for a time that is
    none, or a log group without logs, or whose logs differ in topic, source or tags."""
    if isinstance(logs, str | Mapping):
        raise TypeError("logs is one log; give a list of logs")
    return tuple(encode(_group([one] if isinstance(one, str | Mapping) else one)) for one in logs)


def contents_of(raw: bytes) -> list[dict[str, str]]:
    """The fields of each log of a log group, the last one of a name that occurs twice."""
    return [{_text(key): _text(value) for key, value in log.contents} for log in decode(raw).logs]


def _group(logs: Sequence[GivenLog]) -> LogGroup:
    if not isinstance(logs, Sequence) or not logs:
        raise TypeError(f"{logs!r} is no log: give a dictionary, a text, or a list of these for a log group")
    written = [_whole(log) for log in logs]
    first = written[0][1]
    if any(group != first for _, group in written):
        raise ValueError(f"the logs of a log group share topic, source and tags; these differ: {logs!r}")
    topic, source, tags = first
    return LogGroup(logs=tuple(log for log, _ in written), topic=topic, source=source, tags=tags)


def _whole(log: GivenLog) -> tuple[Log, tuple[str, str, tuple[tuple[str, str], ...]]]:
    """The log, and what it says of its log group."""
    if isinstance(log, str):
        log = {LINE: log}
    if not isinstance(log, Mapping):
        raise TypeError(f"{log!r} is no log: give a dictionary or a text")
    contents = tuple(
        (name.removeprefix(_FIELD), _value(name, value))
        for name, value in log.items()
        if name not in _RESERVED and not name.startswith(_TAG)
    )
    tags = tuple((name.removeprefix(_TAG), _value(name, log[name])) for name in log if name.startswith(_TAG))
    time_ns = log.get(_TIME_NS)
    whole = Log(
        time=_number(_TIME, log.get(_TIME, TIME_S)),
        time_ns=None if time_ns is None else _number(_TIME_NS, time_ns),
        contents=contents,
    )
    return whole, (_value(_TOPIC, log.get(_TOPIC, "")), _value(_SOURCE, log.get(_SOURCE, "")), tags)


def _value(name: str, value: object) -> str:
    if not isinstance(value, str):
        raise TypeError(f"the field {name} is {value!r}; a value of a log is a text, such as {str(value)!r}")
    return value


def _number(name: str, value: object) -> int:
    if not isinstance(value, int) or isinstance(value, bool):
        raise TypeError(f"{name} is {value!r}; it must be a whole number of {_UNITS[name]}")
    return value


_UNITS = {_TIME: "unix seconds", _TIME_NS: "nanoseconds"}


def _text(value: str | bytes) -> str:
    return value if isinstance(value, str) else value.decode(errors="replace")
