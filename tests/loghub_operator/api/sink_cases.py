"""Values of ``spec.pipeline.sink`` for `tests.loghub_operator.api.test_validation`."""

from tests.loghub_operator.support.examples import Document

POSTGRESQL = {"host": "db.example.com", "database": "logs", "table": "access"}

# Name -> spec, place and message of the rule that it breaks.
RULES: dict[str, tuple[Document, str, str]] = {
    "no-sink": (
        {"pipeline": {"sink": {"parquet": None}}},
        "spec.pipeline.sink",
        "exactly one sink must be set: parquet, json, delta, console, logstore, postgresql, kafka or spark",
    ),
    "postgresql-without-credentials": (
        {"pipeline": {"sink": {"parquet": None, "postgresql": POSTGRESQL}}},
        "spec.pipeline.sink.credentialsSecret",
        "postgresql needs credentialsSecret, with username and password",
    ),
    "two-sinks": (
        {"pipeline": {"sink": {"logstore": {"name": "copy"}}}},
        "spec.pipeline.sink",
        "exactly one sink must be set: parquet, json, delta, console, logstore, postgresql, kafka or spark",
    ),
}

ACCEPTED: dict[str, Document] = {
    "json": {"pipeline": {"sink": {"parquet": None, "json": {"path": "a/b", "volumeClaim": "sink"}}}},
    "parquet-in-a-bucket": {
        "pipeline": {
            "sink": {
                "parquet": {
                    "path": None,
                    "volumeClaim": None,
                    "url": "s3://my.bucket/raw/access-log",
                    "s3": {"endpoint": "http://minio:9000", "allowHttp": True, "region": "eu-west-1"},
                },
                "credentialsSecret": {"name": "bucket"},
            }
        }
    },
    "json-in-a-bucket": {"pipeline": {"sink": {"parquet": None, "json": {"url": "s3://bucket"}}}},
    "files-of-a-size-in-partitions": {
        "pipeline": {
            "sink": {
                "parquet": {
                    "partitionBy": ["day", "__topic__"],
                    "roll": {"targetBytes": 1 << 20, "maxDelaySeconds": 3600},
                }
            }
        }
    },
    "json-of-the-default-size": {
        "pipeline": {"sink": {"parquet": None, "json": {"url": "s3://bucket", "roll": {}}}}
    },
    "delta": {
        "pipeline": {
            "sink": {
                "parquet": None,
                "delta": {
                    "path": "a",
                    "volumeClaim": "sink",
                    "partitionBy": ["day", "__shard__"],
                    "schemaEvolution": "AddColumns",
                },
            }
        }
    },
    "delta-in-a-bucket": {"pipeline": {"sink": {"parquet": None, "delta": {"url": "s3://bucket/table"}}}},
    "console": {"pipeline": {"sink": {"parquet": None, "console": {}}}},
    "postgresql": {
        "pipeline": {
            "sink": {"parquet": None, "postgresql": POSTGRESQL, "credentialsSecret": {"name": "database"}}
        }
    },
    "kafka": {
        "pipeline": {
            "sink": {
                "parquet": None,
                "kafka": {"bootstrapServers": "b-0:9092,[fd00::1]:9092", "topic": "t", "sasl": "PLAIN"},
                "credentialsSecret": {"name": "user"},
            }
        }
    },
    "spark": {"pipeline": {"sink": {"parquet": None, "spark": {"format": "csv", "options": {"path": "/a"}}}}},
    "copy": {"pipeline": {"sink": {"parquet": None, "logstore": {"name": "access-copy"}}}},
    "same-logstore-of-another-project": {
        "pipeline": {"sink": {"parquet": None, "logstore": {"project": "other", "name": "access"}}}
    },
}
