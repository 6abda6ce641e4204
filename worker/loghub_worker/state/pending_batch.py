"""What is done with a batch of a stateful query when Spark hands it over, as a pure decision.

Spark repeats a batch until it has ended, also after a restart of the worker. Meanwhile the sink may have got
it, and its shards may have moved. The state must have the logs of a batch if the sink has them, and only
then."""

from collections.abc import Mapping, Sequence
from enum import StrEnum

from loghub_consumer.batch_plan import Range


class PendingStep(StrEnum):
    """What is done with a batch."""

    WAIT = "wait"  # the positions of its shards are not known yet
    DELIVER = "deliver"
    REPLAY = "replay"  # the sink has it: only its state is computed
    ROLL_BACK = "roll back"  # it cannot be delivered: another batch is planned in its place


def next_step(
    ranges: Sequence[Range],
    positions: Mapping[int, int | None],
    *,
    is_delivered: bool,
    may_be_delivered: bool,
) -> PendingStep:
    """The next step with a batch of these ranges. `positions` are the positions of the shards that the worker
    holds now, None while a shard is opened; empty while the worker is no member of its group. Whether the
    sink has the batch is either known (`is_delivered`), or possible, and then seen in the positions."""
    if is_delivered:
        return PendingStep.REPLAY
    held = [part for part in ranges if part.shard in positions]
    if not positions or any(positions[part.shard] is None for part in held):
        return PendingStep.WAIT
    if len(held) == len(ranges) and all(positions[part.shard] == part.begin for part in held):
        return PendingStep.DELIVER
    if may_be_delivered and held and all(positions[part.shard] == part.end for part in held):
        return PendingStep.REPLAY
    return PendingStep.ROLL_BACK
