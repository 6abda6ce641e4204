"""Reads the user's Python files from a ConfigMap.

The cluster and `loghub up` accept the same ConfigMaps and reject the others with the same messages.
`loghub_operator.resources.worker_config` makes the files a part of the workers' settings, so a change of a
file is a change of the settings.
"""

from collections.abc import Mapping
from typing import Any

from loghub_operator.api import LogHubConsumerGroup
from loghub_operator.model.observed import UserCode

Document = Mapping[str, Any]


def code_source(resource: LogHubConsumerGroup) -> str | None:
    """Name of the ConfigMap with the pipeline's code, in the object's namespace."""
    code = resource.spec.pipeline.code
    return None if code is None or code.config_map is None else code.config_map.name


def code_in(resource: LogHubConsumerGroup, config_map: Document | None) -> UserCode:
    """The files of the ConfigMap that `code_source` names; ``config_map`` is None if it does not exist."""
    name, code = code_source(resource), resource.spec.pipeline.code
    assert code is not None  # otherwise `code_source` is None
    where = f"ConfigMap {name}"
    if config_map is None:
        return UserCode(error=f"there is no {where} in namespace {resource.metadata.namespace}")
    if config_map.get("binaryData"):
        return UserCode(error=f"{where} has binaryData; code is text, under data")
    files = {str(key): str(value) for key, value in (config_map.get("data") or {}).items()}
    if code.module_file not in files:
        return UserCode(error=f"{where} has no key {code.module_file}, which must contain {code.entry}")
    return UserCode(files=files)
