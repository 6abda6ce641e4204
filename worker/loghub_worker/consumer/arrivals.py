"""Lets the log service say when a shard has new log groups, where it can, in place of pulls at its end.

A shard whose pull is due although the last one has seen its end is parked (`shard_flow.parked`), and watched
by a poll (`loghub_worker.source.end_poll`) until there is something to pull. If polls fail, all shards are
pulled at the fetch interval, as on SLS, until the next attempt.
"""

import threading
from collections.abc import Callable

from loghub.client.port import LogHub
from loghub_worker.consumer.shard_table import ShardTable
from loghub_worker.log_context import inherited
from loghub_worker.source.end_poll import EndPoll

STEP_S = 1.0  # how often it is checked whether polls work again
PAUSE_S = 0.05  # in which shards are collected that are parked one after the other


class ArrivalWatch:
    """One thread; the poll has its own."""

    def __init__(
        self, table: ShardTable, client: LogHub, *, logstore: str, random: Callable[[], float]
    ) -> None:
        self._table = table
        self._changed = threading.Event()
        self._stop = threading.Event()
        self._poll = EndPoll(
            client, logstore=logstore, clock=table.clock, on_news=self._changed.set, random=random
        )
        self._thread = threading.Thread(target=inherited(self._run), name="arrivals", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._stop.set()
        self._changed.set()
        self._poll.stop()

    def _run(self) -> None:
        try:
            while not self._stop.is_set():
                self._step()
                if self._changed.wait(STEP_S):
                    self._changed.clear()
        except BaseException as failure:
            self._table.fail(failure)
            raise

    def _step(self) -> None:
        is_usable = self._poll.is_usable()
        for shard in self._poll.take():
            self._table.arrived(shard)
        parked = self._table.parked(self._changed.set if is_usable else None)
        watched = self._poll.watched
        self._poll.forget(watched - parked.keys())
        if parked.keys() - watched:
            self._poll.watch(parked)
            self._stop.wait(PAUSE_S)
