"""The service without its native part, and a consumer to whom both tiers send."""

from collections.abc import Sequence

import pytest

from loghub.wire import native
from loghub_service.pulsar.records.entries import EntryToSend
from loghub_service.subscription.events import DeliveredRun


def without_native_part(patch: pytest.MonkeyPatch) -> None:
    """Leave everything to Python, as where the wheel is not installed."""
    for name, value in vars(native).items():
        if str(getattr(value, "__module__", "")).startswith("loghub_native"):
            patch.setattr(native, name, native.left_to_python)
    patch.setattr(native, "is_installed", False)
    assert native.acked_entries is native.left_to_python


class SingleAddressee:
    """An addressee of single messages."""

    consumer_id, is_open, turns, is_ordered = 300, True, 0, False

    async def entries_of(self, ordinal: int) -> tuple[EntryToSend, ...] | None: ...

    def leave_out(self, runs: Sequence[DeliveredRun], entries: Sequence[EntryToSend]) -> int: ...

    def give_back(self, logs: int) -> None: ...
