"""Simulates a group that scales: shards that logs arrive in, workers that need time, and one `plan`.

Hours of a group take seconds, with the real decisions and the real drain. One step is one second. A worker
takes `warm_s` to become ready, works in batches of `batch_s`, checkpoints at the end of each, and divides
what it can consume among its shards. Shards are balanced by count, as the log service does, and a shard that
moves is in transfer for `transfer_s`. A shard that no consumer has held yet has no checkpoint, so its lag is
known only while it is empty. Cursors begin far above 0, as those of some log services do.
"""

import json
import math
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cache
from itertools import pairwise
from typing import Any

from loghub.domain.shards import HashRange, even_ranges
from loghub.wire import cursor as wire_cursor
from loghub_operator.api import LogHubConsumerGroup, Status
from loghub_operator.api.adoption import GroupRecord
from loghub_operator.api.status import NUMBERS_EVERY_S, Condition
from loghub_operator.model import actions
from loghub_operator.model.group_metrics import GroupMetrics
from loghub_operator.model.memory import NOTHING, Memory, ScalingState
from loghub_operator.model.observed import (
    Available,
    GroupSettings,
    LogServiceObserved,
    ObservedState,
    ObservedStatefulSet,
    Placement,
    ServiceErrorReason,
    ShardObserved,
    Unavailable,
    WorkerObserved,
    WorkerPhase,
)
from loghub_operator.model.revision import UNKNOWN, Revision
from loghub_operator.plan.scaling.resharding import with_rejection
from loghub_operator.plan.status.builder import worth_writing
from tests.loghub_operator.support.examples import resource
from tests.loghub_operator.support.golden import SameTemplate
from tests.loghub_operator.support.rounds import plan

EPOCH = 1_790_000_000.0
FIRST = 1_700_000_000_000_000_000
Arrival = Callable[[int, float], float]  # shard, second -> log groups per second


@dataclass(slots=True)
class Shard:
    number: int
    keys: HashRange
    born: float = 0.0
    written: float = 0.0
    consumed: float = 0.0
    saved_at: float = 0.0
    holder: str = ""
    next_holder: str = ""
    moved_at: float = 0.0
    begun: bool = False  # a consumer has held it, and saved where it begins
    read_only: bool = False
    parents: tuple[int, ...] = ()

    @property
    def lag(self) -> int:
        return math.floor(self.written) - math.floor(self.consumed)

    @property
    def over(self) -> bool:
        return self.read_only and self.lag <= 0


@dataclass(slots=True)
class Worker:
    ordinal: int
    started: float
    revision: Revision
    leave_since: float | None = None
    left: bool = False
    batch_end: float = 0.0
    batch: dict[int, float] = field(default_factory=dict)  # where each shard will be


