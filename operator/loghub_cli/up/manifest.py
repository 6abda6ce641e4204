"""Reads the user's file for `loghub up -f`: a LogHubConsumerGroup and the ConfigMap with its code.

The file is read again whenever it changes. The error messages come from `loghub_operator.api.parse`.
"""

from pathlib import Path
from typing import Any

from loghub.near_names import did_you_mean
from loghub_operator.api import InvalidResourceError, LogHubConsumerGroup, Problem, resources_in
from loghub_operator.api.documents import documents_in
from loghub_operator.api.v1alpha1 import EMBEDDED
from loghub_operator.model.observed import UserCodeFiles
from loghub_operator.resources.metadata import code_in, code_source

Document = dict[str, Any]
MAX_BYTES = 3 << 20  # the limit of an API server


class CrFile:
    """The user's file; `changed` is true once for every change."""

    def __init__(self, path: Path, name: str | None, *, embedded: str | None = None) -> None:
        """``embedded`` is the URL that `endpoint: embedded` means; None: the service on this machine."""
        self._path = path
        self._name = name
        self._embedded = embedded
        self._stamp = self._file_stamp()
        self._config_maps: tuple[Document, ...] = ()

    def changed(self) -> bool:
        """Whether the file was saved since the last call. A file that does not exist has not changed."""
        stamp = self._file_stamp()
        if stamp is None or stamp == self._stamp:
            return False
        self._stamp = stamp
        return True

    def read(self) -> Document:
        """Reads the object as the user wrote it, with the URL for `endpoint: embedded`: what is recorded of a
        group is about one log service. Raises `InvalidResourceError`."""
        try:
            with self._path.open("rb") as file:
                content = file.read(MAX_BYTES + 1)
        except OSError as error:
            raise _invalid(f"{self._path}: {error.strerror}") from None
        if len(content) > MAX_BYTES:
            raise _invalid(f"{self._path} is larger than {MAX_BYTES >> 20} MiB")
        try:
            text = content.decode()
        except UnicodeDecodeError:
            raise _invalid(f"{self._path} is not UTF-8 text") from None
        picked = self._pick(resources_in(text))
        self._config_maps = documents_in(text, "v1", "ConfigMap")
        spec = picked.get("spec")
        if self._embedded is None or not isinstance(spec, dict) or spec.get("endpoint", EMBEDDED) != EMBEDDED:
            return picked
        return {**picked, "spec": {**spec, "endpoint": self._embedded}}

    def code(self, resource: LogHubConsumerGroup) -> UserCodeFiles:
        """The pipeline's code from a ConfigMap in the same file, as last read."""
        name = code_source(resource)
        if name is None:
            return UserCodeFiles()
        return code_in(resource, next((one for one in self._config_maps if _is_named(one, name)), None))

    def _pick(self, groups: tuple[Document, ...]) -> Document:
        names = [str((one.get("metadata") or {}).get("name")) for one in groups]
        if not groups:
            raise _invalid(f"{self._path} has no LogHubConsumerGroup of loghub.dev")
        if self._name is not None:
            if self._name not in names:
                hint = did_you_mean(self._name, names)
                raise _invalid(f"{self._path} has no LogHubConsumerGroup {self._name}{hint}")
            return groups[names.index(self._name)]
        if len(groups) > 1:
            raise _invalid(f"{self._path} has {len(groups)}; choose one with --name: {', '.join(names)}")
        return groups[0]

    def _file_stamp(self) -> tuple[int, int, int] | None:
        try:
            stat = self._path.stat()
        except OSError:
            return None
        return stat.st_mtime_ns, stat.st_size, stat.st_ino


def _is_named(config_map: Document, name: str) -> bool:
    metadata = config_map.get("metadata")
    return isinstance(metadata, dict) and metadata.get("name") == name


def _invalid(message: str) -> InvalidResourceError:
    return InvalidResourceError((Problem("(file)", message),))


def apiserver_message(document: Document, error: InvalidResourceError) -> str:
    """The validation error as `kubectl apply` prints it."""
    metadata = document.get("metadata")
    name = metadata.get("name") if isinstance(metadata, dict) else None
    lines = "\n".join(f"* {problem}" for problem in error.problems)
    return f'The LogHubConsumerGroup "{name or ""}" is invalid:\n{lines}'
