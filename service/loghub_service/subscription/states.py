"""The state machine of one shard in a subscription.

One table lists every state change that a shard can make, with its trigger and its reason
(docs/subscription-states.md 2), and every change goes through `transition`. The table knows neither consumers
nor positions: `loghub_service.subscription.step` decides which trigger occurs. The states, as in the status:

``NoConsumer``
    No consumer is attached to the shard. The acknowledgments stay, and everything else that the service
    remembers of the shard is dropped, except for the counts of redeliveries and for delays that are not over:
    the first consumer to come gets every log that is not acknowledged. The shard leaves this state when a
    consumer joins (2), or when nothing is left of it (3), say because an operator moved the mark to its end.

``WaitsForParent``
    The subscription keeps the order over a split or merge, and a parent of the shard has logs that are not
    acknowledged. Consumers are attached and get nothing of this shard, though acknowledgments of it count.
    The shard leaves this state when the mark of each parent is at its end (4), or with its last consumer (6).

``Flowing``
    Each log goes to a consumer as soon as the type of the subscription allows it and the consumer has
    permits. A shard that has no log to deliver, or whose consumers have no permits, is in this state as well.

``WaitsForRoom``
    So many ranges of acknowledged logs, or so many logs without an acknowledgment, are remembered as the
    limits allow, and no further log is read. The holes below the last range, and what must be delivered
    again there, still go out, since only their acknowledgment makes room (5). A shard that stays in this
    state has a log that no consumer acknowledges.

``Unowned``
    Consumers of Key_Shared have chosen ranges of slots, and a log waits whose slot no range has. Logs of
    other slots pass it, up to the look-ahead. The shard leaves this state when a consumer with the slot comes
    (7), or when the logs in question are acknowledged.

``Finished``
    The shard takes no writes any more, and all of it is acknowledged: its children need not wait. Consumers
    may be attached and get nothing. Only moving the mark back makes it available again (8).
"""

from enum import StrEnum

from loghub.domain.subscription import SubscriptionState
from loghub.domain.table import TransitionTable, edge


class CursorTrigger(StrEnum):
    """The cause of a state change; the value appears in the log line of the change."""

    CREATED = "created"
    CONSUMER_JOINED = "consumer_joined"
    JOINED_BEHIND_PARENT = "joined_behind_parent"
    CONSUMED = "consumed"
    PARENTS_FINISHED = "parents_finished"
    PARENT_SOUGHT_BACK = "parent_sought_back"
    ROOM_EXHAUSTED = "room_exhausted"
    ROOM_FREED = "room_freed"
    LAST_CONSUMER_LEFT = "last_consumer_left"
    SLOTS_UNOWNED = "slots_unowned"
    SLOTS_OWNED = "slots_owned"
    SOUGHT_BACK = "sought_back"


_NOBODY, _PARENT = SubscriptionState.NO_CONSUMER, SubscriptionState.WAITS_FOR_PARENT
_FLOWING, _ROOM = SubscriptionState.FLOWING, SubscriptionState.WAITS_FOR_ROOM
_UNOWNED, _FINISHED = SubscriptionState.UNOWNED, SubscriptionState.FINISHED

_CONSUMED_WHY = "read-only, and its last log is acknowledged, expired, or skipped by an operator"
_LEFT_WHY = "the last consumer left, lost its connection, or was closed by a seek"
_BACK_WHY = "the mark of a parent was moved back, so the parent's logs come first again"

CURSOR_STATES = TransitionTable(
    "shard of a subscription",
    edge(1, None, CursorTrigger.CREATED, _NOBODY, "the subscription, or a shard of its logstore, is new"),
    edge(2, _NOBODY, CursorTrigger.CONSUMER_JOINED, _FLOWING, "the first consumer is attached"),
    edge(
        2, _NOBODY, CursorTrigger.JOINED_BEHIND_PARENT, _PARENT, "in order, and a parent has logs to deliver"
    ),
    edge(3, _NOBODY, CursorTrigger.CONSUMED, _FINISHED, _CONSUMED_WHY),
    edge(3, _PARENT, CursorTrigger.CONSUMED, _FINISHED, _CONSUMED_WHY),
    edge(3, _FLOWING, CursorTrigger.CONSUMED, _FINISHED, _CONSUMED_WHY),
    edge(3, _ROOM, CursorTrigger.CONSUMED, _FINISHED, _CONSUMED_WHY),
    edge(3, _UNOWNED, CursorTrigger.CONSUMED, _FINISHED, _CONSUMED_WHY),
    edge(4, _PARENT, CursorTrigger.PARENTS_FINISHED, _FLOWING, "each parent is acknowledged to its end"),
    edge(4, _FLOWING, CursorTrigger.PARENT_SOUGHT_BACK, _PARENT, _BACK_WHY),
    edge(4, _ROOM, CursorTrigger.PARENT_SOUGHT_BACK, _PARENT, _BACK_WHY),
    edge(4, _UNOWNED, CursorTrigger.PARENT_SOUGHT_BACK, _PARENT, _BACK_WHY),
    edge(5, _FLOWING, CursorTrigger.ROOM_EXHAUSTED, _ROOM, "a limit is reached, and nothing new is read"),
    edge(5, _ROOM, CursorTrigger.ROOM_FREED, _FLOWING, "acknowledgments closed holes"),
    edge(6, _PARENT, CursorTrigger.LAST_CONSUMER_LEFT, _NOBODY, _LEFT_WHY),
    edge(6, _FLOWING, CursorTrigger.LAST_CONSUMER_LEFT, _NOBODY, _LEFT_WHY),
    edge(6, _ROOM, CursorTrigger.LAST_CONSUMER_LEFT, _NOBODY, _LEFT_WHY),
    edge(6, _UNOWNED, CursorTrigger.LAST_CONSUMER_LEFT, _NOBODY, _LEFT_WHY),
    edge(7, _FLOWING, CursorTrigger.SLOTS_UNOWNED, _UNOWNED, "a log waits whose slot no consumer has"),
    edge(7, _UNOWNED, CursorTrigger.SLOTS_OWNED, _FLOWING, "each slot of a log that waits has a consumer"),
    edge(8, _FINISHED, CursorTrigger.SOUGHT_BACK, _NOBODY, "the mark was moved back; consumers were closed"),
)

transition = CURSOR_STATES.transition
mermaid = CURSOR_STATES.mermaid