@dataclass(slots=True, kw_only=True)
class World:
    """Change its fields while it runs; ``reported`` and ``numbers`` are what came of it."""

    spec: dict[str, Any]
    arrival: Arrival
    shards: list[Shard]
    rate: float = 10.0  # of one worker
    maximum: float = math.inf  # of all workers together: a sink that is shared
    warm_s: float = 15.0
    batch_s: float = 2.0
    transfer_s: float = 6.0
    drain_s: float = 4.0
    every_s: float = 10.0  # between two observations without an action
    unreachable: bool = False
    failing: bool = False  # a worker fails, and still works as well as before
    refuses: str = ""  # what the log service says to a split or merge
    other_groups: int = 0
    uid: str = "first"
    endpoint: str = "http://127.0.0.1:1"
    now: float = 0.0
    replicas: int | None = None
    revision: Revision = UNKNOWN
    workers: dict[int, Worker] = field(default_factory=dict)
    status: Status = field(default_factory=Status)
    state: ScalingState = NOTHING
    next_reconcile_s: float = 0.0
    numbers: list[tuple[float, int]] = field(default_factory=list)  # time, requested workers
    reasons: list[str] = field(default_factory=list)
    events: list[actions.EmitEvent] = field(default_factory=list)
    lags: list[int] = field(default_factory=list)
    tries: list[float] = field(default_factory=list)  # of splits and merges
    writes: int = 0
    looks: int = 0  # that failed
    metrics: GroupMetrics | None = None

    @property
    def lag(self) -> int:
        return sum(one.lag for one in self.shards)

    @property
    def resource(self) -> LogHubConsumerGroup:
        return _parsed(json.dumps(self.spec), self.uid).model_copy(update={"status": self.status})

    def run(self, seconds: float) -> "World":
        for _ in range(int(seconds)):
            self._step()
        return self

    @property
    def order(self) -> bool:
        return bool(self.spec.get("inOrder", False))

    def _waits(self, shard: Shard) -> bool:
        """Behind a parent that is not consumed to its end."""
        return self.order and any(one.number in shard.parents and not one.over for one in self.shards)

    def restart_operator(self) -> None:
        self.state = NOTHING

    def _step(self) -> None:
        self.now += 1.0
        for shard in self.shards:
            if not shard.read_only:
                shard.written += self.arrival(shard.number, self.now)
        self._live()
        self._balance()
        self._work()
        self.lags.append(self.lag)
        if self.now >= self.next_reconcile_s:
            self._reconcile()

    def _ready(self, worker: Worker) -> bool:
        return self.now - worker.started >= self.warm_s and not worker.left

    def _live(self) -> None:
        for worker in self.workers.values():
            if worker.leave_since is not None and self.now - worker.leave_since >= self.drain_s:
                worker.left = True
        for shard in self.shards:
            if shard.next_holder and self.now - shard.moved_at >= self.transfer_s:
                shard.holder, shard.next_holder = shard.next_holder, ""
        live = {self._name(one) for one in self.workers.values() if self._ready(one)}
        for shard in self.shards:
            if shard.holder not in live:
                shard.holder = shard.next_holder = ""

    def _balance(self) -> None:
        """By count, moving as few as can be."""
        live = sorted(self._name(one) for one in self.workers.values() if self._ready(one))
        if not live:
            return
        open_shards = [one for one in self.shards if not one.over and not self._waits(one)]
        counted = Counter(shard.next_holder or shard.holder for shard in open_shards)
        count = {name: counted[name] for name in live}
        for shard in open_shards:
            if not shard.holder:
                shard.holder, shard.begun = min(live, key=lambda name: (count[name], name)), True
                count[shard.holder] += 1
        while max(count.values()) - min(count.values()) > 1:
            maximum = max(live, key=lambda name: count[name])
            minimum = min(live, key=lambda name: count[name])
            movable = [s for s in open_shards if s.holder == maximum and not s.next_holder]
            if not movable:
                return
            movable[0].next_holder, movable[0].moved_at = minimum, self.now
            count[maximum], count[minimum] = count[maximum] - 1, count[minimum] + 1

    def _work(self) -> None:
        ready = [one for one in self.workers.values() if self._ready(one)]
        rate = min(self.rate, self.maximum / max(1, len(ready)))
        held_by: dict[str, dict[int, Shard]] = {}
        for shard in self.shards:
            held_by.setdefault(shard.holder, {})[shard.number] = shard
        for worker in ready:
            held = held_by.get(self._name(worker), {})
            if self.now >= worker.batch_end:
                for number, target in worker.batch.items():
                    if number in held and target > held[number].consumed:
                        held[number].consumed, held[number].saved_at = target, self.now
                worker.batch = _batch(list(held.values()), rate * self.batch_s)
                worker.batch_end = self.now + self.batch_s

    def _name(self, worker: Worker) -> str:
        return f"access-{worker.ordinal}"

    def _reconcile(self) -> None:
        observed = self.observed()
        now_resource = self.resource
        planned = plan(now_resource, observed, observed.at_unix_s)
        self.state, self.metrics = planned.memory.scaling, planned.metrics
        self.looks = planned.memory.failed_looks
        try:
            for action in planned.actions:
                self._carry_out(action)
        except actions.ReshardRefused as refused:
            self.state = with_rejection(self.state, refused, observed.at_unix_s)
        if worth_writing(self.status, planned.status, since_last_s=NUMBERS_EVERY_S):
            self.writes += 1
        self.status = planned.status
        assert planned.status.scaling is not None
        self.reasons.append(planned.status.scaling.reason)
        if not self.numbers or self.numbers[-1][1] != planned.status.replicas:
            self.numbers.append((self.now, planned.status.replicas))
        self.next_reconcile_s = self.now + (1.0 if planned.actions else self.every_s)

    def _carry_out(self, action: actions.Action) -> None:
        if isinstance(action, actions.SplitShard | actions.MergeShards):
            self.tries.append(self.now)
            if self.refuses:
                raise actions.ReshardRefused(action, self.refuses)
        match action:
            case actions.ApplyWorkers():
                self.replicas, self.revision = action.replicas, action.spec.revision
                for ordinal in [n for n in self.workers if n >= action.replicas]:
                    del self.workers[ordinal]
                for ordinal in range(action.replicas):
                    self.workers.setdefault(ordinal, Worker(ordinal, self.now, self.revision))
            case actions.DrainWorker(consumer):
                self.workers[int(consumer.rsplit("-", 1)[1])].leave_since = self.now
            case actions.RestartWorker(consumer):
                ordinal = int(consumer.rsplit("-", 1)[1])
                self.workers[ordinal] = Worker(ordinal, self.now, self.revision)
            case actions.SplitShard(number):
                self.split(number)
            case actions.MergeShards(number):
                self._merge(number)
            case actions.EmitEvent():
                self.events.append(action)

    def split(self, number: int) -> None:
        old = next(one for one in self.shards if one.number == number)
        assert not old.read_only
        old.read_only = True
        self._make(old.keys.parts(2), (number,))

    def _merge(self, number: int) -> None:
        left = next(one for one in self.shards if one.number == number)
        right = next(one for one in self.shards if not one.read_only and one.keys.begin == left.keys.end)
        assert not left.read_only
        left.read_only = right.read_only = True
        self._make((left.keys.join(right.keys),), (left.number, right.number))

    def _make(self, ranges: tuple[HashRange, ...], parents: tuple[int, ...]) -> None:
        first = 1 + max(one.number for one in self.shards)
        for number, keys in enumerate(ranges, first):
            self.shards.append(Shard(number, keys, born=self.now, parents=parents, saved_at=self.now))

    def observed(self) -> ObservedState:
        if self.unreachable:
            service: LogServiceObserved = Unavailable(
                reason=ServiceErrorReason.ENDPOINT_UNREACHABLE, message="away"
            )
        else:
            live = sorted(self._name(one) for one in self.workers.values() if self._ready(one))
            service = Available(
                group=GroupSettings(timeout_s=30, order=self.order),
                shards=tuple(self._shard_observed(one) for one in self.shards),
                consumers=tuple(live),
                other_groups=self.other_groups,
            )
        set_now = None
        if self.replicas is not None:
            set_now = ObservedStatefulSet(replicas=self.replicas, revision=self.revision)
        return ObservedState(
            at_unix_s=EPOCH + self.now,
            placement=Placement(endpoint=self.endpoint, sink_root="/sink", needs_project_address=False),
            environment=SameTemplate(),
            service=service,
            worker_set=set_now,
            workers=tuple(self._worker_observed(one) for _, one in sorted(self.workers.items())),
            group_record=GroupRecord("Created", None),
            memory=Memory(scaling=self.state, failed_looks=self.looks),
        )

    def _shard_observed(self, shard: Shard) -> ShardObserved:
        state = "already_alloc" if shard.holder else "not_alloc"
        if shard.over:
            state = "over"
        elif self._waits(shard):
            state = "wait"
        elif shard.next_holder:
            state = "transfer"
        first = FIRST + shard.number
        saved = wire_cursor.encode(first + math.floor(shard.consumed)) if shard.begun else ""
        lag = shard.lag if shard.begun or shard.lag == 0 else None
        return ShardObserved(
            shard=shard.number,
            state=state,  # type: ignore[arg-type]
            holder=shard.holder,
            next_holder=shard.next_holder,
            checkpoint=saved,
            checkpoint_unix_s=EPOCH + shard.saved_at if saved else None,
            lag_s=None if lag is None else float(lag),
            lag_logs=lag,
            lag_groups=lag,
            end_cursor=wire_cursor.encode(first + math.floor(shard.written)),
            read_only=shard.read_only,
            parents=shard.parents,
            begin_key=shard.keys.begin_key,
            end_key=shard.keys.end_key,
            created_unix_s=EPOCH + shard.born,
        )

    def _worker_observed(self, worker: Worker) -> WorkerObserved:
        phase = WorkerPhase.STARTING
        if worker.left:
            phase = WorkerPhase.LEFT
        elif self._ready(worker):
            phase = WorkerPhase.FAILED if self.failing else WorkerPhase.RUNNING
        return WorkerObserved(
            name=self._name(worker),
            ordinal=worker.ordinal,
            phase=phase,
            ready=self._ready(worker),
            revision=worker.revision,
            drain_requested=worker.leave_since is not None,
            drain_requested_at_unix_s=None if worker.leave_since is None else EPOCH + worker.leave_since,
        )

    # -- what came of it

    def condition(self, kind: str) -> Condition:
        return next(one for one in self.status.conditions if one.type == kind)

    def reversals(self, since: float = 0.0) -> int:
        """How often the number went the other way than the time before."""
        numbers = [number for at, number in self.numbers if at >= since]
        steps = [b - a for a, b in pairwise(numbers)]
        return sum((a > 0) != (b > 0) for a, b in pairwise(steps))


@cache
def _parsed(spec: str, uid: str) -> LogHubConsumerGroup:
    return resource(json.loads(spec), generation=1, uid=uid)


def _batch(held: list[Shard], maximum: float) -> dict[int, float]:
    """Where each shard is after one batch: what there is, shared fairly where it is too much."""
    targets, left = {}, maximum
    for place, shard in enumerate(sorted(held, key=lambda one: one.written - one.consumed)):
        share = min(shard.written - shard.consumed, left / (len(held) - place))
        targets[shard.number] = shard.consumed + share
        left -= share
    return targets


def world(
    scaling: dict[str, Any],
    arrival: Arrival,
    *,
    shards: int = 8,
    spec: dict[str, Any] | None = None,
    **more: Any,
) -> World:
    """A group in mode Auto that begins with one worker."""
    numbered = [Shard(number, keys) for number, keys in enumerate(even_ranges(shards))]
    return World(
        spec={**(spec or {}), "scaling": {"mode": "Auto", **scaling}},
        arrival=arrival,
        shards=numbered,
        **more,
    )


def evenly(total: Callable[[float], float], shards: int = 8) -> Arrival:
    """The same into each shard."""
    return lambda _, now: total(now) / shards
