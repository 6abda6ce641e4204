"""Provides on this machine what a cluster provides to a worker: code, volume claims and variables.

Code comes from the user's file (`loghub_operator.local.manifest`), claims are folders. A resource that refers
to something that only a cluster can provide is rejected before anything starts.
"""

from pathlib import Path

from loghub_operator.api import InvalidResourceError, LogHubConsumerGroup, Problem
from loghub_operator.model.observed import Code, Placement


def local_placement(resource: LogHubConsumerGroup, *, endpoint: str, volumes: Path, code: Code) -> Placement:
    """The placement on this machine. A claim is a folder of the same name; a loopback address needs no host
    name for the project."""
    files, python = resource.spec.pipeline.sink.files, resource.spec.pipeline.python
    claim = None if python is None else python.volume_claim
    return Placement(
        endpoint=endpoint,
        sink_root=str(volumes / files.volume_claim if files is not None else volumes),
        needs_project_address=False,
        code_root=str(volumes / claim.name if claim is not None else volumes),
        code=code,
    )


def variables_of(resource: LogHubConsumerGroup) -> dict[str, str]:
    """The user's own variables for every worker."""
    return {one.name: one.value or "" for one in resource.spec.worker.env}


def reject_cluster_references(resource: LogHubConsumerGroup, code: Code) -> None:
    """Raises `InvalidResourceError` with every reference to something that only a cluster can provide."""
    no_objects = "there are no Secrets and ConfigMaps on this machine; give a value"
    problems = [
        Problem(f"spec.worker.env[{number}].valueFrom", no_objects)
        for number, one in enumerate(resource.spec.worker.env)
        if one.value_from is not None
    ]
    if code.trouble:
        message = f"{code.trouble}; on this machine it must be a document in the same file"
        problems.append(Problem("spec.pipeline.python.configMap", message))
    if problems:
        raise InvalidResourceError(tuple(problems))
