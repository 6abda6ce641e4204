"""Concurrent writers that remember what was acknowledged, and the check after a crash.

The durability tests use it; they cause the crash themselves.
"""

import http.client
import itertools
import threading
from collections import Counter
from typing import Any

from loghub.wire import cursor as wire_cursor
from tests.loghub_service.rawclient import RawClient, Refused, group_of, noise
from tests.support import ServiceProcess, wait_until

GUARD_S = 180.0
WRITERS = 6
SHARDS = 3


class Writers:
    """Threads that put groups and save checkpoints until the service is gone; with ``reshard`` one more
    that splits and merges. ``size`` is that of the largest line, in bytes."""

    def __init__(self, service: ServiceProcess, *, reshard: bool = False, size: int = 700) -> None:
        self._service = service
        self._size = size
        self._noise = noise(3 * size)
        self.sent: dict[str, bytes] = {}
        self.acked: list[str] = []
        self.checkpoints: dict[int, int] = {}  # shard -> last acknowledged cursor
        self._threads = [threading.Thread(target=self._put, args=(n,)) for n in range(WRITERS)]
        self._threads.append(threading.Thread(target=self._save))
        self.created: set[int] = set()  # shards that acknowledged splits and merges made
        if reshard:
            self._threads.append(threading.Thread(target=self._reshard))

    def run_until(self, *, acks: int) -> None:
        """Return when so many groups and some checkpoints are acknowledged; the writers go on."""
        for thread in self._threads:
            thread.start()
        wait_until(
            lambda: (
                (len(self.acked) >= acks and len(self.checkpoints) == SHARDS)
                or not any(thread.is_alive() for thread in self._threads)
            ),
            "acknowledged groups",
        )

    def run_until_the_end(self) -> None:
        """Return when the service is gone."""
        for thread in self._threads:
            thread.start()
        self.join()

    def join(self) -> None:
        for thread in self._threads:
            thread.join(GUARD_S)
            assert not thread.is_alive()

    def _put(self, writer: int) -> None:
        with RawClient(self._service) as client:
            for number in itertools.count():
                name = f"{writer}-{number}"
                size = 977 * number % self._size
                fills = [self._noise[line * size :][:size] for line in range(3)]
                self.sent[name] = group_of(*(f"{name}-{line} {fill}" for line, fill in enumerate(fills)))
                try:
                    if client.put(self.sent[name]).status != 200:
                        return
                except (OSError, http.client.HTTPException):
                    return
                self.acked.append(name)

    def _save(self) -> None:
        with RawClient(self._service) as client:
            for number in itertools.count(1):
                try:
                    if client.checkpoint(number % SHARDS, number, consumer="", force="True").status != 200:
                        return
                except (OSError, http.client.HTTPException):
                    return
                self.checkpoints[number % SHARDS] = number

    def _reshard(self) -> None:
        """Split the shard that was made last, then merge its halves, until the service is gone."""
        with RawClient(self._service) as client:
            shard = 0
            for action in itertools.cycle(("split", "merge")):
                try:
                    reply = client.send("POST", f"/logstores/access/shards/{shard}", {"action": action})
                except (OSError, http.client.HTTPException):
                    return
                if reply.status != 200:
                    return
                created = [entry["shardID"] for entry in reply.json() if entry["status"] == "readwrite"]
                self.created.update(created)
                shard = created[0]


def prepare(service: ServiceProcess) -> None:
    with RawClient(service) as client:
        client.create(shards=SHARDS)
        client.create_group("g", timeout=17, order=True)


def missing_data(service: ServiceProcess, writers: Writers) -> list[str]:
    """Descriptions of the acknowledged data that is missing; [] if none is.

    Fails outright for what no crash excuses: a changed byte, a group twice, a damaged pull.
    """
    with RawClient(service) as client:
        try:
            shards = client.ok("GET", "/logstores/access/shards").json()
            stored = Counter(group for entry in shards for group in client.pull_all(shard=entry["shardID"]))
        except Refused as error:
            if error.reply.status != 404:
                raise
            return [f"all: {error}"]
        saved = client.ok("GET", "/logstores/access/consumergroups/g").json()
        groups = client.ok("GET", "/logstores/access/consumergroups").json()
    assert all(count == 1 for count in stored.values())
    assert set(stored) <= set(writers.sent.values())
    _check_whole(shards)
    missing = [f"group {name}" for name in writers.acked if writers.sent[name] not in stored]
    missing += [f"shard {shard}" for shard in writers.created - {entry["shardID"] for entry in shards}]
    if groups != [{"name": "g", "timeout": 17, "order": True}]:
        missing.append(f"consumer group: {groups}")
    found = {entry["shard"]: entry["checkpoint"] for entry in saved}
    for shard, cursor in writers.checkpoints.items():
        if not found.get(shard) or wire_cursor.decode(found[shard]) < cursor:
            missing.append(f"checkpoint of shard {shard}")
    return missing


def _check_whole(shards: list[dict[str, Any]]) -> None:
    """The shards that take writes cover the key space without overlap."""
    writable = [entry for entry in shards if entry["status"] == "readwrite"]
    writable.sort(key=lambda entry: entry["inclusiveBeginKey"])
    begins = [entry["inclusiveBeginKey"] for entry in writable]
    ends = [entry["exclusiveEndKey"] for entry in writable]
    assert [begins[0], *ends] == [*begins, "f" * 32]
    assert begins[0] == "0" * 32
