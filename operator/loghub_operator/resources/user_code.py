"""The user's Python files, out of a ConfigMap.

What for: the cluster and `loghub up` take the same ConfigMap and refuse it in the same words. What
it must not know: where the ConfigMap was found. Read next: `loghub_operator.resources.worker_config`, which
makes the files a part of the workers' settings: whoever changes a file changes the settings."""

from collections.abc import Mapping
from typing import Any

from loghub_operator.api import LogHubConsumerGroup
from loghub_operator.model.observed import Code

Document = Mapping[str, Any]


def code_source(resource: LogHubConsumerGroup) -> str | None:
    """Name of the ConfigMap that the pipeline takes its code from, in the object's namespace."""
    python = resource.spec.pipeline.python
    return None if python is None or python.config_map is None else python.config_map.name


def code_in(resource: LogHubConsumerGroup, found: Document | None) -> Code:
    """The files of the ConfigMap that `code_source` names; None: there is none."""
    name, python = code_source(resource), resource.spec.pipeline.python
    assert python is not None  # else it has no source
    where = f"ConfigMap {name}"
    if found is None:
        return Code(trouble=f"there is no {where} in namespace {resource.metadata.namespace}")
    if found.get("binaryData"):
        return Code(trouble=f"{where} has binaryData; code is text, under data")
    files = {str(key): str(value) for key, value in (found.get("data") or {}).items()}
    wanted = f"{python.function.partition(':')[0]}.py"
    if wanted not in files:
        return Code(trouble=f"{where} has no key {wanted}, which must contain {python.function}")
    return Code(files=files)
