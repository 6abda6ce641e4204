"""Pauses of the process, as both registries of groups notice them."""

from loghub_service.durable_steps import PauseDetector
from tests.loghub_service.engines import ManualClock

INTERVAL_S = 1.0


def test_only_a_tick_that_is_late_by_more_than_an_interval_is_a_pause() -> None:
    clock = ManualClock()
    detector = PauseDetector(clock, INTERVAL_S)
    for passed_s, paused_s in ((1.0, 0.0), (2.0, 0.0), (2.5, 1.5), (1.0, 0.0)):
        clock.now_s += passed_s
        assert detector.tick() == paused_s


def test_the_time_before_it_begins_is_no_pause() -> None:
    clock = ManualClock()
    detector = PauseDetector(clock, INTERVAL_S)
    clock.now_s += 60.0  # a start that reads much data
    detector.begin()
    clock.now_s += INTERVAL_S
    assert detector.tick() == 0.0
