"""The error of a Spark cluster that a worker cannot use."""

UNAVAILABLE, NO_EXECUTORS = "SparkMasterUnavailable", "NoExecutors"


class ClusterError(Exception):
    """The cluster cannot be used: a reason of `loghub.worker_contract.WorkerReason`, and a sentence."""

    def __init__(self, reason: str, message: str) -> None:
        super().__init__(message)
        self.reason = reason
