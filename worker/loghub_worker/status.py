"""The worker's status, from its membership; published once a second in the status file, and by the HTTP
server for metrics and probes.

The status file and the metrics are both built from it, so the live view, the operator's conditions and a
scraper show the same values. `loghub.contract.worker.WorkerStatus` describes its fields.
"""

import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import partial

import msgspec
import structlog

from loghub.atomic_file import replace_file
from loghub.clock import Clock
from loghub.contract.worker import (
    CONTRACT_VERSION,
    FailingShard,
    IncompleteState,
    KeptState,
    ShardProgress,
    SkippedLogGroups,
    WorkerPhaseName,
    WorkerStatus,
    error_class,
)
from loghub.wire.cursor import encode
from loghub_consumer.failure.handler import FailureReport
from loghub_consumer.log_service import ReportedError
from loghub_consumer.membership.membership import (
    MemberShard,
    Membership,
    MemberState,
    ShardPhase,
    ShutdownMode,
)
from loghub_consumer.subscription_session import Session, Stage
from loghub_worker.metrics import Counter, Figures, MetricsServer
from loghub_worker.settings import WorkerSettings
from loghub_worker.state.ledger import ShardStateRecord, StateFigures

log = structlog.get_logger()


STATUS_S = 1.0  # its age shows whether a worker hangs; a write is a file of a few kilobytes


class StatusPublisher:
    """Publishes what `status` and `counters` return."""

    def __init__(
        self,
        settings: WorkerSettings,
        clock: Clock,
        status: Callable[[], WorkerStatus],
        counters: Callable[[], tuple[Counter, ...]],
    ) -> None:
        self._settings = settings
        self._clock = clock
        self._status = status
        self._counters = counters
        self._ended = threading.Event()
        self._written = status()  # the status that was written last

    @contextmanager
    def publishing(self) -> Iterator[None]:
        """Publish until the end, and once more then."""
        metrics = self._serve_metrics()
        self._write()
        ticker = threading.Thread(target=self._tick, name="status", daemon=True)
        ticker.start()
        try:
            yield
        finally:
            self._ended.set()
            ticker.join()
            self._write()
            if metrics is not None:
                metrics.stop()

    def _tick(self) -> None:
        while not self._ended.wait(STATUS_S):
            self._write()

    def _write(self) -> None:
        self._written = self._status()
        try:
            replace_file(self._settings.status_file, msgspec.json.encode(self._written))
        except OSError as error:  # a full disk must not end the worker; `written_at` shows that it is stale
            log.warning("status file not written", message=str(error))

    def _serve_metrics(self) -> MetricsServer | None:
        if self._settings.metrics_address is None:
            return None
        figures = Figures(self._status, self._counters)
        written = partial(getattr, self, "_written")
        server = MetricsServer(self._settings.metrics_address, figures, written, self._clock.unix_s)
        server.start()
        return server


