"""Stores the object of one consumer group between runs, as an API server would.

The stored object has an identity, a generation, the deletion time, the record of who created the consumer
group, and the last status. With it, immutable fields stay immutable, and `loghub down` knows what to remove.
"""

import copy
import json
import uuid
from dataclasses import dataclass
from typing import Any

from loghub.atomic_file import replace_file
from loghub_cli.up.folder_identity import Ownership
from loghub_cli.up.paths import GroupFolder
from loghub_operator.api import (
    InvalidResourceError,
    LogHubConsumerGroup,
    Problem,
    Status,
    parse_resource,
    parse_stored,
)
from loghub_operator.api.adoption import ANNOTATIONS, GroupRecord, read_record, record_annotations
from loghub_operator.api.conditions import rfc3339

Document = dict[str, Any]
_USERS = ("name", "namespace", "labels", "annotations")  # of the metadata
_RENAMED = Problem(
    "metadata.name",
    "cannot be changed: it would be another group, which reads from its start; end this one, and start that",
)


@dataclass(slots=True)
class LocalObject:
    """An object and the file that stores it.

    Every change is on disk when the method returns; if it raises `OSError`, nothing has changed.
    """

    folder: GroupFolder
    document: Document

    @classmethod
    def load(cls, folder: GroupFolder) -> "LocalObject | None":
        """Loads the object of an earlier run; None if there is none, or if it cannot be read."""
        try:
            document = json.loads(folder.object.read_text())
        except (OSError, ValueError):
            return None
        is_object = isinstance(document, dict) and isinstance(document.get("metadata"), dict)
        return cls(folder, document) if is_object else None

    @classmethod
    def accept(cls, folder: GroupFolder, written: Document) -> "LocalObject":
        """Stores the user's object, new or changed. If it raises `InvalidResourceError`, nothing changes."""
        old = cls.load(folder)
        document = copy.deepcopy({key: value for key, value in written.items() if key != "status"})
        parsed = parse_resource(document, old=None if old is None else old.resource())
        document["metadata"] = metadata = _of_the_user(document["metadata"])
        if old is None:
            folder.remove_states()
            metadata.update(uid=str(uuid.uuid4()), generation=1)
        else:
            before = old.document["metadata"]
            if parsed.metadata.name != before["name"]:
                raise InvalidResourceError((_RENAMED,))
            changed = document.get("spec") != old.document.get("spec")
            metadata.update(uid=before["uid"], generation=before["generation"] + changed)
            _preserve_group_record(metadata, before)
            document["status"] = old.document.get("status", {})
        record = cls(folder, document)
        record._save(document)
        Ownership(folder.folder).claim()
        return record

    def resource(self) -> LogHubConsumerGroup:
        """The parsed object, as `loghub_operator.plan` expects it. Another release may have stored it."""
        try:
            return parse_stored(self.document)
        except InvalidResourceError as error:
            what = f"cannot be read ({error}); remove it to start again"
            raise InvalidResourceError((Problem(str(self.folder.object), what),)) from None

    @property
    def group_record(self) -> GroupRecord | None:
        return read_record(self.resource())

    def set_group_record(self, record: GroupRecord) -> None:
        added = record_annotations(record, self.resource())
        metadata = self.document["metadata"]
        annotations = {**(metadata.get("annotations") or {}), **added}
        self._save({**self.document, "metadata": {**metadata, "annotations": annotations}})

    def set_deleted(self, now_unix_s: float) -> None:
        """Marks the object as deleted; the time of the first call is kept."""
        metadata = {"deletionTimestamp": rfc3339(now_unix_s), **self.document["metadata"]}
        self._save({**self.document, "metadata": metadata})

    def set_status(self, status: Status) -> None:
        self._save({**self.document, "status": status.to_dict()})

    def _save(self, document: Document) -> None:
        self.folder.folder.mkdir(parents=True, exist_ok=True)
        replace_file(self.folder.object, json.dumps(document, indent=1).encode())
        self.document = document

    def forget(self) -> None:
        """Removes the object and the states of its workers: another one of its name begins without, as in a
        cluster, and would skip what they have read.
        """
        self.folder.remove_states()
        self.folder.object.unlink(missing_ok=True)


def _of_the_user(metadata: Document) -> Document:
    """Without what an API server sets itself and would ignore here. A file that `kubectl get -o yaml` wrote
    has it, about an object of a cluster: its deletion, for example, and who created its group.
    """
    kept = {key: value for key, value in metadata.items() if key in _USERS}
    if kept.get("annotations"):
        annotations = kept["annotations"].items()
        kept["annotations"] = {key: value for key, value in annotations if key not in ANNOTATIONS}
    return kept


def _preserve_group_record(metadata: Document, before: Document) -> None:
    annotations = before.get("annotations") or {}
    preserved = {name: annotations[name] for name in ANNOTATIONS if name in annotations}
    if preserved:
        metadata["annotations"] = {**(metadata.get("annotations") or {}), **preserved}
