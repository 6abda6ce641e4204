"""What one reconcile of a group leaves for the next: for scaling, for drift, and what failed.

It is one frozen value, `ObservedState.memory` in and `Plan.memory` out; both loops only keep it. A restart of
the operator loses it: rates are then unknown for a while, and the decision is held back, never wrong.
`ScalingState` belongs to one `Stream`; a group that reads another stream starts without it. Everything is
bounded: samples by `SampleWindow`, windows by the number of workers there can be. All ``*_unix_s`` are unix
seconds; if the clock is set back, everything is dropped.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import ClassVar, Literal

from loghub_operator.model.revision import UNKNOWN, Revision


@dataclass(frozen=True, slots=True, kw_only=True, order=True)
class ObjectName:
    """An object of ours: in the namespace of its LogHubConsumerGroup, or the consumer group itself."""

    kind: str
    name: str

    def __str__(self) -> str:
        return f"{self.kind} {self.name}"


@dataclass(frozen=True, slots=True, kw_only=True, order=True)
class FieldPath:
    """A field that differs from what the operator wrote; ``path`` "" means that the object is missing."""

    REPLICAS: ClassVar = "spec.replicas"
    ANNOTATIONS: ClassVar = "metadata.annotations"

    object: ObjectName
    path: str

    def __str__(self) -> str:
        return f"{self.object} {self.path or '(missing)'}"


@dataclass(frozen=True, slots=True, kw_only=True)
class DriftCorrection:
    """How often one object was corrected, and when last."""

    times: int
    at_unix_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class DriftHistory:
    """All recent corrections by object. They belong to one desired state: ``revision`` and ``replicas``."""

    revision: Revision = UNKNOWN
    replicas: int = 0
    corrections: Mapping[ObjectName, DriftCorrection] = field(default_factory=dict)


NO_DRIFT_HISTORY = DriftHistory()


MAX_SAMPLES = 32  # a window of 30 steps: more of them do not make a rate more exact
MAX_GAP_S = 120.0  # nothing is known about the time between samples further apart


@dataclass(frozen=True, slots=True, kw_only=True)
class SampleWindow:
    """How long samples are kept, and how far apart. ``cycle_s``: from one checkpoint to the next of a worker
    that keeps up; the window holds several of them.
    """

    cycle_s: float

    @property
    def window_s(self) -> float:
        return max(60.0, 6.0 * self.cycle_s)

    @property
    def apart_s(self) -> float:
        return self.window_s / (MAX_SAMPLES - 2)

    @property
    def gap_s(self) -> float:
        return max(MAX_GAP_S, self.window_s)


@dataclass(frozen=True, slots=True, kw_only=True)
class Stream:
    """What is remembered belongs to this: one object, and where it reads. An object that was recreated under
    the same name, or that reads from another endpoint, has other cursors and another load.
    """

    uid: str
    endpoint: str  # its URL
    project: str
    logstore: str
    group: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ShardMark:
    """One shard at one moment, in cursors; None: unknown. ``holder`` is "" while no consumer holds it or it
    is in transfer. ``consumed_at_unix_s`` is when the log service stored the checkpoint.
    """

    shard: int
    written: int | None
    consumed: int | None
    consumed_at_unix_s: float | None
    lag: int | None
    holder: str
    read_only: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Sample:
    """All shards at one moment, in the order of their IDs."""

    at_unix_s: float
    marks: tuple[ShardMark, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerRate:
    """Log groups per second that one worker consumes, smoothed."""

    per_s: float
    at_unix_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Since:
    """A named state, and when it began."""

    name: str
    at_unix_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Peak:
    """A number, and when it was last observed."""

    value: int
    at_unix_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Window:
    """The largest numbers of a sliding window: each peak is later and smaller than the previous one."""

    since_unix_s: float | None = None  # since then the numbers are known without a gap
    peaks: tuple[Peak, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class ScaleUpTrial:
    """The last scale-up, until it is known whether it helped. ``failed_unix_s``: when it had not.

    Invariant: 0 < ``before`` < ``after``.
    """

    at_unix_s: float
    before: int
    after: int
    consumed_before_per_s: float
    assignable: int
    arrival_per_s: float
    failed_unix_s: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class SplitTrial:
    """The last split, until it is known whether it helped: what the shard consumed before, in log groups per
    second. ``failed_unix_s``: when it had not helped.
    """

    shard: int
    at_unix_s: float
    before_per_s: float
    failed_unix_s: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ReshardRejection:
    """The last rejection of a split or merge by the log service, its message, and how many there were."""

    of: Literal["split", "merge"]
    message: str
    at_unix_s: float
    times: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ScalingState:
    """Everything that is remembered; the default is empty and belongs to no stream."""

    of: Stream | None = None
    samples: tuple[Sample, ...] = ()  # at most `MAX_SAMPLES`, in the order of time, without a gap
    rate: WorkerRate | None = None
    ready: tuple[Since, ...] = ()  # the workers that are ready, and since when
    unready_unix_s: float | None = None  # since when a worker that should be ready is not
    high: Window = field(default_factory=Window)  # for stepping down
    low: Window = field(default_factory=Window)  # for stepping up, negated
    target: Window = field(default_factory=Window)  # how far to step up, negated
    busy_unix_s: float | None = None  # when there was last something to consume
    workers: int | None = None  # requested at the last reconcile
    trial: ScaleUpTrial | None = None
    unhelpful: int = 0  # steps up in a row that did not help
    hot: tuple[Since, ...] = ()  # shards that are too busy for one worker
    cold: tuple[Since, ...] = ()  # neighbors "a+b" for which one shard would suffice
    rejections: tuple[ReshardRejection, ...] = ()  # one per kind
    split: SplitTrial | None = None
    unhelpful_splits: int = 0  # in a row
    split_helped: bool = False  # the last one that was judged


NOTHING = ScalingState()


def with_sample(samples: tuple[Sample, ...], new: Sample, pace: SampleWindow) -> tuple[Sample, ...]:
    """The newest sample always counts; older ones stay apart and within the window."""
    if samples and not 0.0 < new.at_unix_s - samples[-1].at_unix_s <= pace.gap_s:
        return (new,)
    if samples:
        new = replace(new, marks=_shared(samples[-1].marks, new.marks))
    earlier = samples[:-1] if _close(samples, pace) else samples
    oldest = new.at_unix_s - pace.window_s
    recent = tuple(one for one in earlier if one.at_unix_s >= oldest) or earlier[-1:]
    return (*recent, new)[-MAX_SAMPLES:]


def _close(samples: tuple[Sample, ...], pace: SampleWindow) -> bool:
    """The last sample is so close to the sample before it that the next sample replaces it."""
    return len(samples) > 1 and samples[-1].at_unix_s - samples[-2].at_unix_s < pace.apart_s


def _shared(old: tuple[ShardMark, ...], new: tuple[ShardMark, ...]) -> tuple[ShardMark, ...]:
    """Equal marks are one object, so thousands of idle shards cost little."""
    old_marks = {mark.shard: mark for mark in old}
    shared = tuple(old_marks[mark.shard] if old_marks.get(mark.shard) == mark else mark for mark in new)
    return old if shared == old else shared


def track_since(before: tuple[Since, ...], names: Iterable[str], now: float) -> tuple[Since, ...]:
    """These names, each with the time since when it has been listed; a time in the future counts as now."""
    listed_since = {one.name: one.at_unix_s for one in before}
    return tuple(Since(name=name, at_unix_s=min(now, listed_since.get(name, now))) for name in sorted(names))


@dataclass(frozen=True, slots=True, kw_only=True)
class Stillness:
    """The checkpoints as they have been since then: shard, cursor, time. ``moved_by`` are the consumers that
    saved the last ones that differ.
    """

    since_unix_s: float
    checkpoints: tuple[tuple[int, str, float | None], ...]
    moved_by: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Memory:
    """A restart of the operator forgets it, so nothing that must survive is kept in it.

    ``last_error`` is the message of the action that failed in the previous reconcile, "" if none did;
    ``service_error`` is the same text if it was the log service that failed or refused, and "" otherwise.
    ``committed`` is how many checkpoints it committed for a reset; 0 if that failed. ``failed_looks`` is how
    many observations in a row the log service did not answer, and ``failed_tries`` in how many reconciles in
    a row the API server was too busy for an action. ``deletion_seen_unix_s`` is when this operator first saw
    that the object is being deleted, and ``stillness`` is what it knows of the checkpoints since no worker
    exists.
    """

    scaling: ScalingState = NOTHING
    drift: DriftHistory = NO_DRIFT_HISTORY
    last_error: str = ""
    service_error: str = ""
    committed: int = 0
    failed_looks: int = 0
    failed_tries: int = 0
    deletion_seen_unix_s: float | None = None
    stillness: Stillness | None = None


NO_MEMORY = Memory()
