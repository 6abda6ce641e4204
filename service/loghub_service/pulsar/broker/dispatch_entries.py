"""The entries of log groups for the Pulsar clients of one subscription.

A group is encoded as a whole, in the thread that reads it, and kept in a cache that all subscriptions of the
same form share; what was dropped from the cache is read again.
"""

from collections.abc import Hashable, Iterable, Sequence
from dataclasses import replace
from typing import NamedTuple

import structlog

from loghub.domain.log_position import group_end, index_of, ordinal_of, position_of
from loghub_service.dispatch.driver import Dispatch
from loghub_service.kafka.records.record_forms import RecordForm
from loghub_service.pulsar.broker.call import PulsarBroker
from loghub_service.pulsar.broker.ids import Run
from loghub_service.pulsar.broker.store import PulsarTopic
from loghub_service.pulsar.records.entries import EntryToSend, GroupToSend, ordered_entries, single_entries
from loghub_service.subscription.events import Ack, DeliveredRun, PassOn

_log = structlog.get_logger("loghub_service.pulsar")


class EncodedGroup(NamedTuple):
    """A log group as entries, in the form of an ordered type or not."""

    ordinal: int
    is_ordered: bool
    entries: tuple[EntryToSend, ...]


class EntryLengths:
    """How many ``logs`` an entry of a shard has, by its position, of what was read.

    Everything is kept that is not acknowledged, however much it is. So the others are looked for only once
    there are twice as many entries as were left the last time, and at least ``minimum``: a look costs by the
    number of entries.
    """

    def __init__(self, minimum: int) -> None:
        self.logs: dict[int, int] = {}
        self._minimum = self._next = minimum

    @property
    def are_many(self) -> bool:
        return len(self.logs) > self._next

    def add(self, first: int, logs: int) -> None:
        self.logs[first] = logs

    def drop_below(self, mark: int) -> None:
        self.logs = {first: logs for first, logs in self.logs.items() if first + logs > mark}
        self._next = max(self._minimum, 2 * len(self.logs))


class DispatchEntries:
    """A `loghub_service.dispatch.ports.Preparation`. ``unseeded``: shards that the subscription had when it
    began, of which a reader has not said yet where it begins."""

    def __init__(self, broker: PulsarBroker, topic: PulsarTopic, dispatch: Dispatch) -> None:
        self.topic = topic
        self.unseeded = set(dispatch.saved.state.shards)
        self._broker = broker
        self._dispatch = dispatch
        self._lengths: dict[int, EntryLengths] = {}  # of ordered types, by shard

    def prepare(self, group: GroupToSend) -> EncodedGroup:
        is_raw = self.topic.form is RecordForm.RAW
        if group.raw is not is_raw:  # the dispatch reads in the form of its first consumer
            group = replace(group, raw=is_raw)
        is_ordered, maximum = self._dispatch.is_ordered, self._broker.limits.message_bytes
        if is_ordered:
            entries = ordered_entries(group, max_message_bytes=maximum)
        else:
            entries = list(single_entries(group, max_message_bytes=maximum))
        return EncodedGroup(group.ordinal, is_ordered, tuple(entries))

    def pieces(self, prepared: EncodedGroup) -> Sequence[int]:
        return [entry.messages for entry in prepared.entries]

    def keep(self, shard: int, prepared: EncodedGroup) -> None:
        self._broker.cache.put(self._key(shard, prepared.ordinal, prepared.is_ordered), prepared.entries)
        if prepared.is_ordered:
            lengths = self._lengths.setdefault(shard, EntryLengths(2 * self._broker.limits.ids))
            for entry in prepared.entries:
                lengths.add(position_of(entry.ordinal, entry.first), entry.messages)
            cursor = self._dispatch.saved.state.shards.get(shard)
            if lengths.are_many and cursor is not None:
                lengths.drop_below(cursor.acked.mark)

    def leave_out(
        self, number: int, shard: int, runs: Sequence[DeliveredRun], entries: Iterable[EntryToSend]
    ) -> int:
        """Pass on what no frame can carry of a log group that was dealt to a consumer, by its number, or
        acknowledge it if nobody else could take it: nothing behind it would ever come. Returns how many logs
        of these runs no frame can carry."""
        left_out = 0
        for entry in entries:
            if entry.data is not None:
                continue
            first = position_of(entry.ordinal, entry.first)
            stop = first + entry.messages
            dealt = [(max(a, first), min(b, stop), times) for a, b, times in runs if a < stop and b > first]
            left_out += entry.messages if dealt else 0
            for begin, end, _ in self._dispatch.still_out(number, shard, dealt):
                passed_on = PassOn(consumer=number, shard=shard, runs=[(begin, end)])
                if self._dispatch.apply(passed_on).refusal is None:
                    continue
                self._broker.counts.too_large_logs += end - begin
                _log.warning(
                    "a log is left out: it is too large for a message",
                    subscription=self._dispatch.saved.name,
                    logstore=self.topic.name,
                    shard=shard,
                    ordinal=entry.ordinal,
                    index=entry.first,
                )
                self._dispatch.apply(Ack(shard=shard, runs=[(begin, end)]))
        return left_out

    def _key(self, shard: int, ordinal: int, is_ordered: bool) -> Hashable:
        return self.topic.id, shard, ordinal, self.topic.form, is_ordered

    async def entries_of(self, shard: int, ordinal: int) -> tuple[EntryToSend, ...] | None:
        """What is delivered of a log group; None if it has expired. Raises Unreadable."""
        found = self._broker.cache.get(self._key(shard, ordinal, self._dispatch.is_ordered))
        if found is None:
            groups, _ = await self.topic.read(
                shard, position_of(ordinal), max_logs=1, max_bytes=1, make=self.prepare
            )
            if not groups or groups[0].ordinal != ordinal:
                return None
            self.keep(shard, groups[0])
            found = groups[0].entries
        return found

    async def logs_at(self, shard: int, first: int) -> int:
        """How many logs the entry at this position has; 0 if there is none."""
        if not self._dispatch.is_ordered:
            return 1
        lengths = self._lengths.get(shard)
        if lengths is not None and first in lengths.logs:
            return lengths.logs[first]
        entries = await self.entries_of(shard, ordinal_of(first)) or ()
        return next((entry.messages for entry in entries if entry.first == index_of(first)), 0)


def joined_runs(runs: Iterable[Run]) -> list[Run]:
    """The runs in the order of their positions, joined where they touch in one log group."""
    joined: list[Run] = []
    for first, stop in sorted(runs):
        if joined and first <= joined[-1][1] and first < group_end(joined[-1][0]):
            joined[-1] = joined[-1][0], max(stop, joined[-1][1])
        else:
            joined.append((first, stop))
    return joined
