"""The cases of `test_validation` for the rules of ``spec.pipeline``: what breaks a rule, where, and the
message."""

from tests.loghub_operator.support.examples import Document

PIPELINE_RULES: dict[str, tuple[Document, str, str]] = {
    "no-pipeline": (
        {"pipeline": {"sql": None}},
        "spec.pipeline",
        "exactly one pipeline must be set: sql or python",
    ),
    "two-pipelines": (
        {"pipeline": {"python": {"function": "enrich:run"}}},
        "spec.pipeline",
        "exactly one pipeline must be set: sql or python",
    ),
    "copy-with-a-query": (
        {"pipeline": {"sink": {"parquet": None, "logstore": {"name": "other", "copy": True}}}},
        "spec.pipeline",
        "a sink that copies log groups takes them as they are: leave out sql and python",
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
        "a sink that copies log groups takes them as they are: leave out sql and python",
    ),
    "no-pipeline-for-a-logstore-that-is-no-copy": (
        {"pipeline": {"sql": None, "sink": {"parquet": None, "logstore": {"name": "other"}}}},
        "spec.pipeline",
        "exactly one pipeline must be set: sql or python",
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
