"""The calls of the client port in memory that wait for news, and that save several checkpoints."""

import time
import zlib
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from loghub.client.port import GroupRevision, Poll, ShardEnds, check_group
from loghub.domain.group import GroupState, ShardEntry
from loghub.wire import cursor as wire_cursor
from loghub.wire.errors import LogHubError
from tests.fakes.fake_store import ShardData

T = TypeVar("T")
LOOK_S = 0.005


class MemoryPolls:
    """A part of `tests.fakes.fake_log_service.MemoryLogHub`."""

    _server: Any
    _store: Any
    _projects: Any
    get_checkpoints: Any
    update_checkpoint: Any

    def has_polls(self) -> bool:
        self._projects()
        return bool(self._server.polls)

    def await_ends(self, logstore: str, known: Mapping[int, str], *, poll: Poll) -> tuple[ShardEnds, ...]:
        def ends() -> tuple[ShardEnds, ...]:
            data = self._store(logstore).data
            return tuple(_ends(shard, data[shard]) for shard in sorted(known) if shard in data)

        return self._await(ends, lambda found: {one.shard: one.end for one in found} != dict(known), poll)

    def await_group(
        self, logstore: str, group: str, *, consumer: str, revision: int, poll: Poll
    ) -> GroupRevision:
        def present() -> GroupRevision:
            state = self._store(logstore).group(check_group(group))
            outline = [(e.shard, e.state, e.holder, e.next_holder) for e in state.shards.values()]
            # The first report of a shard that is being taken away changes the next answer.
            reported = [e.shard for e in state.shards.values() if e.next_holder and _is_reported(state, e)]
            text = repr((outline, reported, list(state.consumers), state.timeout_s, state.order))
            return GroupRevision(revision=zlib.crc32(text.encode()), assigned=state.owned_by(consumer))

        return self._await(present, lambda found: found.revision != revision, poll)

    def _await(self, look: Callable[[], T], has_changed: Callable[[T], bool], poll: Poll) -> T:
        give_up_s = time.monotonic() + poll.wait_s
        self._server.last_polls[poll.name] = poll
        while True:
            with self._server.lock:
                found = look()
            is_last = self._server.last_polls.get(poll.name) is poll
            if has_changed(found) or not is_last or time.monotonic() >= give_up_s:
                return found
            time.sleep(LOOK_S)

    def save_checkpoints(
        self, logstore: str, group: str, cursors: Mapping[int, str], *, consumer: str
    ) -> dict[int, LogHubError]:
        rejected = {}
        self.get_checkpoints(logstore, group)
        for shard, cursor in cursors.items():
            try:
                type(self).update_checkpoint(  # not what a test has put in its place
                    self, logstore, group, shard=shard, cursor=cursor, consumer=consumer, force=False
                )
            except LogHubError as error:
                rejected[shard] = error
        return rejected


def _is_reported(state: GroupState, entry: ShardEntry) -> bool:
    return entry.holder is not None and entry.shard in state.consumers[entry.holder].held


def _ends(shard: int, data: ShardData) -> ShardEnds:
    first, end = (wire_cursor.encode(cursor) for cursor in (data.first_cursor, data.end_cursor))
    return ShardEnds(shard=shard, begin=first, end=end)
