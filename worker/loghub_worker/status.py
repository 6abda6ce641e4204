"""The worker's status, from its membership.

The status file and the metrics are both built from it, so the live view, the operator's conditions and a
scraper show the same values. `loghub.worker_contract.WorkerStatus` describes its fields.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from loghub.wire.cursor import encode
from loghub.worker_contract import ShardProgress, WorkerStatus
from loghub_worker.log_service import ReportedError
from loghub_worker.membership.membership import HeldShard, Membership, MemberState, ShardPhase, ShutdownMode

PhaseName = Literal["starting", "running", "fenced", "draining", "left", "failed"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Moment:
    """One moment on both clocks."""

    monotonic_s: float
    unix_s: float


def phase_of(membership: Membership) -> PhaseName:
    """The phase of the worker."""
    if membership.state is MemberState.LEFT:
        return "left"
    if membership.shutdown_mode is not ShutdownMode.SERVE:
        return "draining"
    names: dict[MemberState, PhaseName] = {
        MemberState.JOINING: "starting",
        MemberState.MEMBER: "running",
        MemberState.FENCED: "fenced",
    }
    return names[membership.state]


def status_of(
    membership: Membership,
    *,
    name: str,
    now: Moment,
    error: ReportedError,
    rows: int,
    oldest_unix_s: Mapping[int, float | None],
) -> WorkerStatus:
    """The status at one moment. `rows` is the number of rows written to the sink, and `oldest_unix_s` maps a
    shard to the time at which the log group to be read next was received."""
    last_s = membership.last_good_s
    return WorkerStatus(
        consumer=name,
        phase=phase_of(membership),
        reason=error.reason,
        # Messages of other programs may contain lone surrogates, which JSON cannot represent.
        message=error.message.encode(errors="replace").decode(),
        rows_written=rows,
        last_heartbeat_age_s=None if last_s is None else now.monotonic_s - last_s,
        shards=[progress_of(s, lag_of(oldest_unix_s, s.shard, unix_s=now.unix_s)) for s in membership.shards],
        written_at=now.unix_s,
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
        draining=shard.phase in (ShardPhase.DRAINING, ShardPhase.DRAINED),
    )
