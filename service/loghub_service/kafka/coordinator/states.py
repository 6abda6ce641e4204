"""The state machine of a Kafka consumer group.

One table lists every state change that a group can make, with its trigger and its reason
(docs/kafka-groups.md 2), and every change goes through `transition`. The table knows neither members nor
time: `loghub_service.kafka.coordinator.step` decides which trigger occurs and carries out the effects.

The states, with the names that DescribeGroups reports:

``Empty``
    The group exists and has no members, but perhaps member ids that were given out and have not joined yet.
    It keeps its committed offsets and its generation. Anybody may commit without a member id, which is how
    offsets are reset, and DeleteGroups deletes the group. It leaves this state when a member joins (2), or
    when it is deleted or has nothing left to keep (9).

``PreparingRebalance``
    A new generation is being formed. JoinGroup requests wait until every member has sent one (3), until the
    initial delay of a group that was empty is over (4), or until the rebalance timeout, at which members
    that did not rejoin are dropped (4). Meanwhile a heartbeat answers 27, which makes a member rejoin, and
    a commit of the present generation succeeds, so that members can commit what they give up. If all members
    are gone, the group is empty again (5).

``CompletingRebalance``
    The new generation has its members and its leader, and the leader computes the assignment. SyncGroup
    requests wait for the leader's (6). A heartbeat succeeds, and a commit answers 27, because no member has
    partitions yet. Any change of the members starts over (7): a member that joins, leaves, times out or
    rejoins with other metadata, and one that does not send SyncGroup within the rebalance timeout.

``Stable``
    Every member has, or gets with its SyncGroup, what the leader assigned to it. Heartbeats and commits of
    the present generation succeed. The group leaves this state for the same reasons as the previous one, and
    when the leader rejoins, which is how it reports that topics have got partitions (8).

``Dead``
    The group does not exist: it never did, it was deleted, or the last of its offsets expired. It has no
    members, no offsets and generation 0. Its name can be used again: the first join without a member id, or
    the first commit without members, creates it (1), and a restart of the service restores it (10).
"""

from enum import StrEnum

from loghub.domain.table import TransitionTable, edge


class KafkaGroupState(StrEnum):
    """The state of a group; the values are the names in DescribeGroups."""

    EMPTY = "Empty"
    PREPARING_REBALANCE = "PreparingRebalance"
    COMPLETING_REBALANCE = "CompletingRebalance"
    STABLE = "Stable"
    DEAD = "Dead"


class KafkaTrigger(StrEnum):
    """The cause of a state change; the value appears in the log line of the change."""

    CREATED = "created"
    MEMBER_JOINED = "member_joined"
    ALL_JOINED = "all_joined"
    INITIAL_DELAY_OVER = "initial_delay_over"
    REBALANCE_TIMED_OUT = "rebalance_timed_out"
    NOBODY_LEFT = "nobody_left"
    LEADER_ASSIGNED = "leader_assigned"
    METADATA_CHANGED = "metadata_changed"
    LEADER_REJOINED = "leader_rejoined"
    STATIC_MEMBER_REPLACED = "static_member_replaced"
    MEMBER_LEFT = "member_left"
    SESSION_TIMED_OUT = "session_timed_out"
    SYNC_TIMED_OUT = "sync_timed_out"
    DELETED = "deleted"
    NOTHING_TO_KEEP = "nothing_to_keep"
    RESTORED_EMPTY = "restored_empty"
    RESTORED_REBALANCING = "restored_rebalancing"
    RESTORED_STABLE = "restored_stable"


_EMPTY, _PREPARING = KafkaGroupState.EMPTY, KafkaGroupState.PREPARING_REBALANCE
_COMPLETING, _STABLE = KafkaGroupState.COMPLETING_REBALANCE, KafkaGroupState.STABLE
_DEAD = KafkaGroupState.DEAD

