"""What is changed in the rules of subscriptions, one thing at a time."""

from tests.properties.mutants import Subject

SUBJECT = Subject(
    name="subscription",
    package="loghub_service.subscription",
    modules=("states", "acked", "slots", "state", "ordered", "shared", "keyed", "step", "cursor_format"),
    test_folder="tests/loghub_service/subscription",
    # Those that take long come last.
    tests=(
        "subscription",
        "everywhere",
        "shared",
        "keyed",
        "ordered",
        "states",
        "acked",
        "slots",
        "cursor_format",
    ),
    next_state={
        "_NOBODY": "_FLOWING",
        "_PARENT": "_FLOWING",
        "_FLOWING": "_ROOM",
        "_ROOM": "_FLOWING",
        "_UNOWNED": "_FLOWING",
        "_FINISHED": "_NOBODY",
    },
    swapped={
        "CursorTrigger": {
            "CREATED": "SOUGHT_BACK",
            "CONSUMER_JOINED": "JOINED_BEHIND_PARENT",
            "JOINED_BEHIND_PARENT": "CONSUMER_JOINED",
            "CONSUMED": "PARENTS_FINISHED",
            "PARENTS_FINISHED": "ROOM_FREED",
            "PARENT_SOUGHT_BACK": "ROOM_EXHAUSTED",
            "ROOM_EXHAUSTED": "PARENT_SOUGHT_BACK",
            "ROOM_FREED": "SLOTS_OWNED",
            "LAST_CONSUMER_LEFT": "CONSUMED",
            "SLOTS_UNOWNED": "ROOM_EXHAUSTED",
            "SLOTS_OWNED": "ROOM_FREED",
            "SOUGHT_BACK": "CREATED",
        },
        "Refusal": {
            "CONSUMER_BUSY": "SLOTS_TAKEN",
            "SLOTS_TAKEN": "CONSUMER_BUSY",
            "BAD_SLOTS": "SLOTS_TAKEN",
            "TOO_MANY_CONSUMERS": "CONSUMER_BUSY",
            "UNKNOWN_CONSUMER": "UNKNOWN_SHARD",
            "UNKNOWN_SHARD": "UNKNOWN_CONSUMER",
            "NOT_ORDERED": "CONSUMER_BUSY",
            "NO_TAKER": "UNKNOWN_CONSUMER",
        },
    },
    first_row="edge(1, None, CursorTrigger.CREATED, _NOBODY, '')",
    second_row="edge(1, None, CursorTrigger.SOUGHT_BACK, _NOBODY, '')",
)
