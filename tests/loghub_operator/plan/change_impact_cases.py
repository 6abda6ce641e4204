"""A change of each field of the spec, with the impact that `test_change_impact` expects of it."""

from loghub.contract.worker import KUBERNETES
from loghub_operator.plan.decisions import ChangeImpact
from tests.loghub_operator.support.examples import Document, subscribed

N, S, L, R = ChangeImpact.NONE, ChangeImpact.SCALE, ChangeImpact.RELOAD, ChangeImpact.ROLL
LOG_CLAIM = {"worker": {"log": {"file": {"volumeClaim": "a"}}}}
PYTHON = {"sql": None, "python": {"function": "m:f"}}

PROCESSOR = {"sql": None, "sink": None, "processor": {"factory": "m:f"}}

BUCKET = {"url": "s3://bucket/a", "path": None, "volumeClaim": None}


def processor(around: Document = {}, **given: object) -> Document:  # noqa: B006 - never changed
    inner = around.get("processor", {})
    return {"pipeline": {**around, "processor": {**inner, **given}}}


def dead_letter(**target: Document) -> Document:
    return {"pipeline": {"onFailure": {"policy": "DeadLetter", "deadLetter": target}}}


def postgresql(**settings: object) -> Document:
    table = {"host": "h", "database": "d", "table": "t", **settings}
    sink = {"parquet": None, "postgresql": table, "credentialsSecret": {"name": "s"}}
    return {"pipeline": {"sink": sink}}


