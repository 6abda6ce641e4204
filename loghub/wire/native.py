"""The native part of service and worker, if its wheel is installed: much faster than Python, and never
needed.

Each function answers None for input that only the implementation in Python can judge, and for all input if
the wheel is not installed. Only this module knows whether it is. The source is in the folder ``native``;
docs/decisions/kafka.md says what it may do and how it is built.
"""

from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from loghub_native import CallRequest, DecodedLists, HasData, PutRequest

_Run = tuple[int, int]
# A log group, whether its form is raw, and the maximum of logs -> their records, the number of records, the
# times of the first and of the youngest in ms; None for a group that only the implementation in Python can
# judge.
RecordsOf = Callable[[bytes, bool, int], tuple[bytes, int, int, int] | None]
# The number of logs in a group that is certainly valid; None for a group that only Python can judge.
CountLogs = Callable[[bytes], int | None]
# The LZ4 block of a log group, its size without compression, and the maximum of logs -> their number and the
# form in which the service stores the group; None for a block that only Python can judge.
StoredGroup = Callable[[bytes, int, int], tuple[int, bytes] | None]
# An HTTP request, and the maxima of headers and of bytes of a head -> a PutLogs with a signature of version 1
# and a log group in LZ4 that is complete; None for any other request, which only Python can judge.
ReadPutRequest = Callable[[bytes, int, int], "PutRequest | None"]
# The same arguments -> a request about a group or a shard of a logstore with parameters that are not escaped;
# None for any other request.
ReadCallRequest = Callable[[bytes, int, int], "CallRequest | None"]
# Bytes of a segment, where a record begins, how many bytes end each, and the most records -> cursor, time
# of receipt, number of logs and stored form of the log group of each record, up to the first one that only
# Python can judge.
WholeRecords = Callable[[bytes, int, int, int], list[tuple[int, int, int, bytes]] | None]
# Log groups in their stored form -> their list as an LZ4 block, and its size without compression; None for
# groups that only Python can join.
Lz4List = Callable[[list[bytes]], tuple[bytes, int] | None]
# Some LogGroupLists, keys, and whether the contents are wanted -> their columns; None for lists that only
# Python can judge.
DecodeLists = Callable[[list[bytes], list[str], bool], "DecodedLists | None"]
# A log group, whether its form is raw and its entries are batches, the metadata of all entries, the ordinal
# of the group and the sequence id of its first log, the flags of each message or of all, and the most bytes
# of a payload, and of metadata and payload -> the fields of each entry, as `EntryToSend` has them.
EntriesOf = Callable[
    [bytes, bool, bool, bytes, tuple[int, int], bytes, tuple[int, int]],
    list[tuple[int, int, int, int | None, bytes]] | None,
]
# A log group, whether its form is raw, a producer, and the number of the first log -> the slot of each log.
SlotsOfKeys = Callable[[bytes, bool, str, int], list[int] | None]
# A log group, and the names of fields -> the slot of each log.
SlotsOfFields = Callable[[bytes, list[bytes]], list[int] | None]
# The payload of a batch, the number of its messages, when it was published in ms, whether its form is raw,
# and the most bytes of the group, and fields of all messages, of one, and properties of one -> the log group,
# the flags of each message, and the highest sequence id.
LogsOfBatch = Callable[[bytes, int, int, bool, tuple[int, int, int, int]], tuple[bytes, bytes, int] | None]
# A frame with its command, the bits of an index in a position, and the most fields -> consumer, request, the
# number of ids, and the positions at which the entries begin as ascending runs; None unless it is an ACK of
# whole entries.
AckedEntries = Callable[[bytes, int, int], tuple[int, int | None, int, list[_Run]] | None]
# The parts that the heads of frames have in common, entries, runs of positions with the number of
# redeliveries, the position of the first entry with the run and the index to begin at, and how many bytes are
# enough -> frames, their number, and the run and the index to go on at.
FramesOf = Callable[
    [
        tuple[bytes, bytes, bytes, bytes],
        tuple["HasData", ...],
        list[tuple[int, int, int]],
        tuple[int, _Run],
        int,
    ],
    tuple[bytes, int, _Run] | None,
]


def left_to_python(*_: object) -> None:
    """The answer of every function where there is no native part."""


try:
    import loghub_native

    records_of: RecordsOf = loghub_native.records_of
    count_logs: CountLogs = loghub_native.count_logs
    stored_group: StoredGroup = loghub_native.stored_group
    put_request: ReadPutRequest = loghub_native.put_request
    call_request: ReadCallRequest = loghub_native.call_request
    whole_records: WholeRecords = loghub_native.whole_records
    lz4_list: Lz4List = loghub_native.lz4_list
    decode_lists: DecodeLists = loghub_native.decode_lists
    entries_of: EntriesOf = loghub_native.entries_of
    slots_of_keys: SlotsOfKeys = loghub_native.slots_of_keys
    slots_of_fields: SlotsOfFields = loghub_native.slots_of_fields
    logs_of_batch: LogsOfBatch = loghub_native.logs_of_batch
    acked_entries: AckedEntries = loghub_native.acked_entries
    frames_of: FramesOf = loghub_native.frames_of
    is_installed = True
# The wheel is missing, or belongs to an older checkout and lacks a function
except (ImportError, AttributeError):
    records_of = count_logs = stored_group = put_request = call_request = left_to_python
    decode_lists = whole_records = lz4_list = left_to_python
    entries_of = slots_of_keys = slots_of_fields = logs_of_batch = acked_entries = frames_of = left_to_python
    is_installed = False
