"""`shard.json` in a shard's folder: what the log data belongs to, in case the catalog is lost.

It is written when the shard is created, and contains only what never changes. `loghub fsck` adopts log data
by it; the running service does not read it.
"""

import msgspec

from loghub.domain.hashrange import BadHashKey, HashRange
from loghub.service.facts import FORM_OPTION, LogstoreSaved, ShardSaved
from loghub.service.ports import Disk
from loghub.service.storage.durable_file import read_small, replace_durably

DESCRIPTION_NAME = "shard.json"


class ShardDescription(msgspec.Struct, frozen=True, kw_only=True):
    """The file's fields. A shard is read-only if it is a parent of another one. ``form`` is that of its
    records for Kafka clients; "" by default, and in a file of an earlier release."""

    project: str
    logstore: str
    shard: int
    begin_key: str
    end_key: str
    parents: tuple[int, ...]
    born_us: int
    first_cursor: int
    first_ordinal: int = 0
    form: str = ""


def describe(logstore: LogstoreSaved, shard: ShardSaved) -> ShardDescription:
    return ShardDescription(
        project=logstore.project,
        logstore=logstore.name,
        shard=shard.shard,
        begin_key=shard.spec.keys.begin_key,
        end_key=shard.spec.keys.end_key,
        parents=shard.spec.parents,
        born_us=shard.born_us,
        first_cursor=shard.first_cursor,
        first_ordinal=logstore.first_ordinal,
        form=str(msgspec.json.decode(logstore.options).get(FORM_OPTION, "")),
    )


def is_described(disk: Disk, folder: str, description: ShardDescription) -> bool:
    """Whether the file has the form of records, which earlier releases left out. Raises OSError."""
    return not description.form or read_description(disk, folder) == description


def write_description(disk: Disk, folder: str, description: ShardDescription) -> None:
    """Write the file durably. Raises OSError."""
    replace_durably(disk, folder, DESCRIPTION_NAME, msgspec.json.encode(description))


def read_description(disk: Disk, folder: str) -> ShardDescription | None:
    """The file's content; None if it does not exist or is damaged."""
    content = read_small(disk, folder, DESCRIPTION_NAME)
    try:
        description = None if content is None else msgspec.json.decode(content, type=ShardDescription)
        if description is not None:
            HashRange.parse(begin_key=description.begin_key, end_key=description.end_key)
    except (msgspec.DecodeError, UnicodeDecodeError, BadHashKey):
        return None
    return description
