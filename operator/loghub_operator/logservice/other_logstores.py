"""Reads what waits in a group's retry logstore, and what lies in its dead letter, if that is a logstore.

Both are counted in log groups, by cursors as the lag on the real SLS, for every endpoint: the consumer group
of a retry logstore always begins at the oldest log group, so what it has left is known without a checkpoint.
Logs that wait there for their time are not passed by its checkpoint, and count until they are settled.
"""

from collections.abc import Mapping

from loghub.client.port import LogHub
from loghub.clock import Clock
from loghub.contract.processor import retry_group
from loghub.wire import cursor as wire_cursor
from loghub.wire.errors import LogHubError, LogHubException
from loghub_operator.api.v1alpha1 import LogHubConsumerGroup
from loghub_operator.logservice.group_state import GROUP_MISSING, ImplausibleAnswer, check_numbers
from loghub_operator.logservice.shard_cursors import CursorCache, CursorQuery, Name, RunAll, ShardCursors
from loghub_operator.model.observed import OtherLogstore

# After the group itself has been read; with it, a reconcile stays below the bound of liveness.
BOUND_S = 10.0


def retry_place(resource: LogHubConsumerGroup) -> Name | None:
    """Endpoint, project and logstore in which logs of the group wait to be retried."""
    spec, logstore = resource.spec, resource.spec.pipeline.retry_logstore
    return None if logstore is None else (spec.endpoint, spec.project, logstore)


def dead_letter_place(resource: LogHubConsumerGroup) -> Name | None:
    """Endpoint, project and logstore of the dead letter; None if it is a folder, or if there is none."""
    dead_letter, spec = resource.spec.pipeline.on_failure.dead_letter, resource.spec
    target = None if dead_letter is None else dead_letter.logstore
    return None if target is None else (spec.endpoint, target.project or spec.project, target.name)


def read_retries(
    client: LogHub,
    resource: LogHubConsumerGroup,
    place: Name,
    *,
    cache: CursorCache,
    run_all: RunAll,
    clock: Clock,
) -> OtherLogstore:
    """The log groups that the consumers of the retry logstore have left. Never raises for a response."""
    is_subscription = resource.spec.subscription is not None
    group = retry_group(resource.group, resource.spec.logstore, is_subscription=is_subscription)
    query = CursorQuery(client, place, clock=clock, cache=cache, run_all=run_all, bound_s=BOUND_S)
    try:
        return _left(client, place, query, _checkpoints(client, place[2], group))
    except (LogHubException, ImplausibleAnswer) as error:
        return OtherLogstore(error=f"retry logstore {place[2]}: {_text(error)}")


def read_dead_letter(
    client: LogHub, place: Name, *, cache: CursorCache, run_all: RunAll, clock: Clock
) -> OtherLogstore:
    """The log groups that the logstore holds, of all writers. Never raises for a response."""
    query = CursorQuery(client, place, clock=clock, cache=cache, run_all=run_all, bound_s=BOUND_S)
    try:
        return _left(client, place, query, {})
    except (LogHubException, ImplausibleAnswer) as error:
        return OtherLogstore(error=f"dead-letter logstore {place[2]}: {_text(error)}")


def _left(client: LogHub, place: Name, query: CursorQuery, saved: Mapping[int, int | None]) -> OtherLogstore:
    shards = client.list_shards(place[2])
    check_numbers([one.shard for one in shards])
    cursors = query.cursors(shards, saved)
    numbers = [_between(cursors[one.shard], saved.get(one.shard)) for one in shards]
    counts = [one for one in numbers if one is not None]
    if len(counts) < len(numbers):
        return OtherLogstore(
            error=f"logstore {place[2]}: its cursors were not returned within {BOUND_S:.0f} s"
        )
    return OtherLogstore(log_groups=sum(counts))


def _between(cursors: ShardCursors, saved: int | None) -> int | None:
    """What expired is gone, whether it was read or not."""
    if cursors.end is None:
        return None
    if saved is not None and saved >= cursors.end:
        return 0
    if cursors.begin is None:
        return None
    return max(0, cursors.end - max(cursors.begin, saved or 0))


def _checkpoints(client: LogHub, logstore: str, group: str) -> dict[int, int | None]:
    """If the group does not exist yet, it will begin at the oldest log group."""
    try:
        saved = client.get_checkpoints(logstore, group)
    except LogHubError as error:
        if error.code in GROUP_MISSING:
            return {}
        raise
    return {one.shard: wire_cursor.decode(one.cursor) if one.cursor else None for one in saved}


def _text(error: Exception) -> str:
    """Without the request ID, which differs each time."""
    if isinstance(error, LogHubError):
        return f"{error.code}, HTTP {error.status}: {error.message}"
    return str(error)