# Field -> a change of it, what the spec must have before, and its impact.
FIELDS: dict[str, tuple[Document, Document, ChangeImpact]] = {
    "endpoint": ({"endpoint": "https://sls.example.com"}, {}, R),
    "credentialsSecret.name": ({"credentialsSecret": {"name": "other"}}, {}, R),
    "inOrder": ({"inOrder": True}, {}, L),
    "heartbeatIntervalSeconds": ({"heartbeatIntervalSeconds": 6}, {}, R),
    "timeoutSeconds": ({"timeoutSeconds": 31}, {}, R),
    "startPosition.from": ({"startPosition": {"from": "End"}}, {}, R),
    "startPosition.timestamp": (
        {"startPosition": {"from": "Timestamp", "timestamp": "2026-01-31T08:00:00Z"}},
        {},
        R,
    ),
    "fetch.intervalSeconds": ({"fetch": {"intervalSeconds": 2}}, {}, R),
    "fetch.intervalMilliseconds": ({"fetch": {"intervalMilliseconds": 200}}, {}, R),
    "fetch.maxLogGroups": ({"fetch": {"maxLogGroups": 2}}, {}, R),
    "fetch.maxBytes": ({"fetch": {"maxBytes": 65536}}, {}, R),
    "fetch.maxLogs": ({"fetch": {"maxLogs": 1000}}, {}, R),
    "replicas": ({"replicas": 2}, {}, S),
    "pipeline.sql": ({"pipeline": {"sql": "SELECT 1"}}, {}, R),
    "pipeline.python.function": (
        {"pipeline": {"python": {"function": "m:g"}}},
        {"pipeline": PYTHON},
        R,
    ),
    # What is in it is part of the settings, so the same files under another name cost nothing.
    "pipeline.python.configMap.name": (
        {"pipeline": {"python": {"configMap": {"name": "b"}}}},
        {"pipeline": {"sql": None, "python": {"function": "m:f", "configMap": {"name": "a"}}}},
        N,
    ),
    "pipeline.python.volumeClaim.name": (
        {"pipeline": {"python": {"volumeClaim": {"name": "b"}}}},
        {"pipeline": {"sql": None, "python": {"function": "m:f", "volumeClaim": {"name": "a"}}}},
        R,
    ),
    "pipeline.python.volumeClaim.path": (
        {"pipeline": {"python": {"volumeClaim": {"path": "b"}}}},
        {"pipeline": {"sql": None, "python": {"function": "m:f", "volumeClaim": {"name": "a"}}}},
        R,
    ),
    "pipeline.processor.factory": (processor(factory="m:g"), {"pipeline": PROCESSOR}, R),
    "pipeline.processor.processes": (processor(processes=2), {"pipeline": PROCESSOR}, R),
    "pipeline.processor.loadTimeoutSeconds": (processor(loadTimeoutSeconds=600), {"pipeline": PROCESSOR}, R),
    "pipeline.processor.batch.maxLogs": (processor(batch={"maxLogs": 9}), {"pipeline": PROCESSOR}, R),
    "pipeline.processor.batch.maxBytes": (processor(batch={"maxBytes": 65536}), {"pipeline": PROCESSOR}, R),
    "pipeline.processor.batch.maxWaitMilliseconds": (
        processor(batch={"maxWaitMilliseconds": 9}),
        {"pipeline": PROCESSOR},
        R,
    ),
    "pipeline.processor.listener": (processor(listener="m:Seeks"), {"pipeline": PROCESSOR}, R),
    "pipeline.processor.acknowledge": (processor(acknowledge="Log"), {"pipeline": PROCESSOR}, R),
    **{
        f"pipeline.processor.redelivery.{name}": (
            processor(redelivery={name: 2000}, acknowledge="Log"),
            processor(PROCESSOR, acknowledge="Log"),
            R,
        )
        for name in ("delayMilliseconds", "maxDelayMilliseconds", "ackTimeoutSeconds", "maxUnacknowledged")
    },
    "pipeline.processor.redelivery.maxAckTimeoutSeconds": (
        processor(redelivery={"ackTimeoutSeconds": 10, "maxAckTimeoutSeconds": 20}, acknowledge="Log"),
        processor(PROCESSOR, redelivery={"ackTimeoutSeconds": 10}, acknowledge="Log"),
        R,
    ),
    "pipeline.processor.retryLogstore.name": (
        processor(retryLogstore={"name": "bb"}),
        processor(PROCESSOR | {"onFailure": {"policy": "Skip"}}, retryLogstore={"name": "aa"}),
        R,
    ),
    "pipeline.processor.retryLogstore.delaysSeconds": (
        processor(retryLogstore={"name": "aa", "delaysSeconds": [5]}),
        processor(PROCESSOR | {"onFailure": {"policy": "Skip"}}, retryLogstore={"name": "aa"}),
        R,
    ),
    "pipeline.processor.configMap.name": (
        processor(configMap={"name": "b"}),
        processor(PROCESSOR, configMap={"name": "a"}),
        N,
    ),
    "pipeline.processor.volumeClaim.name": (
        processor(volumeClaim={"name": "b"}),
        processor(PROCESSOR, volumeClaim={"name": "a"}),
        R,
    ),
    "pipeline.processor.volumeClaim.path": (
        processor(volumeClaim={"path": "b"}),
        processor(PROCESSOR, volumeClaim={"name": "a"}),
        R,
    ),
    "pipeline.perBatch": ({"pipeline": {"perBatch": True}}, {}, R),
    "pipeline.engine": ({"pipeline": {"engine": "Spark"}}, {}, R),
    "pipeline.acceptIncompleteState": ({"pipeline": {"acceptIncompleteState": True}}, {}, N),
    # Neither changes while the object exists.
    "pipeline.stateful": ({"pipeline": {"stateful": True}}, {}, R),
    "pipeline.state.size": (
        {"pipeline": {"state": {"size": "2Gi"}}},
        {"pipeline": {"stateful": True, "state": {"size": "1Gi"}}},
        N,
    ),
    "pipeline.state.storageClassName": (
        {"pipeline": {"state": {"storageClassName": "fast"}}},
        {"pipeline": {"stateful": True, "state": {"size": "1Gi"}}},
        N,
    ),
    "pipeline.trigger.intervalSeconds": ({"pipeline": {"trigger": {"intervalSeconds": 2}}}, {}, R),
    "pipeline.trigger.intervalMilliseconds": (
        {"pipeline": {"trigger": {"intervalMilliseconds": 0}}},
        {},
        R,
    ),
    "pipeline.batchTimeoutSeconds": ({"pipeline": {"batchTimeoutSeconds": 60}}, {}, R),
    "pipeline.onFailure.policy": ({"pipeline": {"onFailure": {"policy": "Skip"}}}, {}, R),
    "pipeline.onFailure.maxAttempts": ({"pipeline": {"onFailure": {"maxAttempts": 2}}}, {}, R),
    "pipeline.onFailure.maxConsecutive": ({"pipeline": {"onFailure": {"maxConsecutive": 2}}}, {}, R),
    "pipeline.onFailure.maxPerHour": ({"pipeline": {"onFailure": {"maxPerHour": 2}}}, {}, R),
    "pipeline.onFailure.deadLetter.logstore.project": (
        dead_letter(logstore={"name": "rejected", "project": "other"}),
        dead_letter(logstore={"name": "rejected"}),
        R,
    ),
    "pipeline.onFailure.deadLetter.logstore.name": (
        dead_letter(logstore={"name": "other"}),
        dead_letter(logstore={"name": "rejected"}),
        R,
    ),
    "pipeline.onFailure.deadLetter.folder.path": (
        dead_letter(folder={"path": "b", "volumeClaim": "c"}),
        dead_letter(folder={"path": "a", "volumeClaim": "c"}),
        R,
    ),
    "pipeline.onFailure.deadLetter.folder.volumeClaim": (
        dead_letter(folder={"path": "a", "volumeClaim": "d"}),
        dead_letter(folder={"path": "a", "volumeClaim": "c"}),
        R,
    ),
    "pipeline.sink.credentialsSecret.name": (
        {"pipeline": {"sink": {"credentialsSecret": {"name": "other"}}}},
        {},
        R,
    ),
    "pipeline.sink.parquet.path": ({"pipeline": {"sink": {"parquet": {"path": "b"}}}}, {}, R),
    "pipeline.sink.parquet.volumeClaim": ({"pipeline": {"sink": {"parquet": {"volumeClaim": "b"}}}}, {}, R),
    **{
        f"pipeline.sink.{kind}.{field}": (
            {"pipeline": {"sink": {kind: change}}},
            {"pipeline": {"sink": {"parquet": None, kind: BUCKET}}},
            R,
        )
        for kind in ("parquet", "json", "delta")
        for field, change in {
            "url": {"url": "s3://bucket/b"},
            "s3.endpoint": {"s3": {"endpoint": "https://a"}},
            "s3.region": {"s3": {"region": "eu-west-1"}},
            "s3.virtualHosted": {"s3": {"virtualHosted": True}},
            "s3.allowHttp": {"s3": {"allowHttp": True}},
        }.items()
    },
    "pipeline.sink.json.path": (
        {"pipeline": {"sink": {"json": {"path": "b"}}}},
        {"pipeline": {"sink": {"parquet": None, "json": {"path": "a", "volumeClaim": "a"}}}},
        R,
    ),
    "pipeline.sink.json.volumeClaim": (
        {"pipeline": {"sink": {"json": {"volumeClaim": "b"}}}},
        {"pipeline": {"sink": {"parquet": None, "json": {"path": "a", "volumeClaim": "a"}}}},
        R,
    ),
    **{
        f"pipeline.sink.{kind}.{field}": (
            {"pipeline": {"sink": {kind: change}}},
            {"pipeline": {"sink": {"parquet": None, kind: {"path": "a", "volumeClaim": "a", "roll": {}}}}},
            R,
        )
        for kind in ("parquet", "json")
        for field, change in {
            "partitionBy": {"partitionBy": ["day"]},
            "roll.targetBytes": {"roll": {"targetBytes": 1 << 24}},
            "roll.maxDelaySeconds": {"roll": {"maxDelaySeconds": 60}},
        }.items()
    },
    **{
        f"pipeline.sink.delta.{field}": (
            {"pipeline": {"sink": {"delta": {field: value}}}},
            {"pipeline": {"sink": {"parquet": None, "delta": {"path": "a", "volumeClaim": "a"}}}},
            R,
        )
        for field, value in {
            "path": "b",
            "volumeClaim": "b",
            "partitionBy": ["day"],
            "schemaEvolution": "AddColumns",
        }.items()
    },
    "pipeline.sink.console.rows": (
        {"pipeline": {"sink": {"console": {"rows": 2}}}},
        {"pipeline": {"sink": {"parquet": None, "console": {}}}},
        R,
    ),
    "pipeline.sink.postgresql.host": (postgresql(host="other"), postgresql(), R),
    "pipeline.sink.postgresql.port": (postgresql(port=5433), postgresql(), R),
    "pipeline.sink.postgresql.database": (postgresql(database="other"), postgresql(), R),
    "pipeline.sink.postgresql.schema": (postgresql(schema="other"), postgresql(), R),
    "pipeline.sink.postgresql.table": (postgresql(table="other"), postgresql(), R),
    "pipeline.sink.postgresql.sslMode": (postgresql(sslMode="verify-ca"), postgresql(), R),
    "pipeline.sink.postgresql.createTable": (postgresql(createTable=True), postgresql(), R),
    "pipeline.sink.logstore.project": (
        {"pipeline": {"sink": {"logstore": {"project": "other"}}}},
        {"pipeline": {"sink": {"parquet": None, "logstore": {"name": "copy"}}}},
        R,
    ),
    "pipeline.sink.logstore.name": (
        {"pipeline": {"sink": {"logstore": {"name": "other"}}}},
        {"pipeline": {"sink": {"parquet": None, "logstore": {"name": "copy"}}}},
        R,
    ),
    "pipeline.sink.logstore.copy": (
        {"pipeline": {"sql": None, "sink": {"logstore": {"copy": True}}}},
        {"pipeline": {"sink": {"parquet": None, "logstore": {"name": "copy"}}}},
        R,
    ),
    **{
        f"pipeline.sink.kafka.{name}": (
            {"pipeline": {"sink": {"kafka": {name: value}}}},
            {
                "pipeline": {
                    "sink": {
                        "parquet": None,
                        "kafka": {"bootstrapServers": "b:1"},
                        "credentialsSecret": {"name": "user"},
                    }
                }
            },
            R,
        )
        for name, value in {
            "bootstrapServers": "c:1",
            "topic": "t",
            "tls": True,
            "sasl": "PLAIN",
            "compression": "zstd",
            "maxRequestBytes": 2048,
        }.items()
    },
    **{
        f"pipeline.sink.spark.{name}": (
            {"pipeline": {"sink": {"spark": {name: value}}}},
            {"pipeline": {"sink": {"parquet": None, "spark": {"format": "csv"}}}},
            R,
        )
        for name, value in {"format": "orc", "options": {"path": "/a"}}.items()
    },
    "spark.conf": ({"spark": {"conf": {"a": "b"}}}, {}, R),
    "spark.master": ({"spark": {"master": "spark://master:7077"}}, {}, R),
    "spark.cores": ({"spark": {"cores": 2}}, {}, R),
    **{
        f"spark.executors.{name}": (
            {"spark": {"executors": {name: value}}},
            {"spark": {"master": KUBERNETES, "cores": 2}},
            R,
        )
        for name, value in {"cores": 2, "cpu": "100m", "memory": "1g", "memoryOverhead": "2g"}.items()
    },
    "spark.memory": ({"spark": {"memory": "1g"}}, {}, R),
    "worker.progressDeadlineSeconds": ({"worker": {"progressDeadlineSeconds": 60}}, {}, N),
    "worker.image": ({"worker": {"image": "other"}}, {}, R),
    "worker.resources.requests": ({"worker": {"resources": {"requests": {"cpu": 2}}}}, {}, R),
    "worker.resources.limits": ({"worker": {"resources": {"limits": {"cpu": 2}}}}, {}, R),
    "worker.env": ({"worker": {"env": [{"name": "A", "value": "1"}]}}, {}, R),
    "worker.log.level": ({"worker": {"log": {"level": "Debug"}}}, {}, R),
    "worker.log.format": ({"worker": {"log": {"format": "JSON"}}}, {}, R),
    # Nothing of it at its default is written, but that there is a file is.
    "worker.log.file.volumeClaim": ({"worker": {"log": {"file": {"volumeClaim": "b"}}}}, LOG_CLAIM, R),
    "worker.log.file.path": ({"worker": {"log": {"file": {"path": "b"}}}}, LOG_CLAIM, R),
    "worker.log.file.maxSizeMiB": ({"worker": {"log": {"file": {"maxSizeMiB": 11}}}}, LOG_CLAIM, R),
    "worker.log.file.maxBackups": ({"worker": {"log": {"file": {"maxBackups": 11}}}}, LOG_CLAIM, R),
    "worker.log.file.compress": ({"worker": {"log": {"file": {"compress": True}}}}, LOG_CLAIM, R),
    "worker.podTemplate": ({"worker": {"podTemplate": {"spec": {"nodeSelector": {"a": "b"}}}}}, {}, R),
    "checkpoint.intervalSeconds": ({"checkpoint": {"intervalSeconds": 1}}, {}, R),
    # What these come to is a number of workers, if anything.
    "scaling": (
        {
            "scaling": {
                "mode": "Auto",
                "minReplicas": 0,
                "maxReplicas": 9,
                "catchUpSeconds": 60,
                "workerCapacity": "5.0",
                "scaleUp": {"stabilizationWindowSeconds": 1, "maxPodsPerStep": 1},
                "scaleDown": {"stabilizationWindowSeconds": 1},
                "scaleToZero": {"idleSeconds": 60},
                "shards": {
                    "autoSplit": True,
                    "autoMerge": True,
                    "minShards": 2,
                    "maxShards": 3,
                    "cooldownSeconds": 60,
                },
            }
        },
        {},
        N,
    ),
    "subscription.type": ({"subscription": {"type": "KeyShared"}}, subscribed("Shared"), R),
    "subscription.key": ({"subscription": {"key": ["user"]}}, subscribed("KeyShared"), L),
    "subscription.inOrder": ({"subscription": {"inOrder": False}}, subscribed("KeyShared"), L),
    "subscription.priority": ({"subscription": {"priority": 1}}, subscribed("Shared"), R),
    "suspend": ({"suspend": True}, {}, S),
    "resetCheckpoints": ({"resetCheckpoints": {"to": "End", "nonce": "n"}}, {}, N),
    "adoption": ({"adoption": "Never"}, {}, N),
    "deletionPolicy": ({"deletionPolicy": "Delete"}, {}, N),
}
