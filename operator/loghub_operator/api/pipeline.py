"""The part of the spec that says what is done with the logs: query or function, trigger, sink.

What for: one module for ``spec.pipeline`` and ``spec.spark``. What it must not know: how a
worker carries it out. Read next: `loghub_operator.api.v1alpha1`, `loghub.worker_contract`.
"""

from typing import Annotated, ClassVar

from pydantic import Field

from loghub.worker_contract import SPARK_MASTER, SPARK_MEMORY, SPARK_OWN, SPARK_OWN_PREFIX, is_workers_own
from loghub_operator.api import patterns
from loghub_operator.api.fields import LogstoreName, ObjectName, ProjectName, RelativePath, Seconds
from loghub_operator.api.rules import ApiModel, Rule

Claim = Annotated[
    ObjectName,
    Field(description="Name of the claim, in the CR's namespace; every worker mounts it."),
]


class ParquetSink(ApiModel):
    """Parquet files in a folder of a PersistentVolumeClaim, each log exactly once."""

    path: RelativePath = Field(description="Folder inside the claim.")
    volume_claim: Claim


class JsonSink(ApiModel):
    """Files of JSON lines in a folder of a PersistentVolumeClaim, each log exactly once."""

    path: RelativePath = Field(description="Folder inside the claim.")
    volume_claim: Claim


class ConsoleSink(ApiModel):
    """The worker's own log, for trying a query out; at least once."""

    rows: Annotated[int, Field(ge=1, le=1000)] = Field(
        default=20, description="Most rows shown of a micro-batch; the others are counted."
    )


class LogstoreSink(ApiModel):
    """Another logstore of the same endpoint."""

    project: ProjectName | None = Field(
        default=None, description="Project of the logstore; default: the source's."
    )
    name: LogstoreName = Field(description="Name of the logstore.")


class Sink(ApiModel):
    """Where the rows go."""

    RULES: ClassVar = (
        Rule(
            cel="[has(self.parquet), has(self.json), has(self.console), has(self.logstore)]"
            ".filter(given, given).size() == 1",
            message="exactly one sink must be given: parquet, json, console or logstore",
            holds=lambda self: (
                sum(one is not None for one in (self.parquet, self.json_, self.console, self.logstore)) == 1
            ),
        ),
    )

    parquet: ParquetSink | None = None
    json_: JsonSink | None = Field(default=None, alias="json")
    console: ConsoleSink | None = None
    logstore: LogstoreSink | None = None

    @property
    def files(self) -> ParquetSink | JsonSink | None:
        """The sink if it is files on a claim."""
        return self.parquet or self.json_


class Trigger(ApiModel):
    """When the next micro-batch starts."""

    interval_seconds: Seconds = Field(default=1, description="Time from one micro-batch to the next.")


class ConfigMapCode(ApiModel):
    """Python files from a ConfigMap of the CR's namespace, a file a key; a change restarts the workers."""

    name: ObjectName = Field(description="Name of the ConfigMap.")


class VolumeCode(ApiModel):
    """Python files from a folder of a PersistentVolumeClaim."""

    name: ObjectName = Field(description="Name of the claim, in the CR's namespace; mounted read-only.")
    path: RelativePath | None = Field(default=None, description="Folder inside the claim; default: its root.")


class PythonPipeline(ApiModel):
    """A Python function from DataFrame to DataFrame, called for each micro-batch.

    It is given the logs (the columns of the view `logs`) and returns the rows for the sink.
    """

    RULES: ClassVar = (
        Rule(
            cel="!(has(self.configMap) && has(self.volumeClaim))",
            message="the code comes from configMap or from volumeClaim, not from both; "
            "with neither it is in the worker's image",
            holds=lambda self: self.config_map is None or self.volume_claim is None,
        ),
    )

    function: Annotated[str, Field(min_length=3, max_length=256, pattern=patterns.FUNCTION)] = Field(
        description="module:function, for example enrich:run."
    )
    config_map: ConfigMapCode | None = None
    volume_claim: VolumeCode | None = None


class Pipeline(ApiModel):
    """What every worker does with the logs of its shards."""

    RULES: ClassVar = (
        Rule(
            cel="has(self.sql) != has(self.python)",
            message="exactly one pipeline must be given: sql or python",
            holds=lambda self: (self.sql is None) != (self.python is None),
        ),
    )

    sql: Annotated[str, Field(min_length=1, max_length=65_536)] | None = Field(
        default=None, description="Spark SQL over the view `logs`; the columns of the result are the sink's."
    )
    python: PythonPipeline | None = None
    trigger: Trigger = Field(default=Trigger(), description="When the next micro-batch starts.")
    sink: Sink = Field(description="Where the rows go; exactly one kind.")


def _is_without_a_field(setting: str) -> bool:
    return setting not in (SPARK_MASTER, SPARK_MEMORY) and is_workers_own(setting)


class Spark(ApiModel):
    """The Spark inside each worker."""

    RULES: ClassVar = (
        Rule(
            field="conf",
            cel=f"!('{SPARK_MASTER}' in self.conf)",
            message=f"{SPARK_MASTER} is local[spec.spark.cores]; set spec.spark.cores",
            holds=lambda self: SPARK_MASTER not in self.conf,
        ),
        Rule(
            field="conf",
            cel=f"!('{SPARK_MEMORY}' in self.conf)",
            message=f"{SPARK_MEMORY} is spec.spark.memory; set that",
            holds=lambda self: SPARK_MEMORY not in self.conf,
        ),
        Rule(
            field="conf",
            cel=f"self.conf.all(name, !(name in {list(SPARK_OWN)} || name.startsWith('{SPARK_OWN_PREFIX}')))",
            message=f"the worker needs its own {', '.join(SPARK_OWN)} and {SPARK_OWN_PREFIX}*",
            holds=lambda self: not any(map(_is_without_a_field, self.conf)),
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
        description="Further Spark settings; not those that the worker stands on: "
        f"{SPARK_MASTER} (see cores), {SPARK_MEMORY} (see memory), "
        f"{', '.join(SPARK_OWN)}, {SPARK_OWN_PREFIX}*.",
    )
    cores: Annotated[int, Field(ge=1, le=64)] = Field(default=1, description="Spark local[cores].")
    memory: Annotated[str, Field(max_length=16, pattern=patterns.SPARK_MEMORY)] | None = Field(
        default=None,
        description="Heap of Spark's JVM as Spark spells it, such as 512m or 2g; default 512m. "
        "A worker's own memory is this and 1.5 GiB, unless worker.resources says otherwise.",
    )
