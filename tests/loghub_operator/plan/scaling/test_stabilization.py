"""The stabilization windows, as values."""

from hypothesis import given
from hypothesis import strategies as st

from loghub_operator.model.memory import NOTHING, Window
from loghub_operator.plan.scaling.load import ReplicaRange
from loghub_operator.plan.scaling.stabilization import Spans, largest, pushed, stabilize, with_replica_range

SPANS = Spans(up_s=30.0, down_s=300.0, gap_s=120.0)


def test_the_largest_value_of_a_sliding_window() -> None:
    window = Window()
    for now, value in ((0, 3), (10, 5), (20, 2), (30, 4), (40, 1)):
        window = pushed(window, value, now=float(now), span_s=30.0, gap_s=60.0)
    assert largest(window, now=40.0, span_s=30.0) == 5
    window = pushed(window, 1, now=45.0, span_s=30.0, gap_s=60.0)
    assert largest(window, now=45.0, span_s=30.0) == 4
    assert largest(window, now=45.0, span_s=46.0) is None  # not known for so long
    assert largest(pushed(window, 1, now=200.0, span_s=30.0, gap_s=60.0), now=200.0, span_s=30.0) is None


@given(st.lists(st.integers(0, 20), min_size=1, max_size=300))
def test_a_window_is_bounded_and_returns_the_maximum(values: list[int]) -> None:
    window = Window()
    for now, value in enumerate(values):
        window = pushed(window, value, now=float(now), span_s=50.0, gap_s=60.0)
    assert len(window.peaks) <= 21
    end = len(values) - 1
    maximum = largest(window, now=float(end), span_s=min(50.0, float(end)))
    assert maximum == max(values[max(0, end - 50) :])


def after(ranges: list[ReplicaRange], *, current: int, every_s: float = 10.0) -> tuple[int, bool]:
    state, now = NOTHING, 0.0
    for replica_range in ranges:
        now += every_s
        state = with_replica_range(state, replica_range, now=now, spans=SPANS, up=True)
    stabilized = stabilize(state, ranges[-1], current=current, now=now, spans=SPANS)
    return stabilized.workers, stabilized.stabilizing


def test_scale_up_only_after_the_window_to_the_least_needed_throughout() -> None:
    assert after([ReplicaRange.exactly(5)] * 3, current=2) == (2, True)
    assert after([ReplicaRange.exactly(5)] * 4, current=2) == (5, False)
    assert after(
        [ReplicaRange.exactly(5), ReplicaRange.exactly(3), ReplicaRange.exactly(5), ReplicaRange.exactly(9)],
        current=2,
    ) == (
        3,
        False,
    )
    assert after(
        [ReplicaRange.exactly(5), ReplicaRange.exactly(2), ReplicaRange.exactly(5), ReplicaRange.exactly(9)],
        current=2,
    ) == (2, True)


def test_scale_down_only_after_the_window_to_the_most_needed_throughout() -> None:
    assert after([ReplicaRange.exactly(1)] * 30, current=4) == (4, True)
    assert after([ReplicaRange.exactly(1)] * 31, current=4) == (1, False)
    assert after(
        [*([ReplicaRange.exactly(1)] * 20), ReplicaRange.exactly(3), *([ReplicaRange.exactly(1)] * 20)],
        current=4,
    ) == (
        3,
        False,
    )


def test_between_low_and_high_the_number_is_kept() -> None:
    assert after([ReplicaRange(wanted=3, low=2, target=3, high=5)] * 50, current=4) == (4, False)
