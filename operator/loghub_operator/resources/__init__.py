"""Builds the Kubernetes objects of one consumer group: CR in, dict out; no client, no time.

The builders are pure functions, with one module for each kind of object. `loghub_operator.apply.executor`
applies what they return.
"""

from loghub_operator.resources.checkpoint_backup import checkpoint_backup, record_in
from loghub_operator.resources.configmap import config_map, is_settings
from loghub_operator.resources.metadata import is_ours
from loghub_operator.resources.services import governing_service, leads_to_the_service, project_service
from loghub_operator.resources.statefulset import applied_hash, dependencies, pod_template_hash, stateful_set
from loghub_operator.resources.support_objects import disruption_budget, service_account, workers_name

__all__ = [
    "applied_hash",
    "checkpoint_backup",
    "config_map",
    "dependencies",
    "disruption_budget",
    "governing_service",
    "is_ours",
    "is_settings",
    "leads_to_the_service",
    "pod_template_hash",
    "project_service",
    "record_in",
    "service_account",
    "stateful_set",
    "workers_name",
]