_JOINED_WHY = "it needs partitions, so the partitions of other members change"
_METADATA_WHY = "a member rejoined with other metadata, by which the leader assigns"
_REPLACED_WHY = "a static member came back with a new member id, which the leader does not know yet"
_PROTOCOL_WHY = "a static member came back, and its protocols select another one for the group"
_LEFT_WHY = "its partitions need another owner"
_SILENT_WHY = "it sent nothing for its session timeout, and its partitions need another owner"
_NO_SYNC_WHY = "it rejoined, and did not ask for its assignment within the rebalance timeout"

KAFKA_GROUP_STATES = TransitionTable(
    "group",
    edge(1, _DEAD, KafkaTrigger.CREATED, _EMPTY, "the first join, or commit without members, names it"),
    edge(2, _EMPTY, KafkaTrigger.MEMBER_JOINED, _PREPARING, "the first member; others may follow soon"),
    edge(3, _PREPARING, KafkaTrigger.ALL_JOINED, _COMPLETING, "every member has rejoined"),
    edge(
        4, _PREPARING, KafkaTrigger.INITIAL_DELAY_OVER, _COMPLETING, "the first members have had time to join"
    ),
    edge(
        4,
        _PREPARING,
        KafkaTrigger.REBALANCE_TIMED_OUT,
        _COMPLETING,
        "members that did not rejoin are dropped",
    ),
    edge(5, _PREPARING, KafkaTrigger.NOBODY_LEFT, _EMPTY, "every member has left or was dropped"),
    edge(6, _COMPLETING, KafkaTrigger.LEADER_ASSIGNED, _STABLE, "the leader has sent the assignment"),
    edge(7, _COMPLETING, KafkaTrigger.MEMBER_JOINED, _PREPARING, _JOINED_WHY),
    edge(7, _COMPLETING, KafkaTrigger.METADATA_CHANGED, _PREPARING, _METADATA_WHY),
    edge(7, _COMPLETING, KafkaTrigger.STATIC_MEMBER_REPLACED, _PREPARING, _REPLACED_WHY),
    edge(7, _COMPLETING, KafkaTrigger.MEMBER_LEFT, _PREPARING, _LEFT_WHY),
    edge(7, _COMPLETING, KafkaTrigger.SESSION_TIMED_OUT, _PREPARING, _SILENT_WHY),
    edge(7, _COMPLETING, KafkaTrigger.SYNC_TIMED_OUT, _PREPARING, _NO_SYNC_WHY),
    edge(8, _STABLE, KafkaTrigger.MEMBER_JOINED, _PREPARING, _JOINED_WHY),
    edge(8, _STABLE, KafkaTrigger.METADATA_CHANGED, _PREPARING, _METADATA_WHY),
    edge(
        8, _STABLE, KafkaTrigger.LEADER_REJOINED, _PREPARING, "the leader has seen other topics or partitions"
    ),
    edge(8, _STABLE, KafkaTrigger.STATIC_MEMBER_REPLACED, _PREPARING, _PROTOCOL_WHY),
    edge(8, _STABLE, KafkaTrigger.MEMBER_LEFT, _PREPARING, _LEFT_WHY),
    edge(8, _STABLE, KafkaTrigger.SESSION_TIMED_OUT, _PREPARING, _SILENT_WHY),
    edge(8, _STABLE, KafkaTrigger.SYNC_TIMED_OUT, _PREPARING, _NO_SYNC_WHY),
    edge(9, _EMPTY, KafkaTrigger.DELETED, _DEAD, "DeleteGroups"),
    edge(9, _EMPTY, KafkaTrigger.NOTHING_TO_KEEP, _DEAD, "its last offset expired, or it never had one"),
    edge(
        10, _DEAD, KafkaTrigger.RESTORED_EMPTY, _EMPTY, "no member had a generation when the service stopped"
    ),
    edge(10, _DEAD, KafkaTrigger.RESTORED_REBALANCING, _PREPARING, "it was rebalancing: the members rejoin"),
    edge(10, _DEAD, KafkaTrigger.RESTORED_STABLE, _STABLE, "its members go on with their assignments"),
    start=_DEAD,
)

transition = KAFKA_GROUP_STATES.transition
