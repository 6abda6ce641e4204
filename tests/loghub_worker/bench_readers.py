"""What it costs to read log groups natively and in Python, in CPU time on one core.

``python -m tests.loghub_worker.bench_readers`` prints how many CPU seconds a million logs of ten fields take,
in log groups of 200, by either implementation of each reader: the check before they are stored, the records
of a Kafka batch, the entries, slots and frames of Pulsar, and rows in Arrow. Then come a million messages of
200 bytes with keys in batches of 200, as logs, and the ids of as many acknowledgements. So the last column is
what a service or a worker without the wheel pays. The shortest of several runs counts, since other programs
can only lengthen one.
"""

import time
from collections.abc import Callable

import pytest

from loghub.domain.log_position import position_of
from loghub.wire import native
from loghub.wire.loggroup import wrap
from loghub.wire.loggroup_validation import scan
from loghub_consumer.reading.decoding import EVERYTHING, Body, Selection, decode
from loghub_service.dispatch.keys import slots_of
from loghub_service.kafka.records.records import batch_of
from loghub_service.pulsar.broker.delivery import Outgoing, frames_in_pieces
from loghub_service.pulsar.broker.dispatch_entries import joined_runs
from loghub_service.pulsar.broker.ids import acked_entries, entry_position
from loghub_service.pulsar.records.entries import GroupToSend, ordered_entries, single_entries
from loghub_service.pulsar.wire.consumers import AckType, CommandAck
from loghub_service.pulsar.wire.frames import LENGTH_BYTES, decode_frame, encode_frame
from loghub_service.pulsar.wire.values import MessageIdData
from tests.loghub_service.pulsar.client_messages import TestMessage, batch, sent
from tests.loghub_service.tiers import SingleAddressee, without_native_part
from tests.loghub_worker.bench_logs import encoded_groups

RUNS, LOGS_OF_GROUP = 7, 200
GROUPS = 40  # 2 MB, about as much as a worker decodes in one step
MILLION = 1_000_000
LIMIT = 5 << 20  # bytes of a message, as in the service
THREE_FIELDS = Selection(view=("__time__",), keys=("method", "path", "status"))


def cpu_s_per_million(work: Callable[[], object]) -> float:
    """The least CPU time of several runs, for a million logs."""
    work()
    best = float("inf")
    for _ in range(RUNS):
        begin = time.process_time()
        work()
        best = min(best, time.process_time() - begin)
    return best / (GROUPS * LOGS_OF_GROUP) * MILLION


def readers_of_pulsar(groups: list[bytes]) -> dict[str, Callable[[], object]]:
    def to_send() -> list[GroupToSend]:  # made for each row: in Python a group keeps its messages
        return [
            GroupToSend(number, group, None, 0, False, LOGS_OF_GROUP) for number, group in enumerate(groups)
        ]

    singles = [tuple(single_entries(group, max_message_bytes=LIMIT)) for group in to_send()]
    reader = SingleAddressee()

    def frames() -> None:
        for number, entries in enumerate(singles):
            runs = [(position_of(number), position_of(number, LOGS_OF_GROUP), 0)]
            out = Outgoing(consumer=reader, shard=0, runs=runs, epoch=None, permits=0, turn=0)
            for _ in frames_in_pieces(out, number, runs, entries, enough_bytes=64 << 10):
                pass

    message = TestMessage(value=b"x" * 200, key="k1")
    entry = batch([message] * LOGS_OF_GROUP)
    ids = tuple(MessageIdData(ledger_id=1, entry_id=n, partition=0) for n in range(LOGS_OF_GROUP))
    ack = encode_frame(CommandAck(consumer_id=1, ack_type=AckType.INDIVIDUAL, message_id=ids))[LENGTH_BYTES:]
    return {
        "batches of Pulsar": lambda: [ordered_entries(each, max_message_bytes=LIMIT) for each in to_send()],
        "entries of Pulsar": lambda: [
            list(single_entries(each, max_message_bytes=LIMIT)) for each in to_send()
        ],
        "frames of these": frames,
        "slots by the key of a log": lambda: [slots_of(each, ()) for each in to_send()],
        "slots by a field": lambda: [slots_of(each, ("path",)) for each in to_send()],
        "a batch of Pulsar as logs": lambda: [sent(entry, messages=LOGS_OF_GROUP) for _ in groups],
        "acknowledged entries": lambda: [runs_of(ack) for _ in groups],
    }


def runs_of(ack: bytes) -> list[tuple[int, int]]:
    """As the endpoint reads an ACK."""
    found = acked_entries(ack)
    if found is not None:
        return found.runs
    command = decode_frame(ack).command
    assert isinstance(command, CommandAck)
    return joined_runs((first, first + 1) for first in map(entry_position, command.message_id))


def main() -> None:
    groups = encoded_groups(LOGS_OF_GROUP)[:GROUPS]
    bodies = [Body(1, wrap(groups))]
    readers = {
        "check of PutLogs": lambda: [scan(group) for group in groups],
        "records of a Kafka batch": lambda: [batch_of(group, raw=False) for group in groups],
        "rows, all columns": lambda: decode(bodies, shard=0, selection=EVERYTHING),
        "rows, three of ten fields": lambda: decode(bodies, shard=0, selection=THREE_FIELDS),
    } | readers_of_pulsar(groups)
    print(f"{'CPU s per million logs':28} {'native':>8} {'Python':>8} {'ratio':>6}")
    for name, read in readers.items():
        natively = cpu_s_per_million(read) if native.is_installed else None
        with pytest.MonkeyPatch.context() as patch:
            without_native_part(patch)
            plainly = cpu_s_per_million(read)
        columns = "      no" if natively is None else f"{natively:8.2f}"
        ratio = "" if natively is None else f"{plainly / natively:6.0f}"
        print(f"{name:28} {columns} {plainly:8.1f} {ratio}")


if __name__ == "__main__":
    main()
