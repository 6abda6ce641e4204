"""What is remembered of one group from one round to the next, to decide on its workers.

What for: one frozen value, `ObservedState.memory` in and `Plan.memory` out; an executor only keeps it.
What it must not know: how a number follows from it. Read next: `loghub_operator.plan.scaling.rates`.

It is lost when the operator is restarted: rates are then unknown for a while and the decision
is held, never wrong. It is of one `Stream`; whoever reads another one begins without it. Everything
in it is bounded: samples by `SampleWindow`, windows by the number of workers there can be. All ``*_unix_s``
are unix seconds; a clock that was set back empties it.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from typing import Literal

MOST_SAMPLES = 32
LONGEST_GAP_S = 120.0  # nothing is known of the time between two samples further apart


@dataclass(frozen=True, slots=True, kw_only=True)
class SampleWindow:
    """How long samples are kept, and how far apart. ``cycle_s``: from one checkpoint to the next
    of a worker that keeps up; the window holds several of them."""

    cycle_s: float

    @property
    def window_s(self) -> float:
        return max(60.0, 6.0 * self.cycle_s)

    @property
    def apart_s(self) -> float:
        return self.window_s / (MOST_SAMPLES - 2)

    @property
    def gap_s(self) -> float:
        return max(LONGEST_GAP_S, self.window_s)


@dataclass(frozen=True, slots=True, kw_only=True)
class Stream:
    """What a memory is of: one object, and where it reads. An object that was made anew under the
    same name, or that reads at another endpoint, has other cursors and another load."""

    uid: str
    endpoint: str  # its URL
    project: str
    logstore: str
    group: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ShardMark:
    """One shard at one moment, in cursors; None: not known. ``holder`` is "" while nobody holds
    it or it is on its way. ``consumed_at_unix_s`` is when the log service took the checkpoint."""

    shard: int
    written: int | None
    consumed: int | None
    consumed_at_unix_s: float | None
    lag: int | None
    holder: str
    read_only: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Sample:
    """All shards at one moment, by number."""

    at_unix_s: float
    marks: tuple[ShardMark, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerRate:
    """Log groups per second that one worker consumes, smoothed."""

    per_s: float
    at_unix_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Since:
    """Something named has been so since then."""

    name: str
    at_unix_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Peak:
    """A number, and when it was seen last."""

    value: int
    at_unix_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Window:
    """The largest number of a sliding time: each peak is later and smaller than the one before it."""

    since_unix_s: float | None = None  # numbers are known from then on without a gap
    peaks: tuple[Peak, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class ScaleUpTrial:
    """The last step up, until it is known whether it helped. ``failed_unix_s``: it did not."""

    at_unix_s: float
    before: int
    after: int
    consumed_before_per_s: float
    assignable: int
    arrival_per_s: float
    failed_unix_s: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Refusal:
    """The log service said no to a change of shards, in its words, the last of so many times."""

    of: Literal["split", "merge"]
    words: str
    at_unix_s: float
    times: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ScalingState:
    """The whole of it; the default knows nothing, of no stream."""

    of: Stream | None = None
    samples: tuple[Sample, ...] = ()
    rate: WorkerRate | None = None
    ready: tuple[Since, ...] = ()  # the workers that are ready, since when
    unready_unix_s: float | None = None  # a worker that should be ready is not, since then
    high: Window = field(default_factory=Window)  # for stepping down
    low: Window = field(default_factory=Window)  # for stepping up, negated
    goal: Window = field(default_factory=Window)  # how far to step up, negated
    busy_unix_s: float | None = None  # there was something to do, last
    workers: int | None = None  # asked for in the last round
    trial: ScaleUpTrial | None = None
    unhelpful: int = 0  # steps up in a row that did not help
    hot: tuple[Since, ...] = ()  # shards that are too busy for one worker
    cold: tuple[Since, ...] = ()  # neighbours "a+b" that one shard would do for
    refusals: tuple[Refusal, ...] = ()  # one of a kind


NOTHING = ScalingState()


def with_sample(samples: tuple[Sample, ...], new: Sample, pace: SampleWindow) -> tuple[Sample, ...]:
    """The newest always counts; older ones stay apart and within the window."""
    if samples and not 0.0 < new.at_unix_s - samples[-1].at_unix_s <= pace.gap_s:
        return (new,)
    if samples:
        new = replace(new, marks=_shared(samples[-1].marks, new.marks))
    kept = samples[:-1] if _close(samples, pace) else samples
    oldest = new.at_unix_s - pace.window_s
    recent = tuple(one for one in kept if one.at_unix_s >= oldest) or kept[-1:]
    return (*recent, new)[-MOST_SAMPLES:]


def _close(samples: tuple[Sample, ...], pace: SampleWindow) -> bool:
    """The last one stands so near to the one before that the next one takes its place."""
    return len(samples) > 1 and samples[-1].at_unix_s - samples[-2].at_unix_s < pace.apart_s


def _shared(old: tuple[ShardMark, ...], new: tuple[ShardMark, ...]) -> tuple[ShardMark, ...]:
    """Equal marks are one object: thousands of shards at rest cost little."""
    known = {mark.shard: mark for mark in old}
    made = tuple(known[mark.shard] if known.get(mark.shard) == mark else mark for mark in new)
    return old if made == old else made


def track_since(before: tuple[Since, ...], names: Iterable[str], now: float) -> tuple[Since, ...]:
    """Those that are so now, each since it first was; a time to come counts as now."""
    known = {one.name: one.at_unix_s for one in before}
    return tuple(Since(name=name, at_unix_s=min(now, known.get(name, now))) for name in sorted(names))
