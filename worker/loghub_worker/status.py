"""The worker's status, from its membership.

The status file and the metrics are both built from it, so the live view, the operator's conditions and a
scraper show the same values. `loghub.worker_contract.WorkerStatus` describes its fields.
"""

from collections.abc import Mapping
from typing import Literal

from loghub.wire.cursor import encode
from loghub.worker_contract import ShardProgress, WorkerStatus
from loghub_worker.log_service import ServiceError
from loghub_worker.membership.state import HeldShard, Membership, MemberState, Phase, ShutdownMode

PhaseWord = Literal["starting", "running", "fenced", "draining", "left", "failed"]


def phase_of(consumer: Membership) -> PhaseWord:
    """The phase of the worker."""
    if consumer.standing is MemberState.LEFT:
        return "left"
    if consumer.goal is not ShutdownMode.SERVE:
        return "draining"
    words: dict[MemberState, PhaseWord] = {
        MemberState.JOINING: "starting",
        MemberState.MEMBER: "running",
        MemberState.FENCED: "fenced",
    }
    return words[consumer.standing]


def status_of(
    consumer: Membership,
    *,
    name: str,
    now: float,
    unix_s: float,
    trouble: ServiceError,
    rows: int,
    oldest_unix_s: Mapping[int, float | None],
) -> WorkerStatus:
    """The status at one moment; `now` is monotonic."""
    return WorkerStatus(
        consumer=name,
        phase=phase_of(consumer),
        reason=trouble.reason,
        # Messages of other programs may contain lone surrogates, which JSON cannot represent.
        message=trouble.message.encode(errors="replace").decode(),
        rows_written=rows,
        last_heartbeat_age_s=None if consumer.last_good_s is None else now - consumer.last_good_s,
        shards=[progress_of(s, lag_of(oldest_unix_s, s.shard, unix_s=unix_s)) for s in consumer.shards],
        written_at=unix_s,
    )


def lag_of(oldest_unix_s: Mapping[int, float | None], shard: int, *, unix_s: float) -> float | None:
    """Seconds since the service received the log group to be read next; 0 if none is left, None if that is
    not known."""
    if shard not in oldest_unix_s:
        return None
    received_s = oldest_unix_s[shard]
    return 0.0 if received_s is None else max(0.0, unix_s - received_s)


def progress_of(shard: HeldShard, lag_s: float | None) -> ShardProgress:
    """The progress of one held shard, with cursors as on the wire."""
    return ShardProgress(
        shard=shard.shard,
        cursor=None if shard.position is None else encode(shard.position),
        checkpoint=None if shard.saved is None else encode(shard.saved),
        logs=shard.logs,
        lag_s=lag_s,
        draining=shard.phase in (Phase.DRAINING, Phase.DRAINED),
    )
