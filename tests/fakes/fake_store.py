"""Logstores in memory: shards with their log groups, and consumer groups on the real coordinator.

`fake_log_service` answers from it. It uses the rules of `loghub.domain`, so a test that uses the fake tests
the same decisions as in the service."""

from bisect import bisect_left
from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import accumulate
from typing import TypeVar

from loghub.clock import Clock
from loghub.domain import coordinator, shards
from loghub.domain.group import Configure, Event, GroupState, LogShard, ShardsChanged, Step, Tick
from loghub.domain.lag import UNKNOWN, Lag, ShardMarks, shard_lag
from loghub.domain.shards import BadHashKey, Reshard, ShardError, ShardMap, ShardNotFound, parse_key
from loghub.wire.errors import Code, LogHubError

T = TypeVar("T")

_US = 1_000_000


@dataclass(slots=True, kw_only=True)
class ShardData:
    """The log groups of one shard; the first has the cursor ``first_cursor``, the next one more."""

    born_us: int
    first_cursor: int
    groups: list[bytes] = field(default_factory=list)
    logs: list[int] = field(default_factory=list)
    received_us: list[int] = field(default_factory=list)

    @property
    def end_cursor(self) -> int:
        """The cursor of the next write."""
        return self.first_cursor + len(self.groups)

    def append(self, group: bytes, *, logs: int, now_us: int) -> None:
        # The times of receipt never go back, so that they can be searched.
        self.groups.append(group)
        self.logs.append(logs)
        self.received_us.append(max(now_us, self.received_us[-1] if self.received_us else now_us))

    def cursor_at(self, unix_us: int) -> int:
        """Of the first group received at or after a time; the end if there is none."""
        return self.first_cursor + bisect_left(self.received_us, unix_us)

    def received_at(self, cursor: int) -> int:
        """When the group at a cursor came; at the end, when the newest did, or the shard's birth."""
        index = max(0, min(cursor - self.first_cursor, len(self.groups) - 1))
        return self.received_us[index] if self.received_us else self.born_us

    def between(self, cursor: int, end_cursor: int, count: int) -> list[bytes]:
        """At most ``count`` groups of [cursor, end_cursor)."""
        first = max(0, cursor - self.first_cursor)
        return self.groups[first : min(first + count, max(0, end_cursor - self.first_cursor))]

    def lag(self, position: int | None, *, now_unix_s: float) -> Lag:
        """From a checkpoint on; without one not known, unless nothing is kept that could be left."""
        if position is None and self.groups:
            return UNKNOWN
        index = 0 if position is None else max(0, min(position - self.first_cursor, len(self.groups)))
        before = [0, *accumulate(self.logs)]
        received = self.received_us[index] / _US if index < len(self.groups) else None
        marks = ShardMarks(
            position=self.first_cursor + index,
            begin_cursor=self.first_cursor,
            end_cursor=self.end_cursor,
            logs_before_position=before[index],
            logs_before_end=before[-1],
            next_received_unix_s=received,
        )
        return shard_lag(marks, now_unix_s=now_unix_s)


