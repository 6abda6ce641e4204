"""Builds the Kubernetes objects of one consumer group: CR in, dict out; no client, no time.

The builders are pure functions, with one module for each kind of object. `loghub_operator.apply.applier`
applies what they return.
"""

from loghub_operator.resources.metadata import (
    backup_in,
    backup_selector,
    checkpoint_backup,
    config_map,
    is_ours,
    is_settings,
    workers_name,
)
from loghub_operator.resources.services import (
    disruption_budget,
    governing_service,
    leads_to_the_service,
    project_of,
    project_service,
    rule_of_services,
    service_account,
)
from loghub_operator.resources.statefulset import PodEnvironment, is_observed, with_replicas, worker_spec

__all__ = [
    "PodEnvironment",
    "backup_in",
    "backup_selector",
    "checkpoint_backup",
    "config_map",
    "disruption_budget",
    "governing_service",
    "is_observed",
    "is_ours",
    "is_settings",
    "leads_to_the_service",
    "project_of",
    "project_service",
    "rule_of_services",
    "service_account",
    "with_replicas",
    "worker_spec",
    "workers_name",
]
