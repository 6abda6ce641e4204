"""What the thread of a shard does next, as a value: initialize, process, hand logs over again, shut down, or
wait."""

from dataclasses import dataclass
from enum import Enum

from loghub_worker.consumer.shard_flow import FlowPhase, ShardFlow, is_read


@dataclass(frozen=True, slots=True, kw_only=True)
class ReceiveLimits:
    """When a batch is complete: it has this many logs or bytes, or its first log group waits for so long."""

    max_logs: int | None
    max_bytes: int
    max_wait_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Buffered:
    """What was pulled and not yet handed over. `logs` counts no further than a limit needs, and is 0 without
    one; `since_s` is when the first of it arrived."""

    groups: int = 0
    logs: int = 0
    bytes: int = 0
    since_s: float = 0.0


NOTHING = Buffered()


@dataclass(frozen=True, slots=True, kw_only=True)
class Again:
    """What is handed over again: when, or None for nothing; and whether so much is not acknowledged that
    nothing new may be handed over."""

    due_s: float | None = None
    is_full: bool = False


NOT_AGAIN = Again()


class Step(Enum):
    """What the thread of a shard does next."""

    INITIALIZE = "initialize"
    PROCESS = "process"  # the batch that failed, if there is one, or the next one
    REDELIVER = "redeliver"  # process logs that were handed over before
    SHUT_DOWN = "shutdown"
    WAIT = "wait"
    END = "end"


@dataclass(frozen=True, slots=True)
class NextStep:
    """The next step; for WAIT also when to ask again if nothing happens, or None: not before."""

    step: Step
    at_s: float | None = None


_WAIT = NextStep(Step.WAIT)


def next_step(
    flow: ShardFlow,
    buffered: Buffered,
    limits: ReceiveLimits,
    *,
    is_full: bool,
    now: float,
    again: Again = NOT_AGAIN,
) -> NextStep:
    """What the thread of the shard, which is idle, does next. `is_full`: no more may be pulled."""
    match flow.phase:
        case FlowPhase.ENDED:
            return NextStep(Step.END)
        case FlowPhase.DRAINING | FlowPhase.LOST:
            if not flow.is_announced:
                return _WAIT
            return NextStep(Step.SHUT_DOWN)
        case FlowPhase.OPENING:
            return _at(flow.due_s, Step.INITIALIZE, now)
        case FlowPhase.ROLLING_BACK:
            return _at(flow.due_s, Step.PROCESS if flow.keeps_batch else Step.WAIT, now)
        case FlowPhase.PULLING:
            ready_s = None if again.is_full else _ready_s(buffered, limits, is_full=is_full)
            if again.due_s is not None and (ready_s is None or again.due_s <= max(now, ready_s)):
                return _at(again.due_s, Step.REDELIVER, now)
            return _at(ready_s, Step.PROCESS, now)
        case _:
            return _WAIT


def has_backlog(flow: ShardFlow, step: Step, *, is_held: bool) -> bool:
    """Whether the shard has logs to process at present, for shards with a lower priority; `step` is what it
    would do next. A shard that waits, such as after a failure or for a batch to be complete, has none, and
    neither has one that `is_held`: whatever is pulled, it may not be handed over yet."""
    if flow.phase is FlowPhase.PROCESSING:
        return True
    is_unread = not (flow.is_at_end or flow.pull_failures or is_read(flow) or is_held)
    return flow.phase is FlowPhase.PULLING and (is_unread or step in (Step.PROCESS, Step.REDELIVER))


def _at(due_s: float | None, step: Step, now: float) -> NextStep:
    if due_s is None:
        return _WAIT
    return NextStep(step) if now >= due_s else NextStep(Step.WAIT, due_s)


def _ready_s(buffered: Buffered, limits: ReceiveLimits, *, is_full: bool) -> float | None:
    """When the buffered log groups are a batch; None: not before more arrive."""
    if not buffered.groups:
        return None
    has_logs = limits.max_logs is not None and buffered.logs >= limits.max_logs
    if is_full or has_logs or buffered.bytes >= limits.max_bytes:
        return buffered.since_s
    return buffered.since_s + limits.max_wait_s
