"""Objects of one consumer group in the cluster: CR in, dict out; no client, no time.

What for: pure builders, one file a kind. What it must not know: what is in the cluster.
Read next: `loghub_operator.resources.worker_set`, then `loghub_operator.apply`.
"""

from loghub_operator.resources.common import is_ours
from loghub_operator.resources.config import config_map, config_map_name, is_settings
from loghub_operator.resources.kept import kept_checkpoints, record_in
from loghub_operator.resources.services import governing_service, leads_to_the_service, project_service
from loghub_operator.resources.upkeep import disruption_budget, service_account, workers_name
from loghub_operator.resources.worker_set import applied_hash, beside, pod_template_hash, worker_set

__all__ = [
    "applied_hash",
    "beside",
    "config_map",
    "config_map_name",
    "disruption_budget",
    "governing_service",
    "is_ours",
    "is_settings",
    "kept_checkpoints",
    "leads_to_the_service",
    "pod_template_hash",
    "project_service",
    "record_in",
    "service_account",
    "worker_set",
    "workers_name",
]
