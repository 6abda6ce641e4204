"""What other fields of the spec ask of ``spark.master``."""

from loghub.worker_contract import KUBERNETES, LOCAL_MASTER
from loghub_operator.api.validation import Rule

SPARK_MASTER_RULES = (
    Rule(
        field="spark.master",
        cel=f"self.spark.master != '{KUBERNETES}' || !has(self.pipeline.processor)",
        message="a processor runs without Spark, so its workers need no executors: leave it out",
        holds=lambda self: not self.spark.makes_pods or self.pipeline.processor is None,
    ),
    Rule(
        field="spark.master",
        cel=f"!self.pipeline.stateful || self.spark.master == '{LOCAL_MASTER}'",
        message=(
            f"pipeline.stateful needs {LOCAL_MASTER}: the state is on the volume of the worker, which"
            " executors elsewhere do not have"
        ),
        holds=lambda self: not self.pipeline.stateful or self.spark.master == LOCAL_MASTER,
    ),
)