class Logstore:
    """One logstore with its shards, their data and its consumer groups. Not thread-safe."""

    def __init__(self, *, shard_count: int, clock: Clock, ttl_days: int = 7) -> None:
        self._clock = clock
        self.ttl_days = ttl_days
        self.created_unix_s = int(clock.unix_s())
        self._next_shard = 0
        self.shard_map = shards.create(shard_count)
        self.data: dict[int, ShardData] = {}
        self._groups: dict[str, GroupState] = {}
        self._make_data()

    def _now_us(self) -> int:
        return int(self._clock.unix_s() * _US)

    def _make_data(self) -> None:
        now_us = self._now_us()
        for number in self.shard_map.shards:
            if number not in self.data:
                # Above 0, so that "the one before" can always be said (docs/sls-protocol.md 2.1).
                self.data[number] = ShardData(born_us=now_us, first_cursor=now_us * 1000)

    # --- shards and their logs ---------------------------------------------------------------

    def shard_data(self, shard: int) -> ShardData:
        result = self.data.get(shard)
        if result is None:
            raise LogHubError.of(Code.SHARD_NOT_EXIST, f"shard {shard} does not exist")
        return result

    def append(self, group: bytes, *, logs: int, hash_key: str | None) -> None:
        """To the shard of the key, or to each writable one in turn."""
        if hash_key is not None:
            try:
                shard = shards.route(self.shard_map, key=parse_key(hash_key))
            except BadHashKey as error:
                raise LogHubError.of(Code.PARAMETER_INVALID, str(error)) from error
        else:
            writable = self.shard_map.writable()
            shard = writable[self._next_shard % len(writable)]
            self._next_shard += 1
        self.data[shard.shard].append(group, logs=logs, now_us=self._now_us())

    def split(self, shard: int, key: str | None, parts: int = 2) -> tuple[int, ...]:
        """The old shard and the new ones."""
        if key is None:
            return self._reshard(lambda: shards.split(self.shard_map, shard=shard, parts=parts))
        return self._reshard(lambda: shards.split_at(self.shard_map, shard=shard, key=parse_key(key)))

    def merge(self, shard: int) -> tuple[int, ...]:
        """The old shards and the new one."""
        return self._reshard(lambda: shards.merge(self.shard_map, shard=shard))

    def delete_shard(self, shard: int) -> None:
        """A read-only one, with its logs."""
        self._change(_refused(lambda: shards.delete(self.shard_map, shard=shard)))
        del self.data[shard]

    def _reshard(self, change: Callable[[], Reshard]) -> tuple[int, ...]:
        reshard = _refused(change)
        self._change(reshard.after)
        return tuple(s.shard for s in (*reshard.closed, *reshard.created))

    def _change(self, after: ShardMap) -> None:
        self.shard_map = after
        self._make_data()
        for name in self._groups:
            self.step(name, ShardsChanged(shards=self.log_shards()))

    def log_shards(self) -> tuple[LogShard, ...]:
        """The shards as a consumer group sees them."""
        return tuple(
            LogShard(
                shard=number,
                parents=shard.parents,
                begin_cursor=self.data[number].first_cursor,
                end_cursor=self.data[number].end_cursor if shard.read_only else None,
            )
            for number, shard in self.shard_map.shards.items()
        )

    # --- consumer groups ---------------------------------------------------------------------

    def group_names(self) -> tuple[str, ...]:
        return tuple(sorted(self._groups))

    def create_group(self, name: str, *, timeout_s: float, order: bool) -> None:
        if name in self._groups:
            raise LogHubError.of(Code.CONSUMER_GROUP_ALREADY_EXIST, f"consumer group {name} exists")
        created = coordinator.create_group(
            group=name,
            timeout_s=timeout_s,
            order=order,
            shards=self.log_shards(),
            now=self._clock.monotonic_s(),
        )
        self._groups[name] = created.state

    def configure(self, name: str, *, timeout_s: float, order: bool) -> None:
        self.step(name, Configure(timeout_s=timeout_s, order=order))

    def delete_group(self, name: str) -> None:
        self.group(name)
        del self._groups[name]

    def group(self, name: str) -> GroupState:
        """The group at this moment, without consumers that have been silent for too long."""
        if name not in self._groups:
            raise LogHubError.of(Code.CONSUMER_GROUP_NOT_EXIST, f"consumer group {name} does not exist")
        now = self._clock.monotonic_s()
        self._groups[name] = coordinator.step(self._groups[name], Tick(), now=now).state
        return self._groups[name]

    def step(self, name: str, event: Event) -> Step:
        """One event; a refusal of the domain is the error with that code."""
        done = coordinator.step(self.group(name), event, now=self._clock.monotonic_s())
        if done.refusal is not None:
            raise LogHubError.of(Code(done.refusal.value), f"consumer group {name}: {event}")
        self._groups[name] = done.state
        return done


def _refused(change: Callable[[], T]) -> T:
    """Translate what the domain refuses into the service's error."""
    try:
        return change()
    except ShardNotFound as error:
        raise LogHubError.of(Code.SHARD_NOT_EXIST, str(error)) from error
    except (ShardError, BadHashKey) as error:
        raise LogHubError.of(Code.PARAMETER_INVALID, str(error)) from error
