"""Values of ``spec.spark`` for `tests.loghub_operator.api.test_validation`."""

from loghub.contract.worker import KUBERNETES, REPLACED, SPARK_OWN
from tests.loghub_operator.support.examples import Document

# Name -> spec, place and message of the rule that it breaks.
RULES: dict[str, tuple[Document, str, str]] = {
    "another-master": (
        {"spark": {"conf": {"spark.master": "local[8]"}}},
        "spec.spark.conf",
        "spark.master cannot be set; set spec.spark.master or spec.spark.cores instead",
    ),
    "memory-in-the-wrong-place": (
        {"spark": {"memory": "1g", "conf": {"spark.driver.memory": "2g"}}},
        "spec.spark.conf",
        "spark.driver.memory cannot be set; set spec.spark.memory instead",
    ),
    "a-setting-of-the-worker": (
        {"spark": {"conf": {"spark.sql.ansi.enabled": "true", "spark.driver.host": "0.0.0.0"}}},
        "spec.spark.conf",
        "the worker sets spark.driver.bindAddress",
    ),
    "a-page-that-anybody-may-read": (
        {"spark": {"conf": {"spark.ui.enabled": "true"}}},
        "spec.spark.conf",
        "the worker sets spark.driver.bindAddress",
    ),
    "executors-without-pods": (
        {"spark": {"executors": {"memory": "1g"}}},
        "spec.spark.executors",
        f"executors are pods, which need master: {KUBERNETES}",
    ),
    "cores-that-no-number-of-executors-has": (
        {"spark": {"master": KUBERNETES, "cores": 3, "executors": {"cores": 2}}},
        "spec.spark.cores",
        "cores must be a multiple of executors.cores, which each executor has",
    ),
    **{
        f"executors'-own-{name}": (
            {"spark": {"master": KUBERNETES, "conf": {name: "x"}}},
            "spec.spark.conf",
            "spark.executor.cores, spark.executor.instances, spark.executor.memory,",
        )
        for name in (*REPLACED, "spark.kubernetes.namespace")
    },
    "executors-of-a-processor": (
        {
            "spark": {"master": KUBERNETES},
            "pipeline": {"sql": None, "sink": None, "processor": {"factory": "counts:Count"}},
        },
        "spec.spark.master",
        "a processor runs without Spark, so its workers need no executors: leave it out",
    ),
    # The worker's own settings of Spark, each by itself.
    **{
        f"worker's-own-{name}": (
            {"spark": {"conf": {name: "x"}}},
            "spec.spark.conf",
            "the worker sets spark.driver.bindAddress",
        )
        for name in (*SPARK_OWN, "spark.ui.port")
    },
}

ACCEPTED: dict[str, Document] = {
    **{
        f"{kind}-in-a-bucket-from-a-cluster": {
            "spark": {"master": "spark://master:7077"},
            "pipeline": {"sink": {"parquet": None} | {kind: where}},
        }
        for kind, where in {
            "parquet": {"path": None, "volumeClaim": None, "url": "s3://bucket/a"},
            "json": {"url": "s3://bucket/a"},
            "delta": {"url": "s3://bucket/a"},
        }.items()
    },
    "a-master-for-a-processor": {
        "spark": {"master": "spark://a:7077"},
        "pipeline": {"sql": None, "sink": None, "processor": {"factory": "counts:Count"}},
    },
    "masters-of-spark": {"spark": {"master": "spark://a.spark.svc:7077,[fd00::7]:7078", "cores": 8}},
    "executors-as-pods": {
        "spark": {
            "master": KUBERNETES,
            "cores": 4,
            "executors": {"cores": 2, "cpu": "500m", "memory": "2g", "memoryOverhead": "512m"},
            "conf": {"spark.executor.extraJavaOptions": "-Da=b"},
        }
    },
    "settings-of-spark": {"spark": {"memory": "1g", "conf": {"spark.sql.session.timeZone": "Asia/Shanghai"}}},
}
