"""The settings of executors that Spark makes as pods: a part of `loghub.worker_contract`."""

from typing import Any

import msgspec


class ExecutorSettings(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The executors of one worker, whose number is the worker's cores divided by `cores`."""

    cores: int  # tasks at a time in one executor
    memory: str  # heap of the JVM, such as 512m
    memory_overhead: str  # for all else in the container, such as its Python processes
    cpu: str  # request of the container, a quantity of Kubernetes
    pod: dict[str, Any]  # a Pod without name and namespace, whose only container is `CONTAINER`


CONTAINER = "executor"
# A volume of this name is where Spark spills in a pod; it would otherwise add one without a limit.
SCRATCH_VOLUME = "spark-local-dir-1"
LABEL_OF_WORKER = "loghub.dev/worker"  # the worker's pod
# Settings of Spark that these settings replace.
REPLACED = (
    "spark.executor.cores",
    "spark.executor.instances",
    "spark.executor.memory",
    "spark.executor.memoryOverhead",
)
REPLACED_PREFIX = "spark.kubernetes."


def is_replaced(setting: str) -> bool:
    """Whether this setting of Spark is not allowed for executors in pods."""
    return setting in REPLACED or setting.startswith(REPLACED_PREFIX)
