"""The error of a Spark cluster that a worker cannot use."""

from loghub.worker_contract import WorkerReason

UNAVAILABLE = WorkerReason.SPARK_MASTER_UNAVAILABLE.value
NO_EXECUTORS = WorkerReason.NO_EXECUTORS.value


class ClusterError(Exception):
    """The cluster cannot be used: a reason of `WorkerReason`, and a sentence."""

    def __init__(self, reason: str, message: str) -> None:
        super().__init__(message)
        self.reason = reason
