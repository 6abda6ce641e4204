"""The failure policy of a consumer, and where it puts logs."""

from collections.abc import Callable
from dataclasses import dataclass

from loghub.client.port import LogHub
from loghub_worker.consumer.connection import connect
from loghub_worker.consumer.settings import ConsumerSettings
from loghub_worker.failure.dead_letter import DeadLetterTarget, LogstoreTarget, make_target
from loghub_worker.failure.failure_policy import FailurePolicy
from loghub_worker.failure.origin import Origin
from loghub_worker.failure.retry_logstore import RETRY_PREFIX, RetryLogstore
from loghub_worker.failure.skip_limits import failure_settings

HANG_S = 60.0  # for pauses of the policy after a batch that hung, which a consumer does not cancel


@dataclass(frozen=True, slots=True, kw_only=True)
class FailureSink:
    """The policy, which all shards of a consumer share, the dead letter, and the retry logstore."""

    policy: FailurePolicy
    target: DeadLetterTarget | None
    retry: RetryLogstore | None = None
    retry_target: DeadLetterTarget | None = None
    clients: tuple[LogHub, ...] = ()

    def close(self) -> None:
        for client in self.clients:
            client.close()

    def check(self) -> None:
        """Raises `OSError` if nothing can be written."""
        if self.target is not None:
            self.target.check()


def make_failure_sink(settings: ConsumerSettings, *, random: Callable[[], float]) -> FailureSink | None:
    """None with the policy ``Retry``, which settles nothing."""
    if settings.on_failure.policy == "Retry":
        return None
    policy = FailurePolicy(failure_settings(settings.on_failure, batch_timeout_s=HANG_S), random=random)
    origin = Origin(
        project=settings.project, logstore=settings.logstore, consumer_group=settings.consumer_group
    )
    clients: list[LogHub] = []

    def connected(project: str) -> LogHub:
        clients.append(connect(settings, project=project))
        return clients[-1]

    target, retry_target, retry = None, None, settings.retry
    if settings.on_failure.dead_letter is not None:
        target = make_target(settings.on_failure.dead_letter, origin, connected)
    if retry is not None:
        client = connected(settings.project)
        retry_target = LogstoreTarget(client, retry.logstore, origin, prefix=RETRY_PREFIX)
    return FailureSink(
        policy=policy, target=target, retry=retry, retry_target=retry_target, clients=tuple(clients)
    )
