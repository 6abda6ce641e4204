"""Provides on this machine what a cluster provides to a worker: code, volume claims and variables.

Code comes from the user's file (`loghub_operator.local.manifest`), claims are folders. A resource that refers
to something that only a cluster can provide is rejected before anything starts.
"""

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path

from loghub.worker_contract import WorkerConfig
from loghub_operator.api import InvalidResourceError, LogHubConsumerGroup, Problem
from loghub_operator.model.observed import Placement, UserCode
from loghub_operator.model.revision import Revision, WorkerSpec
from loghub_operator.resources.worker_config import config_hash, worker_config


def local_placement(
    resource: LogHubConsumerGroup, *, endpoint: str, volumes: Path, code: UserCode
) -> Placement:
    """The placement on this machine. A claim is a folder of the same name; a loopback address needs no host
    name for the project."""
    written, given = resource.spec.pipeline.sink_volume_claim, resource.spec.pipeline.code
    claim = None if given is None else given.volume_claim
    rejected = resource.spec.pipeline.on_failure.folder
    log_file = resource.spec.worker.log.file
    log_claim = None if log_file is None else log_file.volume_claim
    return Placement(
        endpoint=endpoint,
        sink_root=str(volumes / written if written is not None else volumes),
        needs_project_address=False,
        code_root=str(volumes / claim.name if claim is not None else volumes),
        dead_letter_root=str(volumes / rejected.volume_claim if rejected is not None else volumes),
        log_root=str(volumes / log_claim if log_claim is not None else volumes),
        code=code,
    )


def variables_of(resource: LogHubConsumerGroup) -> dict[str, str]:
    """The user's own variables for every worker."""
    return {one.name: one.value or "" for one in resource.spec.worker.env}


def local_worker_spec(
    resource: LogHubConsumerGroup, placement: Placement, *, last_initial_shard: int | None
) -> WorkerSpec:
    """What the workers run with on this machine."""
    config = worker_config(resource, placement, last_initial_shard=last_initial_shard)
    revision = revision_of(config, variables_of(resource), generation=resource.metadata.generation)
    return WorkerSpec(revision=revision, config=config)


def revision_of(config: WorkerConfig, variables: Mapping[str, str], *, generation: int) -> Revision:
    """The user's variables take the place of a pod template."""
    text = json.dumps(dict(variables), sort_keys=True).encode()
    return Revision(
        settings=config_hash(config),
        pod_template=hashlib.sha256(text).hexdigest()[:16],
        generation=generation,
    )


def reject_cluster_references(resource: LogHubConsumerGroup, code: UserCode) -> None:
    """Raises `InvalidResourceError` with every reference to something that only a cluster can provide."""
    no_objects = "there are no Secrets and ConfigMaps on this machine; give a value"
    problems = [
        Problem(f"spec.worker.env[{number}].valueFrom", no_objects)
        for number, one in enumerate(resource.spec.worker.env)
        if one.value_from is not None
    ]
    if code.error:
        message = f"{code.error}; on this machine it must be a document in the same file"
        kind = "python" if resource.spec.pipeline.python is not None else "processor"
        problems.append(Problem(f"spec.pipeline.{kind}.configMap", message))
    if problems:
        raise InvalidResourceError(tuple(problems))
