"""What a worker reports of the state of a stateful pipeline: in its status, and in its metrics."""

from prometheus_client.registry import CollectorRegistry

from loghub.contract.worker import KeptState
from loghub_consumer.log_service import ReportedError
from loghub_consumer.membership.membership import Membership, MembershipTimings
from loghub_worker.metrics import Figures, answer
from loghub_worker.state.ledger import StateFigures
from loghub_worker.status import Moment, QueryProgress, ShardReadings, member_of, status_of


def test_the_state_of_a_stateful_pipeline_is_in_the_status_and_the_metrics() -> None:
    figures = StateFigures(rows=5, bytes=600, watermark_ms=1500, late_rows=3, late_unix_s=940.0)
    status = status_of(
        member_of(Membership(MembershipTimings(interval_s=5, timeout_s=30, margin_s=4))),
        name="w-0",
        now=Moment(monotonic_s=103, unix_s=1000.0),
        error=ReportedError(),
        query=QueryProgress(batch_hung_after_s=630, state=figures),
        readings=ShardReadings(),
    )
    assert status.state == KeptState(rows=5, bytes=600, watermark_s=1.5, late_rows=3, late_age_s=60.0)
    registry = CollectorRegistry()
    registry.register(Figures(lambda: status, tuple))
    text = answer("/metrics", registry, status, now_unix_s=1000)[2].decode()
    assert "loghub_worker_state_rows 5.0" in text
    assert "loghub_worker_state_bytes 600.0" in text
    assert "loghub_worker_watermark_timestamp_seconds 1.5" in text
    assert "loghub_worker_rows_dropped_as_late_total 3.0" in text
