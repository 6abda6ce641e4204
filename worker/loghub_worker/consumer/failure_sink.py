"""The failure policy of a consumer, and where it puts logs."""

from collections.abc import Callable
from dataclasses import dataclass, replace

from loghub.client.port import LogHub
from loghub.clock import Clock
from loghub.processor_settings import RetryLogstore
from loghub_worker.consumer.connection import connect
from loghub_worker.consumer.running_batches import RunningBatches
from loghub_worker.consumer.settings import ConsumerSettings
from loghub_worker.consumer.shard_journals import ShardJournals
from loghub_worker.consumer.shard_table import ShardTable
from loghub_worker.consumer.worker_options import WorkerOptions
from loghub_worker.failure.dead_letter import DeadLetterTarget, LogstoreTarget, make_target
from loghub_worker.failure.failure_policy import FailurePolicy
from loghub_worker.failure.failure_report import FailureReport
from loghub_worker.failure.retry_logstore import RETRY_PREFIX
from loghub_worker.failure.skip_limits import failure_settings

HANG_S = 60.0  # for pauses of the policy after a batch that hung, which a consumer does not cancel


@dataclass(frozen=True, slots=True, kw_only=True)
class FailureSink:
    """The policy, which all shards of a consumer share, the dead letter, and the retry logstore. Only a
    worker has `journals` and `running`."""

    policy: FailurePolicy
    target: DeadLetterTarget | None
    retry: RetryLogstore | None = None
    retry_target: DeadLetterTarget | None = None
    clients: tuple[LogHub, ...] = ()
    journals: ShardJournals | None = None
    running: RunningBatches | None = None

    def forget(self) -> None:
        """The consumer ends in order, so that nothing must be known of the attempts later."""
        if self.journals is not None:
            self.journals.close()

    def close(self) -> None:
        for client in self.clients:
            client.close()

    def check(self) -> None:
        """Raises `OSError` if nothing can be written."""
        if self.target is not None:
            self.target.check()

    def report(self, table: ShardTable) -> FailureReport:
        """What concerns the present places of the shards."""
        slots = table.working()
        with table.lock:
            positions = {shard: slot.flow.position for shard, slot in slots.items()}
            alone = (one for one in self.policy.failing if one.isolated)
            failing = [one for one in alone if positions.get(one.shard) == one.begin]
            waiting = (slot.waiting for slot in slots.values() if slot.waiting is not None)
            failing += [one.failing for one in waiting if not one.logs.is_gone]
            return FailureReport(
                failing=tuple(failing),
                skips=self.policy.skips.recent_skips(table.clock.monotonic_s()),
                totals={shard: replace(totals) for shard, totals in self.policy.totals.items()},
                dead_lettered=self.target is not None,
            )


def make_failure_sink(
    settings: ConsumerSettings, worker: WorkerOptions | None, clock: Clock, *, random: Callable[[], float]
) -> FailureSink | None:
    """None with the policy ``Retry`` where processors run in this process, since nothing is divided or
    settled. Raises
    `OSError` if the journals have no place."""
    if settings.on_failure.policy == "Retry" and worker is None:
        return None
    hang_s = HANG_S if worker is None else worker.batch_timeout_s
    rules = failure_settings(settings.on_failure, batch_timeout_s=hang_s)
    if settings.is_of_retries:
        rules = replace(rules, max_consecutive=None)
    journals = None
    if worker is not None:
        rules = replace(rules, restart_s=worker.restart_s)
    if worker is not None and worker.state_dir is not None:
        journals = ShardJournals(worker.state_dir)
    policy = FailurePolicy(rules, random=random)
    if worker is not None and journals is not None:
        journals.restore(policy, ended_alone=worker.running.ended_alone, now=clock.monotonic_s())
    clients: list[LogHub] = []

    def connected(project: str) -> LogHub:
        clients.append(connect(settings, project=project))
        return clients[-1]

    target, retry_target, retry = None, None, settings.retry
    if settings.on_failure.dead_letter is not None:
        target = make_target(settings.on_failure.dead_letter, settings.origin, connected)
    if retry is not None:
        client = connected(settings.project)
        retry_target = LogstoreTarget(client, retry.logstore, settings.origin, prefix=RETRY_PREFIX)
    return FailureSink(
        policy=policy,
        target=target,
        retry=retry,
        retry_target=retry_target,
        clients=tuple(clients),
        journals=journals,
        running=None if worker is None else worker.running,
    )
