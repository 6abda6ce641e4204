"""The service, which can be made to keep answers about consumer groups for itself.

While the file that the environment variable `HOLD` names has the name of a kind of answer, no answer of that
kind is sent. What it tells is decided and durable nevertheless, as when the service dies before it sends.
"""

import os
import sys
from pathlib import Path
from unittest.mock import patch

from loghub.kafka.coordinator.answers import Answer, JoinAnswer, SyncAnswer
from loghub.kafka.coordinator.group import ErrorCode
from loghub.kafka.groups import GroupKey, KafkaGroups
from loghub.service import engine
from loghub.service.__main__ import main

HOLD = "LOGHUB_TEST_HOLD"
EVERY_JOIN, LEADERS_JOIN, EVERY_SYNC = "JoinGroup", "JoinGroup of the leader", "SyncGroup"


class HeldGroups(KafkaGroups):
    def _deliver(self, key: GroupKey, request: int, answer: Answer) -> None:
        if not _is_held(answer):
            super()._deliver(key, request, answer)


def _is_held(answer: Answer) -> bool:
    hold = Path(os.environ[HOLD])
    if not hold.exists() or answer.error is not ErrorCode.NONE:
        return False
    kinds: dict[str, bool] = {
        EVERY_JOIN: isinstance(answer, JoinAnswer),
        LEADERS_JOIN: isinstance(answer, JoinAnswer) and bool(answer.members),
        EVERY_SYNC: isinstance(answer, SyncAnswer),
    }
    return kinds[hold.read_text()]


if __name__ == "__main__":
    with patch.object(engine, "KafkaGroups", HeldGroups):
        sys.exit(main())
