"""The reasons of the conditions that concern what workers and sinks keep, each with its explanation.
``docs/reasons.md`` is generated from the texts."""

from enum import StrEnum


class GroupWasLostReason(StrEnum):
    """Whether workers found that the consumer group has no checkpoint of a shard of which the sink has logs,
    as after the group was deleted and created again. The shard then continues where the sink has it, wherever
    startPosition points, so that nothing comes twice and nothing is left out. The message names shards and
    cursors. Nothing needs to be done; to have the logs again, set spec.resetCheckpoints. The condition stays
    until the workers that found it start again or give up these shards.

    HAS_CHECKPOINTS: each shard began at its checkpoint, or is new to the sink. CONTINUED_FROM_SINK: some
    shards had none, and continued where the sink has them. LOSS_NOT_REPORTED: the operator cannot read the
    status of a ready worker."""

    HAS_CHECKPOINTS = "HasCheckpoints"
    CONTINUED_FROM_SINK = "ContinuedFromSink"
    LOSS_NOT_REPORTED = "LossNotReported"


class StateIncompleteReason(StrEnum):
    """Whether the state of a stateful pipeline has all logs that its results are about. The message names
    shards, and the cursor from which the state has their logs. Results about logs before it may be missing
    or divided: a repetition of such a log is not recognized, and a window that had begun before gives a row
    at each worker that read a part of it. The condition stays until the shard gets a new state.

    STATE_COMPLETE: the state has the logs of each shard from the group's beginning. NO_STATE: the pipeline
    keeps no state. SHARD_MOVED: another worker has read the shard before, or the shard was split or merged,
    or the volume was lost, and the state stayed there. CHECKPOINTS_RESET: the checkpoints were moved, and the
    state is empty before them. PIPELINE_CHANGED: the query or the function changed, and the state began
    empty. STATE_UNUSABLE: Spark cannot read the state, for example after a change of code in an image, and it
    began empty. STATE_NOT_REPORTED: the operator cannot read the status of a ready worker."""

    STATE_COMPLETE = "StateComplete"
    NO_STATE = "NoState"
    SHARD_MOVED = "ShardMoved"
    CHECKPOINTS_RESET = "CheckpointsReset"
    PIPELINE_CHANGED = "PipelineChanged"
    STATE_UNUSABLE = "StateUnusable"
    STATE_NOT_REPORTED = "StateNotReported"


class LateReason(StrEnum):
    """Whether a stateful pipeline dropped rows because they lay behind its watermark, which is the latest
    time that a worker has seen, less the delay of the pipeline. The message names the workers, the rows since
    the state was first kept, and the watermark. These rows are in no result. The condition stays for an hour
    after the last of them.

    NOTHING_LATE: no row was dropped within the last hour, or the pipeline keeps no state. DROPPED_AS_LATE:
    logs came later than the delay allows, for example of a device that sends seldom, or of a shard that had
    waited at another worker; raise the delay if their results matter. WATERMARK_AHEAD: the watermark lies
    after the receipt of the logs, so that every log is late until then: the state is of an earlier release,
    which did not bound it; begin with an empty one (spec.resetCheckpoints). LATE_NOT_REPORTED: the operator
    cannot read the status of a ready worker."""

    NOTHING_LATE = "NothingLate"
    DROPPED_AS_LATE = "DroppedAsLate"
    WATERMARK_AHEAD = "WatermarkAhead"
    LATE_NOT_REPORTED = "LateNotReported"
