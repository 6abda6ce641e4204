"""The cases of `test_validation` for the rules of ``spec.pipeline``: what breaks a rule, where, and the
message."""

from tests.loghub_operator.support.examples import Document

STATE_MOVES = (
    "with stateful, each shard that moves leaves its state behind: use scaling.mode Fixed or Recommend"
    " without autoSplit and autoMerge, or set pipeline.acceptIncompleteState"
)
PIPELINE_RULES: dict[str, tuple[Document, str, str]] = {
    "no-pipeline": (
        {"pipeline": {"sql": None}},
        "spec.pipeline",
        "exactly one pipeline must be set: sql, python or processor",
    ),
    "two-pipelines": (
        {"pipeline": {"python": {"function": "enrich:run"}}},
        "spec.pipeline",
        "exactly one pipeline must be set: sql, python or processor",
    ),
    "copy-with-a-query": (
        {"pipeline": {"sink": {"parquet": None, "logstore": {"name": "other", "copy": True}}}},
        "spec.pipeline",
        "a sink that copies log groups takes them as they are: leave out sql, python and processor",
    ),
    "copy-with-a-function": (
        {
            "pipeline": {
                "sql": None,
                "python": {"function": "a:b"},
                "sink": {"parquet": None, "logstore": {"name": "other", "copy": True}},
            }
        },
        "spec.pipeline",
        "a sink that copies log groups takes them as they are: leave out sql, python and processor",
    ),
    "no-pipeline-for-a-logstore-that-is-no-copy": (
        {"pipeline": {"sql": None, "sink": {"parquet": None, "logstore": {"name": "other"}}}},
        "spec.pipeline",
        "exactly one pipeline must be set: sql, python or processor",
    ),
    "a-processor-and-sql": (
        {"pipeline": {"processor": {"factory": "counts:Count"}, "sink": None}},
        "spec.pipeline",
        "exactly one pipeline must be set: sql, python or processor",
    ),
    "a-processor-with-a-sink": (
        {"pipeline": {"sql": None, "processor": {"factory": "counts:Count"}}},
        "spec.pipeline",
        "a processor writes its results itself: leave out sink",
    ),
    "sql-without-a-sink": (
        {"pipeline": {"sink": None}},
        "spec.pipeline",
        "sink must be set: it says where the rows are written",
    ),
    "copy-with-a-processor": (
        {
            "pipeline": {
                "sql": None,
                "processor": {"factory": "counts:Count"},
                "sink": {"parquet": None, "logstore": {"name": "other", "copy": True}},
            }
        },
        "spec.pipeline",
        "a sink that copies log groups takes them as they are: leave out sql, python and processor",
    ),
    "code-of-a-processor-from-two-places": (
        {
            "pipeline": {
                "sql": None,
                "sink": None,
                "processor": {"factory": "a:b", "configMap": {"name": "c"}, "volumeClaim": {"name": "v"}},
            }
        },
        "spec.pipeline.processor",
        ("configMap and volumeClaim must not both be set; with neither, the code is in the worker's image"),
    ),
    "ack-timeout-without-acknowledgements": (
        {
            "pipeline": {
                "sql": None,
                "sink": None,
                "processor": {"factory": "a:b", "redelivery": {"ackTimeoutSeconds": 30}},
            }
        },
        "spec.pipeline.processor.redelivery",
        "ackTimeoutSeconds needs acknowledge: Log; with Batch, returning acknowledges",
    ),
    "redelivery-with-a-longest-timeout-alone": (
        {
            "pipeline": {
                "sql": None,
                "sink": None,
                "processor": {"factory": "a:b", "redelivery": {"maxAckTimeoutSeconds": 30}},
            }
        },
        "spec.pipeline.processor.redelivery",
        "maxAckTimeoutSeconds needs ackTimeoutSeconds, and must be at least that",
    ),
    "redelivery-with-a-shorter-longest-delay": (
        {
            "pipeline": {
                "sql": None,
                "sink": None,
                "processor": {"factory": "a:b", "redelivery": {"maxDelayMilliseconds": 999}},
            }
        },
        "spec.pipeline.processor.redelivery",
        "maxDelayMilliseconds must be at least delayMilliseconds",
    ),
    "retries-that-are-never-settled": (
        {
            "pipeline": {
                "sql": None,
                "sink": None,
                "processor": {"factory": "a:b", "retryLogstore": {"name": "retries"}},
            }
        },
        "spec.pipeline",
        (
            "retryLogstore needs onFailure.policy: DeadLetter or Skip, which says what becomes of its logs"
            " after the last delay"
        ),
    ),
    "retries-in-the-source": (
        {
            "pipeline": {
                "sql": None,
                "sink": None,
                "processor": {"factory": "a:b", "retryLogstore": {"name": "access"}},
                "onFailure": {"policy": "Skip"},
            }
        },
        "spec.pipeline.processor.retryLogstore",
        "retryLogstore must be neither the logstore that is consumed nor the dead letter",
    ),
    "retries-in-the-dead-letter": (
        {
            "pipeline": {
                "sql": None,
                "sink": None,
                "processor": {"factory": "a:b", "retryLogstore": {"name": "rejected"}},
                "onFailure": {"policy": "DeadLetter", "deadLetter": {"logstore": {"name": "rejected"}}},
            }
        },
        "spec.pipeline.processor.retryLogstore",
        "retryLogstore must be neither the logstore that is consumed nor the dead letter",
    ),
    "code-from-two-places": (
        {
            "pipeline": {
                "sql": None,
                "python": {"function": "a:b", "configMap": {"name": "c"}, "volumeClaim": {"name": "v"}},
            }
        },
        "spec.pipeline.python",
        ("configMap and volumeClaim must not both be set; with neither, the code is in the worker's image"),
    ),
    "state-of-a-processor": (
        {"pipeline": {"sql": None, "sink": None, "processor": {"factory": "a:b"}, "stateful": True}},
        "spec.pipeline.stateful",
        "stateful is for sql and python: a processor, or a sink that copies, keeps no state in Spark",
    ),
    "state-of-single-micro-batches": (
        {"pipeline": {"stateful": True, "perBatch": True}},
        "spec.pipeline.stateful",
        "stateful and perBatch exclude each other: results are of all logs, or of each micro-batch",
    ),
    "state-and-skipped-logs": (
        {"pipeline": {"stateful": True, "onFailure": {"policy": "Skip"}}},
        "spec.pipeline.onFailure.policy",
        (
            "a micro-batch with state cannot be divided to find the log group that fails: with stateful, use"
            " Retry or Stop"
        ),
    ),
    "a-volume-without-state": (
        {"pipeline": {"state": {"size": "1Gi"}}},
        "spec.pipeline.state",
        "state is the volume of a stateful pipeline: set stateful: true, or leave it out",
    ),
    "state-and-shards-that-follow-the-load": (
        {"pipeline": {"stateful": True}, "scaling": {"mode": "Auto"}},
        "spec.pipeline.stateful",
        STATE_MOVES,
    ),
    "state-and-another-autoscaler": (
        {"pipeline": {"stateful": True}, "scaling": {"mode": "External"}},
        "spec.pipeline.stateful",
        STATE_MOVES,
    ),
    "state-and-shards-that-are-split": (
        {"pipeline": {"stateful": True}, "scaling": {"shards": {"autoSplit": True}}},
        "spec.pipeline.stateful",
        STATE_MOVES,
    ),
    "state-and-shards-that-are-merged": (
        {"pipeline": {"stateful": True}, "scaling": {"shards": {"autoMerge": True}}},
        "spec.pipeline.stateful",
        STATE_MOVES,
    ),
    "state-with-executors-elsewhere": (
        {"pipeline": {"stateful": True}, "spark": {"master": "spark://master:7077"}},
        "spec.spark.master",
        (
            "pipeline.stateful needs local[*]: the state is on the volume of the worker, which executors"
            " elsewhere do not have"
        ),
    ),
    "sasl-without-a-secret": (
        {
            "pipeline": {
                "sink": {"parquet": None, "kafka": {"bootstrapServers": "b:9092", "sasl": "SCRAM-SHA-512"}}
            }
        },
        "spec.pipeline.sink",
        "kafka.sasl needs credentialsSecret, with the keys username and password",
    ),
    "a-format-that-is-a-sink": (
        {"pipeline": {"sink": {"parquet": None, "spark": {"format": "parquet"}}}},
        "spec.pipeline.sink.spark.format",
        (
            "parquet, json, kafka, console and a logstore have sinks of their own in pipeline.sink;"
            " parquet and json are written exactly once there"
        ),
    ),
}

