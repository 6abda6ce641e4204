"""Turns a worker's own status into the evidence from which the states of shards are inferred.

Used only where the log service does not report the states (docs/shard-states.md 4), the same in a cluster and
for `loghub up`. A status is evidence only of what its worker holds as a member of the group. A worker that is
no member may still hold shards by its name until its session times out, and it does not know which; so it has
no report until then.
"""

from loghub.domain.state_inference import WorkerReport
from loghub.worker_contract import STATUS_FRESH_S, WorkerStatus


def report_of(
    status: WorkerStatus | None, *, consumer: str, age_s: float, timeout_s: float
) -> WorkerReport | None:
    """The report of this consumer; None if its status proves nothing.

    ``age_s`` is the age of the status by the clock of the machine that wrote it, negative if that was set
    back. ``timeout_s`` is the group's at the log service. A worker that shuts down holds its shards until it
    releases them: the log service has not assigned them to another consumer, so they are not in transfer.
    """
    if status is None or status.consumer != consumer or abs(age_s) > STATUS_FRESH_S:
        return None
    if status.last_heartbeat_age_s is None or status.phase == "failed":
        return None  # it has not joined, or its process ends
    if status.last_heartbeat_age_s + age_s >= timeout_s:
        return WorkerReport()  # whatever it lists: its session has expired, and with it every assignment
    if status.phase not in ("running", "draining"):
        return None
    held = frozenset(shard.shard for shard in status.shards)
    beyond_end = frozenset(one.shard for one in status.shards if one.beyond_end > 0)
    if status.phase == "draining":
        return WorkerReport(held=held, beyond_end=beyond_end)
    draining = frozenset(one.shard for one in status.shards if one.draining)
    return WorkerReport(held=held, draining=draining, beyond_end=beyond_end)
