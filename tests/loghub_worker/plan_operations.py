"""What `loghub_worker.query.transform` finds in a plan."""

from pyspark.sql import DataFrame

from loghub_worker.query.transform import PlanWalk


def per_batch_operations(result: DataFrame) -> list[str]:
    """The operations over logs whose result depends on which logs share a micro-batch, in words."""
    return sorted(PlanWalk.of(result).found)
