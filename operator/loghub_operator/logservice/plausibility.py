"""Refuses answers that no log service gives, before anything follows from them.

The author of an object chooses the endpoint, so anyone may answer there. A number that the status cannot hold
would end every reconcile, the object's deletion included, and a text of megabytes or a number beyond 64 bits
would make the API server refuse the status, so that the old one stayed. The work per observation grows with
the number of shards, and is shared by all groups.
"""

from collections.abc import Collection, Iterable

from loghub_operator.model.observed import ShardObserved

MOST_SHARDS = 4096  # SLS allows a few hundred writable ones; the others are read-only ones within retention
HIGHEST_SHARD = 2**31 - 1
LONGEST_TEXT = 256  # of a consumer's name (`loghub.wire.names`); a cursor is shorter
LARGEST_LAG = 2**63 // MOST_SHARDS  # so that the sum over all shards is a 64-bit number


class ImplausibleAnswer(Exception):  # noqa: N818 - says what is wrong
    """An answer that no log service gives; the message quotes nothing of it."""


def check_numbers(shards: Collection[int]) -> None:
    """The numbers of the shards of a logstore. Raises `ImplausibleAnswer`."""
    if len(shards) > MOST_SHARDS:
        raise ImplausibleAnswer(f"lists more than {MOST_SHARDS} shards")
    if not all(0 <= shard <= HIGHEST_SHARD for shard in shards):
        raise ImplausibleAnswer("lists shards whose numbers are negative or too large")
    if len(set(shards)) < len(shards):
        raise ImplausibleAnswer("lists a shard twice")


def check_shards(shards: Collection[ShardObserved]) -> None:
    """What is reported of the shards. Raises `ImplausibleAnswer`."""
    check_numbers([one.shard for one in shards])
    for one in shards:
        if not all(0 <= parent <= HIGHEST_SHARD for parent in one.parents):
            raise ImplausibleAnswer("lists shards whose parents have numbers that are negative or too large")
        if any(len(text) > LONGEST_TEXT for text in _texts(one)):
            raise ImplausibleAnswer("reports names of consumers, or cursors, that are too long")
        if any(lag is not None and abs(lag) > LARGEST_LAG for lag in (one.lag_s, one.lag_logs)):
            raise ImplausibleAnswer("reports a lag that is too large")


def _texts(shard: ShardObserved) -> Iterable[str]:
    return shard.holder, shard.next_holder, shard.checkpoint, shard.checkpoint_consumer, shard.end_cursor