@dataclass(frozen=True, slots=True, kw_only=True)
class Moment:
    """One moment on both clocks."""

    monotonic_s: float
    unix_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class ShardReadings:
    """Measurements of the held shards. `oldest_unix_s` maps a shard to the time at which the log group to be
    read next was received, `beyond_end` to the log groups by which its position lies beyond its end, and
    `continued` a shard that had no checkpoint to where it continued by the sink's record."""

    oldest_unix_s: Mapping[int, float | None] = field(default_factory=dict)
    beyond_end: Mapping[int, int] = field(default_factory=dict)
    continued: Mapping[int, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class QueryProgress:
    """What the query has done and does."""

    rows: int = 0  # written to the sink, or logs that a processor has read
    batch_age_s: float | None = None  # of the running batch
    batch_hung_after_s: float
    failures: FailureReport = field(default_factory=FailureReport)
    incomplete: Mapping[int, ShardStateRecord] = field(
        default_factory=dict
    )  # of a stateful pipeline, by shard
    state: StateFigures | None = None  # of a stateful pipeline


@dataclass(frozen=True, slots=True, kw_only=True)
class MemberReport:
    """What a worker is in its group or subscription. `heard_s` is when the last answered call was sent, in
    monotonic seconds; None: before the first."""

    phase: WorkerPhaseName
    heard_s: float | None
    shards: tuple[MemberShard, ...]


def member_of(membership: Membership) -> MemberReport:
    """The member of a consumer group."""
    return MemberReport(phase=phase_of(membership), heard_s=membership.last_good_s, shards=membership.shards)


def member_of_subscription(session: Session) -> MemberReport:
    """The consumer of a subscription, in which shards have no positions."""
    phases: dict[Stage, WorkerPhaseName] = {
        Stage.SERVING: "running" if session.has_joined else "starting",
        Stage.ENDING: "draining",
        Stage.LEFT: "left",
    }
    was_heard = session.has_joined or session.heard_s
    return MemberReport(
        phase="fenced" if session.is_fenced else phases[session.stage],
        heard_s=session.heard_s if was_heard else None,
        shards=tuple(replace(shard, position=None) for shard in session.shards),
    )


def phase_of(membership: Membership) -> WorkerPhaseName:
    """The phase of the worker."""
    if membership.state is MemberState.LEFT:
        return "left"
    if membership.shutdown_mode is not ShutdownMode.SERVE:
        return "draining"
    names: dict[MemberState, WorkerPhaseName] = {
        MemberState.JOINING: "starting",
        MemberState.MEMBER: "running",
        MemberState.FENCED: "fenced",
    }
    return names[membership.state]


def status_of(
    member: MemberReport,
    *,
    name: str,
    now: Moment,
    error: ReportedError,
    query: QueryProgress,
    readings: ShardReadings,
) -> WorkerStatus:
    """The status at one moment."""
    last_s = member.heard_s
    return WorkerStatus(
        consumer=name,
        phase=member.phase,
        reason=error.reason,
        # Messages of other programs may contain lone surrogates, which JSON cannot represent.
        message=error.message.encode(errors="replace").decode(),
        rows_written=query.rows,
        last_heartbeat_age_s=None if last_s is None else now.monotonic_s - last_s,
        shards=[progress_of(shard, readings, unix_s=now.unix_s) for shard in member.shards],
        written_at=now.unix_s,
        batch_age_s=query.batch_age_s,
        batch_hung_after_s=query.batch_hung_after_s,
        failing=failing_shards(query.failures),
        skipped=skipped_log_groups(query.failures),
        incomplete=[
            IncompleteState(shard=shard, cursor=encode(state.since), why=state.why)
            for shard, state in query.incomplete.items()
        ],
        state=None if query.state is None else kept_state(query.state, unix_s=now.unix_s),
        contract_version=CONTRACT_VERSION,
    )


def kept_state(figures: StateFigures, *, unix_s: float) -> KeptState:
    """The current state of a stateful pipeline."""
    return KeptState(
        rows=figures.rows,
        bytes=figures.bytes,
        watermark_s=figures.watermark_ms / 1000 if figures.watermark_ms else None,
        late_rows=figures.late_rows,
        late_age_s=None if figures.late_unix_s is None else max(0.0, unix_s - figures.late_unix_s),
        is_ahead=figures.is_ahead,
    )


def failing_shards(failures: FailureReport) -> list[FailingShard]:
    """The shards that wait at one log group, with cursors as on the wire."""
    return [
        FailingShard(
            shard=failing.shard,
            cursor=encode(failing.begin),
            state=failing.state.value,
            reason=failing.failure.reason,
            attempts=failing.attempts,
            error=error_class(failing.failure.message),
        )
        for failing in failures.failing
    ]


def skipped_log_groups(failures: FailureReport) -> list[SkippedLogGroups]:
    """What was skipped or dead-lettered within the last hour, with cursors as on the wire."""
    return [
        SkippedLogGroups(
            shard=skip.shard,
            log_groups=skip.log_groups,
            last_cursor=encode(skip.last_cursor),
            dead_lettered=failures.dead_lettered,
        )
        for skip in failures.skips
    ]


def lag_of(oldest_unix_s: Mapping[int, float | None], shard: int, *, unix_s: float) -> float | None:
    """Seconds since the service received the log group to be read next; 0 if there is none, None if that is
    not known."""
    if shard not in oldest_unix_s:
        return None
    received_s = oldest_unix_s[shard]
    return 0.0 if received_s is None else max(0.0, unix_s - received_s)


def progress_of(shard: MemberShard, readings: ShardReadings, *, unix_s: float) -> ShardProgress:
    """The progress of one held shard, with cursors as on the wire."""
    return ShardProgress(
        shard=shard.shard,
        cursor=None if shard.position is None else encode(shard.position),
        checkpoint=None if shard.saved is None else encode(shard.saved),
        logs=shard.logs,
        lag_s=lag_of(readings.oldest_unix_s, shard.shard, unix_s=unix_s),
        draining=shard.phase in (ShardPhase.DRAINING, ShardPhase.DRAINED),
        beyond_end=readings.beyond_end.get(shard.shard, 0),
        sink_cursor=encode(readings.continued[shard.shard]) if shard.shard in readings.continued else None,
    )
