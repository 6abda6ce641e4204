"""The part of the spec about Spark: ``spec.spark``.

What other fields of the spec ask of ``spark.master``.
"""

from typing import Annotated, ClassVar

from pydantic import Field

from loghub.contract.worker import (
    KUBERNETES,
    LOCAL_MASTER,
    REPLACED,
    REPLACED_PREFIX,
    SPARK_MASTER,
    SPARK_MEMORY,
    SPARK_OWN,
    SPARK_OWN_PREFIX,
    is_replaced,
    is_workers_own,
)
from loghub_operator.api import fields
from loghub_operator.api.fields import Quantity
from loghub_operator.api.validation import ApiModel, Rule

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


Memory = Annotated[str, Field(max_length=16, pattern=fields.SPARK_MEMORY)]


class Executors(ApiModel):
    """Each executor of a worker, which is a pod."""

    cores: Annotated[int, Field(ge=1, le=64)] = Field(
        default=1,
        description="How many tasks an executor runs at a time. A worker has spec.spark.cores divided by this"
        " executors.",
    )
    cpu: Quantity | None = Field(
        default=None, description="CPU request of an executor, such as 500m. Default: cores."
    )
    memory: Memory = Field(
        default="512m", description="Heap of an executor's JVM, in Spark's notation, such as 512m or 2g."
    )
    memory_overhead: Memory = Field(
        default="1g",
        description="Memory of an executor for all else, such as Python functions. Request and limit of its"
        " container are memory plus this.",
    )


def _is_without_a_field(setting: str) -> bool:
    return setting not in (SPARK_MASTER, SPARK_MEMORY) and is_workers_own(setting)


def _executor_cores(spark: "Spark") -> int:
    return Executors().cores if spark.executors is None else spark.executors.cores


class Spark(ApiModel):
    """Spark of each worker, whose tasks run in its pod, in pods of their own or in a standalone cluster."""

    RULES: ClassVar = (
        Rule(
            field="conf",
            cel=f"!('{SPARK_MASTER}' in self.conf)",
            message=f"{SPARK_MASTER} cannot be set; set spec.spark.master or spec.spark.cores instead",
            holds=lambda self: SPARK_MASTER not in self.conf,
        ),
        Rule(
            field="conf",
            cel=f"!('{SPARK_MEMORY}' in self.conf)",
            message=f"{SPARK_MEMORY} cannot be set; set spec.spark.memory instead",
            holds=lambda self: SPARK_MEMORY not in self.conf,
        ),
        Rule(
            field="conf",
            cel=f"self.conf.all(name, !(name in {list(SPARK_OWN)} || name.startsWith('{SPARK_OWN_PREFIX}')))",
            message=f"the worker sets {', '.join(SPARK_OWN)} and {SPARK_OWN_PREFIX}* itself",
            holds=lambda self: not any(map(_is_without_a_field, self.conf)),
        ),
        Rule(
            field="conf",
            cel=(
                f"self.master != '{KUBERNETES}' || self.conf.all(name, !(name in {list(REPLACED)} ||"
                f" name.startsWith('{REPLACED_PREFIX}')))"
            ),
            message=(
                f"{', '.join(REPLACED)} and {REPLACED_PREFIX}* cannot be set for executors in pods; set"
                " spec.spark.cores, spec.spark.executors and spec.worker.podTemplate instead"
            ),
            holds=lambda self: self.master != KUBERNETES or not any(map(is_replaced, self.conf)),
        ),
        Rule(
            field="executors",
            cel=f"!has(self.executors) || self.master == '{KUBERNETES}'",
            message=f"executors are pods, which need master: {KUBERNETES}",
            holds=lambda self: self.executors is None or self.master == KUBERNETES,
        ),
        Rule(
            field="cores",
            cel=(
                f"self.master != '{KUBERNETES}' || "
                "self.cores % (has(self.executors) ? self.executors.cores : 1) == 0"
            ),
            message="cores must be a multiple of executors.cores, which each executor has",
            holds=lambda self: self.master != KUBERNETES or self.cores % _executor_cores(self) == 0,
        ),
    )

    conf: Annotated[
        dict[
            Annotated[str, Field(max_length=256)],
            Annotated[str, Field(max_length=4096)],
        ],
        Field(max_length=128),
    ] = Field(
        default={},
        description=(
            "More Spark settings, except those that the worker sets itself: "
            f"{SPARK_MASTER} (see master and cores), {SPARK_MEMORY} (see memory), "
            f"{', '.join(SPARK_OWN)}, {SPARK_OWN_PREFIX}*."
        ),
    )
    master: Annotated[str, Field(max_length=1024, pattern=fields.SPARK_MASTER)] = Field(
        default=LOCAL_MASTER,
        description=(
            "Where Spark runs the tasks of each worker: local[*], in the worker's own pod on the cores of"
            f" spec.spark.cores; {KUBERNETES}, in pods that each worker makes in its"
            " namespace, which the operator's settings must allow; or a standalone cluster, spark://host:port"
            " with more masters after commas. Such a cluster needs the worker's image, or the same release of"
            " Spark, Python and packages under the same paths, and the Secrets and volumes of the workers"
            " under the same paths. The driver stays in the worker's pod, and executors must reach it. This"
            " is for queries that need more cores than a pod has; it does not read more shards per second."
            " `loghub up` runs the tasks in the worker's process instead of pods."
        ),
    )
    cores: Annotated[int, Field(ge=1, le=64)] = Field(
        default=1,
        description="Cores that Spark uses for each worker, as in local[cores], of all its executors, or of"
        " the cluster.",
    )
    executors: Executors | None = Field(
        default=None, description=f"Each executor, with master: {KUBERNETES}."
    )
    memory: Memory | None = Field(
        default=None,
        description=(
            "Heap of Spark's JVM in the worker, in Spark's notation, such as 512m or 2g. Default: 512m. The"
            " memory request of a worker is this plus 1.5 GiB unless worker.resources sets it."
        ),
    )

    @property
    def makes_pods(self) -> bool:
        """Whether each worker makes its executors as pods."""
        return self.master == KUBERNETES
