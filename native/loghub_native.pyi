from typing import Protocol

def records_of(group: bytes, raw: bool, most: int) -> tuple[bytes, int, int, int] | None:
    """The records of the first ``most`` logs of a group one after the other, their number, and the times of
    the first and of the youngest in ms; None for a group that only the Python implementation can judge."""

def count_logs(group: bytes) -> int | None:
    """The number of logs in a valid group; None for one that only the Python implementation can judge."""

def entries_of(
    group: bytes,
    raw: bool,
    in_batches: bool,
    common: bytes,
    numbering: tuple[int, int],
    flags: bytes,
    limits: tuple[int, int],
) -> list[tuple[int, int, int, int | None, bytes]] | None:
    """Ordinal, first log, number of logs, the same of a batch, and data of each entry of a group; None for a
    group that only the Python implementation can judge. ``numbering`` is the ordinal of the group and the
    sequence id of its first log, and ``limits`` the most bytes of a payload, and of metadata and payload."""

def slots_of_keys(group: bytes, raw: bool, producer: str, first: int) -> list[int] | None:
    """The slot of each log by its key, or else by the producer and the number of the log, which is ``first``
    for the first one; None as above."""

def slots_of_fields(group: bytes, fields: list[bytes]) -> list[int] | None:
    """The slot of each log by these fields; None as above."""

def logs_of_batch(
    batch: bytes, count: int, publish_ms: int, raw: bool, limits: tuple[int, int, int, int]
) -> tuple[bytes, bytes, int] | None:
    """The log group of a batch of so many messages, the flags of each, and the highest sequence id; None for
    a batch that only the Python implementation can judge. ``limits``: the most bytes of the group, and fields
    of all messages, of one, and properties of one."""

def acked_entries(
    frame: bytes, index_bits: int, most_fields: int
) -> tuple[int, int | None, int, list[tuple[int, int]]] | None:
    """Consumer, request, number of ids, and the positions at which the entries begin as ascending runs, of a
    frame with an ACK of whole entries; None for every other frame."""

class HasData(Protocol):
    """An entry, whose log is larger than a frame if it has no data."""

    @property
    def data(self) -> bytes | None: ...

def frames_of(
    heads: tuple[bytes, bytes, bytes, bytes],
    entries: tuple[HasData, ...],
    runs: list[tuple[int, int, int]],
    begin: tuple[int, tuple[int, int]],
    enough_bytes: int,
) -> tuple[bytes, int, tuple[int, int]]:
    """MESSAGE frames of the logs in some runs, from one log of one run on, until they have so many bytes;
    their number, and where to go on."""

def stored_group(body: bytes, raw_size: int, most_logs: int) -> tuple[int, bytes] | None:
    """The number of logs and the stored form of a log group that came as an LZ4 block; None for one that only
    the Python implementation can judge, that has no logs, or more than ``most_logs``."""

def whole_records(window: bytes, at: int, mark_bytes: int, most: int) -> list[tuple[int, int, int, bytes]]:
    """Cursor, time of receipt, number of logs and log group of each of at most ``most`` records that follow
    each other from ``at`` on, up to the first one that only the Python implementation can judge."""

def lz4_list(groups: list[bytes]) -> tuple[bytes, int] | None:
    """The LogGroupList of these stored groups as an LZ4 block, and its size without compression; None for
    groups that only the Python implementation can join."""

class PutRequest:
    """A PutLogs request that is complete, and not yet authenticated."""

    key_id: str
    host: str
    date: str
    logstore: str
    hash_key: str | None
    body_bytes: int
    raw_size: int

    def stored(self, secret: str, most_logs: int) -> tuple[int, bytes] | None:
        """What `stored_group` returns; None also unless head and body are signed with this secret."""

def put_request(data: bytes, most_headers: int, most_head_bytes: int) -> PutRequest | None:
    """The request in ``data``; None for any other request, and for one that only the Python implementation
    can judge."""

class CallRequest:
    """A small request about a group or a shard of a logstore that is complete, and not yet authenticated."""

    key_id: str
    host: str
    date: str
    method: str
    path: str
    parts: tuple[str, str, str, str]
    query: dict[str, str]
    body: bytes

    def is_signed(self, secret: str) -> bool:
        """Whether head and body are signed with this secret."""

def call_request(data: bytes, most_headers: int, most_head_bytes: int) -> CallRequest | None:
    """The request in ``data``; None as above."""

class Buffer:
    """Memory that never changes, read through the buffer protocol."""

    def __len__(self) -> int: ...
    def __buffer__(self, flags: int, /) -> memoryview: ...

TextColumn = tuple[Buffer, Buffer]  # the ends of the texts and the texts, as in Arrow
PairColumn = tuple[Buffer, TextColumn, TextColumn]  # the ends of the lists of pairs, keys, values

class DecodedLists:
    """The columns of some LogGroupLists, in Arrow's layout; `native/src/lists.rs` describes each."""

    groups: list[int]
    first_rows: Buffer
    topics: TextColumn
    sources: TextColumn
    tags: PairColumn
    group_of_log: Buffer
    times_us: Buffer
    time_ns: tuple[Buffer, int, Buffer]
    contents: PairColumn | None
    keys: list[tuple[Buffer, int, TextColumn]]

def decode_lists(bodies: list[bytes], keys: list[str], contents: bool) -> DecodedLists | None:
    """The columns of these lists, of these keys, and of the contents if wanted; None for lists that only the
    Python implementation can judge."""
