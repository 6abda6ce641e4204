"""The service, which can be made to keep answers to Kafka clients for itself.

While the file that the environment variable `HOLD` names has the name of a kind of answer, no answer of that
kind is sent. What it tells is decided and durable nevertheless, as when the service dies before it sends.
"""

import asyncio
import os
import sys
from pathlib import Path
from typing import Any
from unittest.mock import patch

from loghub_service import engine
from loghub_service.__main__ import main
from loghub_service.kafka.broker import produce
from loghub_service.kafka.coordinator.group import GroupErrorCode
from loghub_service.kafka.coordinator.requests import Answer, JoinAnswer, SyncAnswer
from loghub_service.kafka.groups import KafkaGroupKey, KafkaGroups

HOLD = "LOGHUB_TEST_HOLD"
EVERY_JOIN, LEADERS_JOIN, EVERY_SYNC = "JoinGroup", "JoinGroup of the leader", "SyncGroup"
EVERY_PRODUCE = "Produce"
_stored = produce._outcome


class HeldGroups(KafkaGroups):
    def _deliver(self, key: KafkaGroupKey, request: int, answer: Answer) -> None:
        if not _is_held(answer):
            super()._deliver(key, request, answer)


def _is_held(answer: Answer) -> bool:
    if answer.error is not GroupErrorCode.NONE:
        return False
    kinds: dict[str, bool] = {
        EVERY_JOIN: isinstance(answer, JoinAnswer),
        LEADERS_JOIN: isinstance(answer, JoinAnswer) and bool(answer.members),
        EVERY_SYNC: isinstance(answer, SyncAnswer),
    }
    return kinds.get(_held(), False)


def _held() -> str:
    hold = Path(os.environ[HOLD])
    return hold.read_text() if hold.exists() else ""


async def held_outcome(call: Any, ordered: Any) -> Any:
    """For good: the batch is stored, and the service has to be killed."""
    outcome = await _stored(call, ordered)
    if _held() == EVERY_PRODUCE:
        await asyncio.Event().wait()
    return outcome


if __name__ == "__main__":
    with patch.object(engine, "KafkaGroups", HeldGroups), patch.object(produce, "_outcome", held_outcome):
        sys.exit(main())
