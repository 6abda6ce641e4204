"""The state machine of a shard in a consumer group.

One table lists every state change that a shard can make, with its trigger and its reason
(docs/shard-states.md 2), and every change goes through `transition`. The table knows neither consumers
nor time: `loghub.domain.coordinator` decides which trigger occurs and carries out the effects.

The states, as on the wire:

``not_alloc``
    No consumer holds the shard, and nothing prevents its assignment. No heartbeat answer lists it. It
    stays in this state only while the group has no live consumer: every step ends with a balance that
    assigns it (3). A shard that turns out to have nothing left goes to ``over`` (10, 14).

``already_alloc``
    One live consumer, the holder, has the shard; the answers to its heartbeats list it, and only its
    checkpoints need no force. The shard leaves this state when the holder is silent for too long (4) or
    leaves the group (11), when balance assigns the shard to another consumer (5), or when it is
    read-only and consumed (8, 10).

``wait``
    The group is ordered and an ancestor of the shard is not consumed yet. No consumer holds the shard,
    it takes no part in the balance, and no answer lists it. The shard leaves this state when its
    ancestors are consumed (2), when the group is no longer ordered (12), or when the shard itself has
    nothing left (10, 14).

``transfer``
    The shard is revoked from its holder and bound to a next holder. The holder's answers no longer list
    it, but the holder still works on it and may save its checkpoint; the next holder does not get it
    before the holder's heartbeat stops reporting it (6). Balance counts it for the next holder. If the
    next holder is gone, the holder itself is bound (6, 11), and balance may bind another (15): the holder
    gets the shard back only as anyone else does, since it may be shutting it down already. The shard
    becomes free when the holder is gone (9, 11), and ends when the holder reaches the end while draining
    (10, 13).

``over``
    The shard is read-only and consumed to its end, and is no longer assigned. Its children may start.
    Only a forced checkpoint that is not the end makes it available again (7).
"""

from enum import StrEnum

from loghub.domain.table import TransitionTable, edge


class ShardState(StrEnum):
    """The state of a shard in one consumer group; the values are the words of the wire."""

    NOT_ALLOC = "not_alloc"
    ALREADY_ALLOC = "already_alloc"
    WAIT = "wait"
    TRANSFER = "transfer"
    OVER = "over"


class ShardTrigger(StrEnum):
    """The cause of a state change; the value appears in the log line of the change."""

    APPEARED = "appeared"
    APPEARED_BEHIND_ANCESTOR = "appeared_behind_ancestor"
    ANCESTORS_CONSUMED = "ancestors_consumed"
    ASSIGNED = "assigned"
    HOLDER_TIMED_OUT = "holder_timed_out"
    MOVED_TO_BALANCE = "moved_to_balance"
    HOLDER_RELEASED = "holder_released"
    NEXT_TIMED_OUT = "next_timed_out"
    FORCED_BACK = "forced_back"
    END_CHECKPOINTED = "end_checkpointed"
    NOTHING_LEFT = "nothing_left"
    HOLDER_LEFT = "holder_left"
    NEXT_LEFT = "next_left"
    ORDER_DROPPED = "order_dropped"
    REBOUND = "rebound"


_FREE, _HELD, _WAIT = ShardState.NOT_ALLOC, ShardState.ALREADY_ALLOC, ShardState.WAIT
_MOVING, _OVER = ShardState.TRANSFER, ShardState.OVER

_EMPTY_WHY = "read-only and empty, or its end was checkpointed before it became read-only"
_FORCED_END_WHY = "a forced checkpoint at its end marks all of it as consumed"

SHARD_STATES = TransitionTable(
    "shard",
    edge(1, None, ShardTrigger.APPEARED, _FREE, "nothing prevents its assignment"),
    edge(1, None, ShardTrigger.APPEARED_BEHIND_ANCESTOR, _WAIT, "ordered, an ancestor is not consumed"),
    edge(2, _WAIT, ShardTrigger.ANCESTORS_CONSUMED, _FREE, "its ancestors are consumed"),
    edge(3, _FREE, ShardTrigger.ASSIGNED, _HELD, "balance assigns it to a consumer"),
    edge(4, _HELD, ShardTrigger.HOLDER_TIMED_OUT, _FREE, "the holder was silent for the timeout"),
    edge(5, _HELD, ShardTrigger.MOVED_TO_BALANCE, _MOVING, "balance assigns it to another consumer"),
    edge(
        6, _MOVING, ShardTrigger.HOLDER_RELEASED, _HELD, "the holder no longer reports it: to the next holder"
    ),
    edge(6, _MOVING, ShardTrigger.NEXT_TIMED_OUT, _MOVING, "the next holder timed out: the holder is bound"),
    edge(7, _OVER, ShardTrigger.FORCED_BACK, _FREE, "a forced checkpoint that is not the end"),
    edge(8, _HELD, ShardTrigger.END_CHECKPOINTED, _OVER, "read-only and checkpointed at its end"),
    edge(9, _MOVING, ShardTrigger.HOLDER_TIMED_OUT, _FREE, "the holder was silent for the timeout"),
    edge(10, _WAIT, ShardTrigger.NOTHING_LEFT, _OVER, _EMPTY_WHY),
    edge(10, _FREE, ShardTrigger.NOTHING_LEFT, _OVER, _EMPTY_WHY),
    edge(10, _HELD, ShardTrigger.NOTHING_LEFT, _OVER, _EMPTY_WHY),
    edge(10, _MOVING, ShardTrigger.NOTHING_LEFT, _OVER, _EMPTY_WHY),
    edge(11, _HELD, ShardTrigger.HOLDER_LEFT, _FREE, "the holder left, no need to wait for the timeout"),
    edge(11, _MOVING, ShardTrigger.HOLDER_LEFT, _FREE, "the holder left, no need to wait for the timeout"),
    edge(11, _MOVING, ShardTrigger.NEXT_LEFT, _MOVING, "the next holder left: the holder is bound"),
    edge(12, _WAIT, ShardTrigger.ORDER_DROPPED, _FREE, "the group is no longer ordered"),
    edge(13, _MOVING, ShardTrigger.END_CHECKPOINTED, _OVER, "the holder reached the end while it drained"),
    edge(14, _FREE, ShardTrigger.END_CHECKPOINTED, _OVER, _FORCED_END_WHY),
    edge(14, _WAIT, ShardTrigger.END_CHECKPOINTED, _OVER, _FORCED_END_WHY),
    edge(
        15,
        _MOVING,
        ShardTrigger.REBOUND,
        _MOVING,
        "another next holder, or the next holder reports it itself",
    ),
)

transition = SHARD_STATES.transition
