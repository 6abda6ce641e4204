"""The failure handler over several processes of a worker, which have nothing in common but the journal."""

from pathlib import Path

import pytest

from loghub_consumer.batch_plan import Range
from loghub_consumer.exchange_files import ExchangeFiles
from loghub_consumer.failure.handler import FailureHandler, SettledAs
from loghub_consumer.failure.policy import HOUR_S, FailureSettings, Policy
from tests.support import HandClock


def settings(**limits: int) -> FailureSettings:
    values = {"max_attempts": 1, "max_consecutive": 1000, "max_per_hour": 1000} | limits
    return FailureSettings(policy=Policy.SKIP, batch_timeout_s=600.0, **values)


class EndingWorker:
    """A worker with one shard, whose process ends during every batch that reads a log group."""

    def __init__(self, folder: Path, failure_settings: FailureSettings) -> None:
        self._folder = folder
        self._settings = failure_settings
        self.clock = HandClock(100.0)
        self.skipped: list[int] = []

    def run_process(self) -> None:
        """Start a process, wait as long as it says, and let it skip until it ends in a batch."""
        handler = FailureHandler(
            self._settings,
            exchange=ExchangeFiles(self._folder),
            clock=self.clock,
            journal=self._folder / "attempts.json",
            dead_letters=None,
            random=lambda: 1.0,
        )
        while True:
            position = len(self.skipped)
            retry = ExchangeFiles(self._folder).retries().shards.get(0)
            if retry is not None and retry.begin == position and retry.not_before_s is not None:
                self.clock.now = max(self.clock.now, retry.not_before_s)
            failing = handler.begin((Range(0, position, position + 1),))
            if failing is None:
                return
            self.skipped.append(position)
            handler.settled(failing, SettledAs.DONE)
            handler.end()


@pytest.mark.parametrize("limit", ["max_consecutive", "max_per_hour"])
def test_the_limits_of_skips_outlive_the_processes_that_the_logs_end(tmp_path: Path, limit: str) -> None:
    worker = EndingWorker(tmp_path, settings(**{limit: 3}))
    while worker.clock.now < 100 + HOUR_S:
        worker.run_process()
    assert worker.skipped == [0, 1, 2]


def test_skips_of_the_hour_before_do_not_count_in_another_process_either(tmp_path: Path) -> None:
    worker = EndingWorker(tmp_path, settings(max_per_hour=3))
    while worker.clock.now < 100 + 6 * HOUR_S:
        worker.run_process()
    assert len(worker.skipped) > 6
