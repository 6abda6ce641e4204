"""The cases of `test_validation` for ``spec.subscription``: what is accepted, and what breaks a rule, where,
and the message."""

from tests.loghub_operator.support.examples import Document, subscribed

ON_SPARK = (
    "on Spark, a consumer group is what Exclusive and Failover are: each shard has one worker, in order, and"
    " another takes over. Leave out subscription, or use pipeline.processor"
)
SINGLE_LOGS = (
    "types Shared and KeyShared deal single logs, which a micro-batch of Spark cannot acknowledge: use"
    " pipeline.processor, or leave out subscription"
)
PYTHON = {"sql": None, "python": {"function": "enrich:run"}}
EXCLUSIVE = (
    "type Exclusive has one worker: set replicas to 1 and scaling.mode to Fixed, or use type Failover, in"
    " which more workers stand by"
)
SHARDS_STAY = "the workers of a subscription are not bound to shards"

ACCEPTED: dict[str, Document] = {
    "exclusive": subscribed("Exclusive", {"replicas": 0}),
    "failover-with-stand-bys": subscribed("Failover", {"replicas": 6, "subscription": {"inOrder": False}}),
    "shared-by-load": subscribed(
        "Shared", {"subscription": {"priority": 3, "inOrder": False}, "scaling": {"mode": "Auto"}}
    ),
    "keyshared-by-two-fields": subscribed(
        "KeyShared", {"subscription": {"key": ["user", "address"], "inOrder": True}}
    ),
}
RULES: dict[str, tuple[Document, str, str]] = {
    **{
        f"{kind}-with-sql": ({"subscription": {"type": kind}}, "spec.subscription", message)
        for kind, message in (
            ("Exclusive", ON_SPARK),
            ("Failover", ON_SPARK),
            ("Shared", SINGLE_LOGS),
            ("KeyShared", SINGLE_LOGS),
        )
    },
    "shared-with-python": (
        {"subscription": {"type": "Shared"}, "pipeline": PYTHON},
        "spec.subscription",
        SINGLE_LOGS,
    ),
    "failover-with-python": (
        {"subscription": {"type": "Failover"}, "pipeline": PYTHON},
        "spec.subscription",
        ON_SPARK,
    ),
    "shared-with-a-sink-that-copies": (
        {
            "subscription": {"type": "Shared"},
            "pipeline": {"sql": None, "sink": {"parquet": None, "logstore": {"name": "other", "copy": True}}},
        },
        "spec.subscription",
        SINGLE_LOGS,
    ),
    "subscription-acknowledged-by-batch": (
        subscribed("Shared", {"pipeline": {"processor": {"acknowledge": "Batch"}}}),
        "spec.pipeline.processor.acknowledge",
        "a subscription keeps acknowledgments of single logs: set acknowledge: Log",
    ),
    "subscription-in-the-order-of-a-group": (
        subscribed("Failover", {"inOrder": True}),
        "spec.inOrder",
        "inOrder is for consumer groups: with subscription, set subscription.inOrder",
    ),
    "shared-in-order": (
        subscribed("Shared", {"subscription": {"inOrder": True}}),
        "spec.subscription.inOrder",
        "type Shared has no order: leave inOrder out, or use KeyShared, Failover or Exclusive",
    ),
    "key-without-keyshared": (
        subscribed("Shared", {"subscription": {"key": ["user"]}}),
        "spec.subscription.key",
        "key says which logs stay together in type KeyShared: leave it out",
    ),
    "subscription-with-checkpoints": (
        subscribed("Shared", {"checkpoint": {"intervalSeconds": 1}}),
        "spec.checkpoint",
        "a subscription has acknowledgments instead of checkpoints: leave out checkpoint",
    ),
    "subscription-with-a-reset": (
        subscribed("Shared", {"resetCheckpoints": {"to": "End", "nonce": "n"}}),
        "spec.resetCheckpoints",
        "a subscription has no checkpoints: move it by `loghub subscription seek`, and leave out",
    ),
    "subscription-that-splits": (
        subscribed("Shared", {"scaling": {"shards": {"autoSplit": True}}}),
        "spec.scaling.shards",
        SHARDS_STAY,
    ),
    "subscription-that-merges": (
        subscribed("KeyShared", {"scaling": {"shards": {"autoMerge": True}}}),
        "spec.scaling.shards",
        SHARDS_STAY,
    ),
    "exclusive-with-two-workers": (subscribed("Exclusive", {"replicas": 2}), "spec.replicas", EXCLUSIVE),
    "exclusive-by-load": (
        subscribed("Exclusive", {"scaling": {"mode": "Auto"}}),
        "spec.replicas",
        EXCLUSIVE,
    ),
}
