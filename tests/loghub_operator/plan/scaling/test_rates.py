"""Rates from cursors: right while the cursors continue, unknown otherwise."""

from collections.abc import Sequence
from dataclasses import replace

import pytest

from loghub_operator.model.memory import (
    MAX_GAP_S,
    MAX_SAMPLES,
    Sample,
    SampleWindow,
    ShardMark,
    WorkerRate,
    with_sample,
)
from loghub_operator.plan.scaling.rates import (
    WARM_S,
    WorkerPace,
    arrival_per_s,
    consumed_per_s,
    series_by_shard,
    smoothed,
    worker_paces,
)

PACE = SampleWindow(cycle_s=2.0)
READY = {"access-0": 0.0}


def mark(
    written: int | None, consumed: int | None = 0, *, shard: int = 0, at: float | None = None
) -> ShardMark:
    lag = None if written is None or consumed is None else written - consumed
    return ShardMark(
        shard=shard,
        written=written,
        consumed=consumed,
        consumed_at_unix_s=at,
        lag=lag,
        holder="access-0",
        read_only=False,
    )


def sampled(*marks: tuple[float, ShardMark]) -> tuple[Sample, ...]:
    return tuple(Sample(at_unix_s=at, marks=(one,)) for at, one in marks)


def arrival(samples: Sequence[Sample]) -> float | None:
    return arrival_per_s(series_by_shard(samples)[0])


def consumed(samples: Sequence[Sample]) -> float | None:
    return consumed_per_s(series_by_shard(samples)[0])


def test_the_arrival_rate_does_not_depend_on_the_intervals() -> None:
    assert arrival(sampled((0, mark(0)), (1, mark(10)), (7, mark(70)), (10, mark(100)))) == 10.0


def test_a_single_or_short_observation_gives_no_rate() -> None:
    assert arrival(sampled((0, mark(0)))) is None
    assert arrival(sampled((0, mark(0)), (4, mark(400)))) is None


@pytest.mark.parametrize("jump", [5, 10**15, None], ids=["falls", "leaps", "unknown"])
def test_cursors_of_another_logstore_begin_a_new_series(jump: int | None) -> None:
    before = ((0.0, mark(1000)), (10.0, mark(1100)))
    after = [(20.0, mark(jump)), (24.0, mark(None if jump is None else jump + 40))]
    assert arrival(sampled(*before, *after)) is None
    if jump is not None:
        assert arrival(sampled(*before, *after, (30.0, mark(jump + 100)))) == 10.0


def test_a_new_shard_has_no_rate_yet_and_a_read_only_one_has_no_arrival() -> None:
    first = Sample(at_unix_s=0.0, marks=(mark(0),))
    both = Sample(at_unix_s=10.0, marks=(replace(mark(100), read_only=True), mark(50, shard=1)))
    pace = series_by_shard((first, both))
    assert arrival_per_s(pace[0]) == 0.0
    assert arrival_per_s(pace[1]) is None


def test_a_deleted_shard_has_no_series() -> None:
    both = Sample(at_unix_s=0.0, marks=(mark(0), mark(0, shard=1)))
    assert set(series_by_shard((both, Sample(at_unix_s=10.0, marks=(mark(1),))))) == {0}


def test_consumption_is_measured_by_the_times_of_the_checkpoints() -> None:
    """Observations are irregular; the log service reports when a checkpoint was saved."""
    pace = sampled((0, mark(900, 0, at=0.0)), (13, mark(900, 100, at=10.0)), (21, mark(900, 200, at=20.0)))
    assert consumed(pace) == 10.0


def test_without_checkpoint_times_consumption_is_measured_between_observations() -> None:
    assert consumed(sampled((0, mark(900, 0)), (10, mark(900, 100)), (20, mark(900, 200)))) == 10.0


@pytest.mark.parametrize("consumed_", [10, 5000], ids=["back", "beyond what there was"])
def test_a_checkpoint_that_was_reset_is_no_consumption(consumed_: int) -> None:
    before = ((0.0, mark(1000, 100)), (10.0, mark(1000, 200)))
    assert consumed(
        sampled(*before, (20.0, mark(6000 if consumed_ > 1000 else 1000, consumed_)))
    ) != pytest.approx(240)
    moved = sampled(
        *before, (20.0, replace(mark(1100, consumed_), lag=0)), (30.0, replace(mark(1100, consumed_), lag=0))
    )
    assert consumed(moved) == 0.0