_LOCATION = "either path and volumeClaim, or url must be set"
_S3 = "s3 describes the storage of url, which is not set"
_HTTP = "an http endpoint is used only with allowHttp: true"
_VOLUME = {"path": "a", "volumeClaim": "a"}
_HTTP_ONLY = {"endpoint": "http://minio:9000"}


def _file_sink(kind: str, location: Document) -> Document:
    nothing = {"path": None, "volumeClaim": None}
    return {"pipeline": {"sink": {"parquet": None, kind: nothing | location}}}


for kind in ("parquet", "json", "delta"):
    at = f"spec.pipeline.sink.{kind}"
    PIPELINE_RULES |= {
        f"{kind}-nowhere": (_file_sink(kind, {}), at, _LOCATION),
        f"{kind}-without-a-volume": (_file_sink(kind, {"path": "a"}), at, _LOCATION),
        f"{kind}-without-a-path": (_file_sink(kind, {"volumeClaim": "a"}), at, _LOCATION),
        f"{kind}-at-two-places": (_file_sink(kind, _VOLUME | {"url": "s3://bucket"}), at, _LOCATION),
        f"{kind}-with-a-path-in-a-bucket": (
            _file_sink(kind, {"path": "a", "url": "s3://bucket"}),
            at,
            _LOCATION,
        ),
        f"{kind}-with-s3-on-a-volume": (_file_sink(kind, _VOLUME | {"s3": {}}), at, _S3),
        f"{kind}-over-http": (
            _file_sink(kind, {"url": "s3://bucket", "s3": _HTTP_ONLY}),
            f"{at}.s3.endpoint",
            _HTTP,
        ),
    }
