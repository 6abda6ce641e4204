"""The form in which a log group is stored: as it is, or as an LZ4 block.

A block need not be compressed again for every consumer that pulls it, and takes less room and time on the
disk. Its form begins with a zero byte, with which no log group begins, since no field has number 0::

    u8  0
    u8  1           LZ4 block
    u16 0
    u32 raw_size    bytes of the log group
    u32 last        offset of the block's last sequence
    ..              the block

Before it may be whose batch it is. If an idempotent producer of Kafka has sent it::

    u8  0
    u8  2           origin
    i16 epoch
    i32 partition   that the producer addressed
    i64 producer_id
    i32 first       sequence of the first log
    ..              one of the forms above

If it was sent over Pulsar::

    u8  0
    u8  3           origin
    u16 0
    u32 size        bytes of the origin
    ..              the origin, packed (`loghub_service.pulsar.origin`)
    ..              one of the forms above

Segments before format 3 contain log groups as they are only.
"""

import struct
from collections.abc import Iterable

import msgspec

from loghub.wire import compression, native
from loghub.wire import compression as lz4_joining
from loghub.wire.compression import Block, Compression, Literals, Packed
from loghub.wire.errors import MalformedCompression
from loghub.wire.loggroup import list_header
from loghub_service.kafka.producers import BatchOrigin
from loghub_service.pulsar.origin import PulsarOrigin, pack_origin, unpack_origin
from loghub_service.storage.segment import LogDamaged

_HEAD = struct.Struct("<BBHII")
_ORIGIN_HEAD = struct.Struct("<BBhiqi")
_PULSAR_HEAD = struct.Struct("<BBHI")
_LZ4, _ORIGIN, _PULSAR_ORIGIN = 1, 2, 3
_ORIGIN_BEGIN = bytes((0, _ORIGIN))
_PULSAR_BEGIN = bytes((0, _PULSAR_ORIGIN))
# The work for a smaller group is more than compressing it costs when it is pulled, together with others.
MIN_BYTES = 1 << 10


def with_origin(stored: bytes, origin: BatchOrigin) -> bytes:
    """The form to store of a batch whose log group is stored in this form."""
    producer_id, epoch, partition, first = origin
    return _ORIGIN_HEAD.pack(0, _ORIGIN, epoch, partition, producer_id, first) + stored


def origin_of(stored: bytes) -> BatchOrigin | None:
    """None if no idempotent producer has sent it. Raises LogDamaged."""
    if stored[:2] != _ORIGIN_BEGIN:
        return None
    try:
        _, _, epoch, partition, producer_id, first = _ORIGIN_HEAD.unpack_from(stored)
    except struct.error as error:
        raise LogDamaged("a stored log group is truncated") from error
    return BatchOrigin(producer_id=producer_id, epoch=epoch, partition=partition, first=first)


def with_pulsar_origin(stored: bytes, origin: PulsarOrigin) -> bytes:
    """The form to store of what a SEND of Pulsar carries, whose log group is stored in this form."""
    block = pack_origin(origin)
    return b"".join((_PULSAR_HEAD.pack(0, _PULSAR_ORIGIN, 0, len(block)), block, stored))


def pulsar_origin_of(stored: bytes) -> PulsarOrigin | None:
    """None if it was not sent over Pulsar. Raises LogDamaged."""
    if stored[:2] != _PULSAR_BEGIN:
        return None
    try:
        return unpack_origin(stored[_PULSAR_HEAD.size : _origin_end(stored)])
    except msgspec.DecodeError as error:
        raise LogDamaged(f"the origin of a stored log group is damaged: {error}") from error


def _without_origin(stored: bytes) -> bytes:
    end = _origin_end(stored)
    return stored[end:] if end else stored


def _origin_end(stored: bytes) -> int:
    """Where the log group begins. Raises LogDamaged."""
    if stored[:2] == _ORIGIN_BEGIN:
        end = _ORIGIN_HEAD.size
    elif stored[:2] == _PULSAR_BEGIN and len(stored) > _PULSAR_HEAD.size:
        end = _PULSAR_HEAD.size + _PULSAR_HEAD.unpack_from(stored)[3]
    else:
        return 0
    if len(stored) <= end:
        raise LogDamaged("a stored log group is truncated")
    return end


def packed(group: bytes, received: bytes | None = None) -> bytes:
    """The form to store of a log group; ``received`` is the LZ4 block in which it came, if it did."""
    if len(group) < MIN_BYTES:
        return group
    last = None
    if received is not None and lz4_joining.is_strict(received) and len(received) < len(group):
        last = lz4_joining.end_of_copies(received, raw_size=len(group))
    if received is not None and last is not None:
        return _HEAD.pack(0, _LZ4, 0, len(group), last) + received
    ours = lz4_joining.compressed(group)
    if isinstance(ours, Literals):
        return group
    return _HEAD.pack(0, _LZ4, 0, len(group), ours.last) + ours.data


def raw_size(stored: bytes) -> int:
    """The size of the log group in bytes. Raises LogDamaged."""
    stored = _without_origin(stored)
    if stored[0]:
        return len(stored)
    size: int = _unpack(stored)[3]
    return size


def unpacked(stored: bytes) -> bytes:
    """The log group. Raises LogDamaged."""
    stored = _without_origin(stored)
    if stored[0]:
        return stored
    size = raw_size(stored)
    try:
        return compression.decompress(stored[_HEAD.size :], Compression.LZ4, raw_size=size, max_size=size)
    except MalformedCompression as error:
        raise LogDamaged(f"a stored log group is damaged: {error}") from error


def packed_list(stored: bytes) -> Packed:
    """The LogGroupList of this group alone, compressed if it is stored so. Raises LogDamaged."""
    one = _without_origin(stored)
    size = raw_size(one)
    header = list_header(size)
    if one[0]:
        return Packed.plain(bytes(header) + one)
    parts = (Literals(header), Block(memoryview(one)[_HEAD.size :], _unpack(one)[4]))
    return Packed(lz4_joining.join(parts), len(header) + size, Compression.LZ4)


def lz4_list(stored: Iterable[bytes]) -> tuple[bytes, int]:
    """The LogGroupList of these stored groups as an LZ4 block, and its size without compression. Raises
    LogDamaged."""
    stored = list(stored)
    if (joined := native.lz4_list(stored)) is not None:
        return joined
    parts: list[Block | Literals] = []
    plain = bytearray()  # what is not compressed yet
    total = 0
    for one in map(_without_origin, stored):
        size = raw_size(one)
        header = list_header(size)
        total += len(header) + size
        plain += header
        if one[0]:
            plain += one
            continue
        parts.append(lz4_joining.compressed(plain) if len(plain) >= MIN_BYTES else Literals(bytes(plain)))
        parts.append(Block(memoryview(one)[_HEAD.size :], _unpack(one)[4]))
        plain = bytearray()
    if plain:
        parts.append(lz4_joining.compressed(plain))
    return lz4_joining.join(parts), total


def _unpack(stored: bytes) -> tuple[int, ...]:
    try:
        found = _HEAD.unpack_from(stored)
    except struct.error as error:
        raise LogDamaged("a stored log group is truncated") from error
    if found[1:3] != (_LZ4, 0):
        raise LogDamaged(f"this release does not know the form {found[1]} of a stored log group")
    return found