def busy(*, lag: int, step: int, samples: int = 8, every_s: float = 5.0) -> tuple[Sample, ...]:
    """A worker that consumes ``step`` between two observations, and always has ``lag`` left."""
    times = [100.0 + n * every_s for n in range(samples)]
    return sampled(*((at, mark(n * step + lag, n * step, at=at)) for n, at in enumerate(times)))


def test_a_saturated_worker_shows_its_rate() -> None:
    assert worker_paces(busy(lag=500, step=50), READY, PACE) == (
        WorkerPace(worker="access-0", per_s=10.0, saturated=True),
    )


def test_a_worker_that_keeps_up_shows_only_a_lower_bound() -> None:
    """What it consumes is what arrives: two steps are left at most."""
    (pace,) = worker_paces(busy(lag=100, step=50), READY, PACE)
    assert (pace.per_s, pace.saturated) == (10.0, False)


def test_a_worker_is_measured_only_when_warm_and_with_unchanged_shards() -> None:
    samples = busy(lag=500, step=50)
    assert worker_paces(samples, {}, PACE) == ()
    assert worker_paces(samples, {"access-0": samples[-1].at_unix_s - WARM_S}, PACE) == ()
    moved = replace(samples[-2], marks=(replace(samples[-2].marks[0], holder="access-1"),))
    assert worker_paces((*samples[:-2], moved, samples[-1]), READY, PACE) == ()


def test_the_rate_follows_saturated_workers_and_is_never_below_an_observed_pace() -> None:
    def after(before: float | None, *, full: bool, pace: float, wait_s: float = 60.0) -> float | None:
        rate = None if before is None else WorkerRate(per_s=before, at_unix_s=0.0)
        rate_after = smoothed(rate, [WorkerPace(worker="w", per_s=pace, saturated=full)], at_unix_s=wait_s)
        return None if rate_after is None else rate_after.per_s

    assert after(None, full=True, pace=10.0) == 10.0
    assert after(None, full=False, pace=10.0) is None
    assert after(20.0, full=False, pace=10.0) == 20.0
    assert after(20.0, full=False, pace=30.0) == 30.0
    assert after(20.0, full=True, pace=10.0) == pytest.approx(13.7, abs=0.1)
    assert after(20.0, full=True, pace=10.0, wait_s=1e9) == 10.0


def test_samples_are_bounded_spaced_and_within_the_window() -> None:
    samples: tuple[Sample, ...] = ()
    for n in range(2000):
        samples = with_sample(samples, Sample(at_unix_s=n * 0.3, marks=(mark(n),)), PACE)
        assert len(samples) <= MAX_SAMPLES
    assert samples[-1].at_unix_s == pytest.approx(1999 * 0.3)
    assert samples[-1].at_unix_s - samples[0].at_unix_s == pytest.approx(PACE.window_s, abs=3.0)


@pytest.mark.parametrize("later", [-1.0, 0.0, MAX_GAP_S + 1.0])
def test_a_clock_set_back_or_a_long_gap_drops_earlier_samples(later: float) -> None:
    samples = with_sample((), Sample(at_unix_s=100.0, marks=(mark(0),)), PACE)
    new = Sample(at_unix_s=100.0 + later, marks=(mark(9),))
    assert with_sample(samples, new, PACE) == (new,)


def test_observations_further_apart_than_the_window_still_give_a_rate() -> None:
    samples = with_sample((), Sample(at_unix_s=0.0, marks=(mark(0),)), PACE)
    samples = with_sample(samples, Sample(at_unix_s=100.0, marks=(mark(500),)), PACE)
    assert arrival(samples) == 5.0


def test_equal_marks_are_one_object() -> None:
    samples = with_sample((), Sample(at_unix_s=0.0, marks=(mark(7),)), PACE)
    samples = with_sample(samples, Sample(at_unix_s=9.0, marks=(mark(7),)), PACE)
    assert samples[0].marks is samples[1].marks
