"""Logs to log groups, and at which pace they are sent. Pure: the present time is an argument.

A batch is written as one log group, all or nothing. Logs of different origins are never in one batch, and
batches keep the order of the logs.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field

from loghub.wire.loggroup import Log, LogGroup, encode
from loghub_operator.cli.log_lines import Origin

_OVERHEAD_BYTES = 16  # of a log and of a field, about


@dataclass(slots=True, kw_only=True)
class Batch:
    """Logs of one origin. ``first_line`` and ``last_line`` count the lines that were read, from 1."""

    origin: Origin
    began_s: float
    first_line: int
    last_line: int = 0
    size: int = 0  # bytes, about
    logs: list[Log] = field(default_factory=list)

    def encoded(self) -> bytes:
        origin = self.origin
        return encode(
            LogGroup(logs=tuple(self.logs), topic=origin.topic, source=origin.source, tags=origin.tags)
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchLimits:
    """When a batch is complete: its logs, its bytes, or the seconds since its first log."""

    logs: int
    size: int
    linger_s: float


class Batches:
    """Collects logs; each method yields the batches that are now complete."""

    def __init__(self, limits: BatchLimits) -> None:
        self._limits = limits
        self._open: Batch | None = None

    def add(self, log: Log, origin: Origin, *, line: int, now: float) -> Iterator[Batch]:
        size = _OVERHEAD_BYTES + sum(
            _size(key) + _size(value) + _OVERHEAD_BYTES for key, value in log.contents
        )
        if self._open is not None and self._must_end(self._open, origin, size):
            yield from self.end()
        if self._open is None:
            self._open = Batch(origin=origin, began_s=now, first_line=line)
        batch = self._open
        batch.logs.append(log)
        batch.size += size
        batch.last_line = line
        if len(batch.logs) >= self._limits.logs or batch.size >= self._limits.size:
            yield from self.end()

    def tick(self, *, now: float) -> Iterator[Batch]:
        if self._open is not None and now - self._open.began_s >= self._limits.linger_s:
            yield from self.end()

    def end(self) -> Iterator[Batch]:
        batch, self._open = self._open, None
        if batch is not None:
            yield batch

    def _must_end(self, batch: Batch, origin: Origin, size: int) -> bool:
        return batch.origin != origin or batch.size + size > self._limits.size


def _size(text: str | bytes) -> int:
    """In bytes, as a log group has it: a character may be four."""
    return len(text) if isinstance(text, bytes) or text.isascii() else len(text.encode())


class Pace:
    """At most so many logs a second. What was not used is not saved up: after a pause there is no burst."""

    def __init__(self, logs_per_s: float) -> None:
        self._logs_per_s = logs_per_s
        self._free_at: float | None = None

    def wait_s(self, *, now: float) -> float:
        """How long the next batch must wait."""
        return 0.0 if self._free_at is None else max(0.0, self._free_at - now)

    def sent(self, logs: int, *, now: float) -> None:
        begin = now if self._free_at is None else max(now, self._free_at)
        self._free_at = begin + logs / self._logs_per_s
