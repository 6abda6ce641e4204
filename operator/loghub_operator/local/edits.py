"""What becomes of a file that is saved while its group is up: it is applied whole, or rejected in words.

Whatever a file has, `InvalidResourceError` is all that is raised about it: an editor saves half-typed files,
and none of them ends the group.
"""

from loghub_operator.api import InvalidResourceError, LogHubConsumerGroup, Problem, parse_resource
from loghub_operator.local.manifest import CrFile
from loghub_operator.local.object_store import Record
from loghub_operator.local.site import reject_cluster_references
from loghub_operator.model.observed import UserCode


def apply_edit(file: CrFile, record: Record) -> tuple[Record, UserCode]:
    """The stored object and the code with the edit. Raises `InvalidResourceError`, after which nothing has
    changed, and OSError if the disk does not take it."""
    document = file.read()
    changed = parse_resource(document)
    _reject_changed_endpoint(record.resource(), changed)
    code = file.code(changed)
    reject_cluster_references(changed, code)
    return Record.accept(record.folder, document), code


def _reject_changed_endpoint(before: LogHubConsumerGroup, changed: LogHubConsumerGroup) -> None:
    """The connection, its key and the record of who created the group belong to the original endpoint."""
    if changed.spec.endpoint != before.spec.endpoint:
        message = "cannot be changed while the group is up; stop it and start it again"
        raise InvalidResourceError((Problem("spec.endpoint", message),))
