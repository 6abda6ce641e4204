"""A suspended machine's leases run out."""

import time

import pytest

from loghub.clock import SystemClock


def test_time_of_a_suspension_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    # As the kernel answers after 3600 s of which the machine slept all but ten.
    readings = {time.CLOCK_MONOTONIC: 10.0}
    readings[getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)] = 3600.0
    monkeypatch.setattr(time, "clock_gettime", readings.__getitem__)
    monkeypatch.setattr(time, "monotonic", lambda: 10.0)
    assert SystemClock().monotonic_s() == 3600.0
