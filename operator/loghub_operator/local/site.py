"""What a worker takes from its cluster, and from where it takes it on this machine.

What for: the pipeline's code, claims and variables for `loghub up`; what this machine has no source
for is refused before anything starts. What it must not know: processes. Read next:
`loghub_operator.resources.user_code`, `loghub_operator.local.manifest` (whose file the ConfigMap stands in).
"""

from pathlib import Path

from loghub_operator.api import InvalidResourceError, LogHubConsumerGroup, Problem
from loghub_operator.model.observed import Code, Placement


def site_at(resource: LogHubConsumerGroup, *, endpoint: str, volumes: Path, code: Code) -> Placement:
    """A claim is a folder of its name; a loopback address needs no name."""
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
    """The user's own, for every worker."""
    return {one.name: one.value or "" for one in resource.spec.worker.env}


def refuse_what_is_not_here(resource: LogHubConsumerGroup, code: Code) -> None:
    """Raises `InvalidResourceError` with everything that only a cluster could give."""
    no_objects = "there are no Secrets and ConfigMaps on this machine; give a value"
    problems = [
        Problem(f"spec.worker.env[{number}].valueFrom", no_objects)
        for number, one in enumerate(resource.spec.worker.env)
        if one.value_from is not None
    ]
    if code.trouble:
        words = f"{code.trouble}; on this machine it must be a document in the same file"
        problems.append(Problem("spec.pipeline.python.configMap", words))
    if problems:
        raise InvalidResourceError(tuple(problems))
