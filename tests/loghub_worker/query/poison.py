"""Logs around one that a pipeline cannot take, in two shards."""

from collections import Counter

from loghub.client.http import HttpLogHub
from loghub.wire.cursor import decode
from loghub.wire.loggroup import Log, LogGroup, encode
from tests.loghub_worker.support import LOGSTORE

LOWER, UPPER = "1" * 32, "9" * 32  # hash keys of shard 0 and shard 1
POISON = "-"


def put(client: HttpLogHub, name: str, status: str = "200", *, hash_key: str = LOWER) -> None:
    """One log group with one log."""
    log = Log(time=1_700_000_000, contents=(("id", name), ("status", status)))
    client.put_logs(LOGSTORE, encode(LogGroup(logs=(log,), topic="t", source="s")), hash_key=hash_key)


def put_around_a_poison(client: HttpLogHub) -> int:
    """Shard 0 gets five good log groups, a bad one and five good ones; shard 1 gets ten good ones. Returns
    the cursor of the bad one."""
    for n in range(5):
        put(client, f"before-{n}")
    cursor = decode(client.get_cursor(LOGSTORE, 0, "end"))
    put(client, "poison", POISON)
    for n in range(5):
        put(client, f"after-{n}")
    for n in range(10):
        put(client, f"other-{n}", hash_key=UPPER)
    return cursor


def ids(*prefixes: str) -> Counter[str]:
    counts = {"before": 5, "after": 5, "other": 10}
    return Counter(f"{prefix}-{n}" for prefix in prefixes for n in range(counts[prefix]))
