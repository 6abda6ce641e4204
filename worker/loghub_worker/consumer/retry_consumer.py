"""The consumer of the retry logstore, which runs next to that of the logstore, with processors of its own."""

import threading
from collections.abc import Callable
from dataclasses import replace
from typing import Generic, Protocol, TypeVar

from loghub.processor_settings import retry_group
from loghub_worker.consumer.settings import ConsumerSettings
from loghub_worker.failure.failure_report import FailureReport
from loghub_worker.log_context import inherited

Error = TypeVar("Error", covariant=True)


class Runnable(Protocol[Error]):
    """What is used of a consumer."""

    def run(self) -> None: ...
    def wakeup(self) -> None: ...
    def leave(self) -> None: ...
    def is_own_thread(self) -> bool: ...
    def errors(self) -> tuple[Error, ...]: ...
    def failure_report(self) -> FailureReport: ...


def retry_settings(settings: ConsumerSettings) -> ConsumerSettings | None:
    """The settings of the consumer of the retry logstore; None if there is none, or if these are they."""
    if settings.retry is None or settings.is_of_retries:
        return None
    return replace(
        settings,
        logstore=settings.retry.logstore,
        consumer_group=retry_group(settings.consumer_group, settings.logstore),
        retries_of=settings.origin,
        start_position="begin",
        last_initial_shard=None,
        end_time_s=None,
        create_group=True,
        in_order=False,
    )


class RetryConsumer(Generic[Error]):
    """Runs a consumer in a thread."""

    def __init__(self, consumer: Runnable[Error], fail: Callable[[BaseException], None]) -> None:
        self._consumer = consumer
        self._fail = fail
        self._thread = threading.Thread(target=inherited(self._run), name="retries", daemon=True)

    def errors(self) -> tuple[Error, ...]:
        return self._consumer.errors()

    def start(self) -> None:
        self._thread.start()

    def is_own_thread(self) -> bool:
        return self._consumer.is_own_thread()

    def failure_report(self) -> FailureReport:
        return self._consumer.failure_report()

    def stop(self, *, leaves: bool) -> None:
        """Let it end; its shards drain meanwhile. With `leaves` it leaves the group in any case."""
        if leaves:
            self._consumer.leave()
        else:
            self._consumer.wakeup()

    def join(self) -> None:
        if self._thread.is_alive():
            self._thread.join()

    def _run(self) -> None:
        try:
            self._consumer.run()
        except BaseException as failure:  # noqa: BLE001 - raised by the consumer of the logstore
            self._fail(failure)
