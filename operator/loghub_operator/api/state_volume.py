"""``spec.pipeline.state``: where a stateful pipeline keeps its state, and which settings go with it."""

from typing import Annotated

from pydantic import Field

from loghub_operator.api import patterns
from loghub_operator.api.fields import ObjectName
from loghub_operator.api.on_failure import FailurePolicy
from loghub_operator.api.validation import ApiModel, Rule

DIVIDING = (FailurePolicy.DEAD_LETTER, FailurePolicy.SKIP)


class StateVolume(ApiModel):
    """The volume of each worker of a stateful pipeline, which outlives its pod. It is deleted with this
    object, and kept while the group has fewer workers."""

    size: Annotated[str, Field(max_length=11, pattern=patterns.STORAGE)] = Field(
        default="10Gi",
        description="Size of the volume, which has Spark's temporary files too.",
    )
    storage_class_name: ObjectName | None = Field(
        default=None, description="The storage class. Default: that of the cluster."
    )


STATE_RULES = (
    Rule(
        field="stateful",
        cel="!self.stateful || has(self.sql) || has(self.python)",
        message="stateful is for sql and python: a processor, or a sink that copies, keeps no state in Spark",
        holds=lambda self: not self.stateful or self.sql is not None or self.python is not None,
    ),
    Rule(
        field="stateful",
        cel="!self.stateful || !self.perBatch",
        message="stateful and perBatch exclude each other: results are of all logs, or of each micro-batch",
        holds=lambda self: not self.stateful or not self.per_batch,
    ),
    Rule(
        field="onFailure.policy",
        cel=f"!self.stateful || !(self.onFailure.policy in {[one.value for one in DIVIDING]})",
        message=(
            "a micro-batch with state cannot be divided to find the log group that fails: with stateful, use"
            " Retry or Stop"
        ),
        holds=lambda self: not self.stateful or self.on_failure.policy not in DIVIDING,
    ),
    Rule(
        field="state",
        cel="!has(self.state) || self.stateful",
        message="state is the volume of a stateful pipeline: set stateful: true, or leave it out",
        holds=lambda self: self.state is None or self.stateful,
    ),
)
