"""The log of workers for people: a JSON message as one line, an exception below it. Pure.

A worker writes JSON if `spec.worker.log.format` says so (docs/worker-log.md); any other line stays as it is.
"""

import json
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from loghub_cli.output import on_one_line

# As `kubectl logs --prefix` begins a line.
_PREFIX = re.compile(r"\[pod/(?P<pod>[^/\]]+)/[^\]]+\] ?(?P<text>.*)", re.DOTALL)
_OWN = ("timestamp", "level", "event", "exception")


@dataclass(frozen=True, slots=True)
class LogLine:
    """A line of one pod; ``message`` is None unless it is a JSON object with an event."""

    pod: str
    text: str
    message: dict[str, Any] | None

    @classmethod
    def of(cls, line: str) -> "LogLine":
        prefixed = _PREFIX.fullmatch(line.rstrip("\n"))
        pod, text = ("", line.rstrip("\n")) if prefixed is None else (prefixed["pod"], prefixed["text"])
        return cls(pod, text, _message(text))

    @property
    def time(self) -> str:
        """Of the message; "" without one."""
        return "" if self.message is None else str(self.message.get("timestamp", ""))

    def readable(self) -> Iterator[str]:
        """The lines that it takes."""
        where = f"{self.pod}  " if self.pod else ""
        if self.message is None:
            yield f"{where}{on_one_line(self.text)}"
            return
        level = str(self.message.get("level", "")).upper()
        fields = (f"{key}={_value(value)}" for key, value in self.message.items() if key not in _OWN)
        words = "  ".join((str(self.message["event"]), *fields))
        yield f"{on_one_line(self.time)}  {on_one_line(level):<7}  {where}{on_one_line(words)}"
        for line in str(self.message.get("exception") or "").splitlines():
            yield f"    {on_one_line(line)}"


def _message(text: str) -> dict[str, Any] | None:
    if not text.startswith("{"):
        return None
    try:
        value = json.loads(text)
    except ValueError:
        return None
    return value if isinstance(value, dict) and "event" in value else None


def _value(value: object) -> str:
    if isinstance(value, str):
        return value if value and " " not in value else json.dumps(value, ensure_ascii=False)
    return json.dumps(value, ensure_ascii=False)


def by_time(lines: Iterable[str]) -> list[LogLine]:
    """The lines of several pods, one after the other, as one log. A line without a time stays behind the one
    before it."""
    found = [LogLine.of(line) for line in lines]
    times, latest = [], dict[str, str]()
    for line in found:
        latest[line.pod] = line.time or latest.get(line.pod, "")
        times.append(latest[line.pod])
    order = sorted(range(len(found)), key=times.__getitem__)
    return [found[index] for index in order]
