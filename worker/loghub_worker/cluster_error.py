"""The error of a Spark cluster that a worker cannot use. Nothing here imports Spark, which a worker with a
processor does not need."""

from loghub.contract.worker import WorkerReason

UNAVAILABLE = WorkerReason.SPARK_MASTER_UNAVAILABLE.value
NO_EXECUTORS = WorkerReason.NO_EXECUTORS.value


class ClusterError(Exception):
    """The cluster cannot be used: a reason of `WorkerReason`, and a sentence."""

    def __init__(self, reason: str, message: str) -> None:
        super().__init__(message)
        self.reason = reason
