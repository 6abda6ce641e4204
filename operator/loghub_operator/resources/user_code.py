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
    python = resource.spec.pipeline.python
    return None if python is None or python.config_map is None else python.config_map.name


def code_in(resource: LogHubConsumerGroup, config_map: Document | None) -> UserCode:
    """The files of the ConfigMap that `code_source` names; ``config_map`` is None if it does not exist."""
    name, python = code_source(resource), resource.spec.pipeline.python
    assert python is not None  # otherwise `code_source` is None
    where = f"ConfigMap {name}"
    if config_map is None:
        return UserCode(error=f"there is no {where} in namespace {resource.metadata.namespace}")
    if config_map.get("binaryData"):
        return UserCode(error=f"{where} has binaryData; code is text, under data")
    files = {str(key): str(value) for key, value in (config_map.get("data") or {}).items()}
    key = f"{python.function.partition(':')[0]}.py"
    if key not in files:
        return UserCode(error=f"{where} has no key {key}, which must contain {python.function}")
    return UserCode(files=files)
