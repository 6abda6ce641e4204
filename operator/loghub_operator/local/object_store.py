"""What is remembered of one consumer group between two runs: the object, as the apiserver would keep it.

What for: identity, generation, the deletion, whether we made the group, the last status; so that
an immutable field stays so, and `loghub down` knows what to take down. What it must not know:
workers, the log service. Read next: `loghub_operator.local.reconcile_loop`.
"""

import copy
import json
import uuid
from dataclasses import dataclass
from typing import Any

from loghub.atomic_file import replace_file
from loghub_operator.api import LogHubConsumerGroup, Status, parse_resource
from loghub_operator.api.adoption import ANNOTATIONS, GroupOrigin, origin_annotations, read_origin
from loghub_operator.api.conditions import rfc3339
from loghub_operator.local.paths import GroupFolder

Document = dict[str, Any]


@dataclass(slots=True)
class Record:
    """One object and the file it is kept in.

    Every change is on disk when the method returns; with an `OSError` nothing is changed.
    """

    folder: GroupFolder
    document: Document

    @classmethod
    def load(cls, folder: GroupFolder) -> "Record | None":
        """What an earlier run left; None where there is nothing that can be read."""
        try:
            document = json.loads(folder.object.read_text())
        except (OSError, ValueError):
            return None
        return cls(folder, document) if isinstance(document, dict) else None

    @classmethod
    def accept(cls, folder: GroupFolder, written: Document) -> "Record":
        """Take what a user wrote, new or changed. Raises `InvalidResourceError`, changing nothing."""
        old = cls.load(folder)
        made = copy.deepcopy({key: value for key, value in written.items() if key != "status"})
        metadata = made.setdefault("metadata", {})
        if old is None:
            parse_resource(made)
            metadata.update(uid=str(uuid.uuid4()), generation=1)
        else:
            parse_resource(made, old=old.resource())
            before = old.document["metadata"]
            changed = made.get("spec") != old.document.get("spec")
            metadata.update(uid=before["uid"], generation=before["generation"] + changed)
            _keep_origin(metadata, before)
            made["status"] = old.document.get("status", {})
        record = cls(folder, made)
        record._keep(made)
        return record

    def resource(self) -> LogHubConsumerGroup:
        """The object as `plan` takes it."""
        return parse_resource(self.document)

    @property
    def origin(self) -> GroupOrigin | None:
        return read_origin(self.resource())

    def set_origin(self, origin: GroupOrigin) -> None:
        marks = origin_annotations(origin, self.resource())
        metadata = self.document["metadata"]
        annotations = {**(metadata.get("annotations") or {}), **marks}
        self._keep({**self.document, "metadata": {**metadata, "annotations": annotations}})

    def set_deleted(self, now_unix_s: float) -> None:
        """The object is to go; the first time counts."""
        metadata = {"deletionTimestamp": rfc3339(now_unix_s), **self.document["metadata"]}
        self._keep({**self.document, "metadata": metadata})

    def set_status(self, status: Status) -> None:
        self._keep({**self.document, "status": status.to_dict()})

    def _keep(self, document: Document) -> None:
        self.folder.folder.mkdir(parents=True, exist_ok=True)
        replace_file(self.folder.object, json.dumps(document, indent=1).encode())
        self.document = document

    def forget(self) -> None:
        """The object is gone."""
        self.folder.object.unlink(missing_ok=True)


def _keep_origin(metadata: Document, before: Document) -> None:
    known = before.get("annotations") or {}
    kept = {name: known[name] for name in ANNOTATIONS if name in known}
    if kept:
        metadata["annotations"] = {**(metadata.get("annotations") or {}), **kept}
