"""What is changed in the rules of consumer groups, one thing at a time."""

from tests.properties.mutants import Subject

SUBJECT = Subject(
    name="domain",
    package="loghub.domain",
    modules=("table", "fsm", "coordinator", "balance", "group", "group_builder"),
    test_folder="tests/loghub/domain",
    tests=("fsm", "coordinator", "coordinator_facts", "balance"),
    next_state={"_FREE": "_HELD", "_HELD": "_FREE", "_WAIT": "_FREE", "_MOVING": "_HELD", "_OVER": "_FREE"},
    swapped={
        "ShardTrigger": {
            "HOLDER_LEFT": "NEXT_LEFT",
            "NEXT_LEFT": "HOLDER_LEFT",
            "HOLDER_TIMED_OUT": "NEXT_TIMED_OUT",
            "NEXT_TIMED_OUT": "HOLDER_TIMED_OUT",
            "APPEARED": "APPEARED_BEHIND_ANCESTOR",
            "APPEARED_BEHIND_ANCESTOR": "APPEARED",
            "HOLDER_RELEASED": "NEXT_TIMED_OUT",
            "END_CHECKPOINTED": "NOTHING_LEFT",
            "NOTHING_LEFT": "END_CHECKPOINTED",
            "ORDER_DROPPED": "ANCESTORS_CONSUMED",
            "ANCESTORS_CONSUMED": "ORDER_DROPPED",
            "MOVED_TO_BALANCE": "HOLDER_TIMED_OUT",
            "ASSIGNED": "NOTHING_LEFT",
            "FORCED_BACK": "ASSIGNED",
        }
    },
    first_row="edge(1, None, ShardTrigger.APPEARED, _FREE, 'nothing prevents its assignment')",
    second_row="edge(1, None, ShardTrigger.REBOUND, _FREE, 'nothing prevents its assignment')",
    cleared_keywords=frozenset({"holder", "next_holder", "last_holder"}),
)
