"""No secret leaves the cluster in a report, and what helps stays."""

import json

import pytest

from loghub_cli.plugin.redaction import REDACTED, redacted, redacted_text
from tests.loghub_cli.plugin.planted import (
    BEGIN,
    CERTIFICATE_KEY,
    END,
    ID,
    KEY,
    PASSWORD,
    PLANTED,
    TOKEN,
    WEB_TOKEN,
    planted_log,
)

OBJECT = {
    "metadata": {
        "name": "access",
        "annotations": {
            "kubectl.kubernetes.io/last-applied-configuration": json.dumps({"password": PASSWORD}),
            "example.org/note": f"call with token={TOKEN}",
        },
        "managedFields": [{"manager": "kubectl"}],
    },
    "spec": {
        "credentialsSecret": {"name": "loghub-credentials"},
        "automountServiceAccountToken": False,
        "spark": {"conf": {"spark.hadoop.fs.s3a.secret.key": KEY, "spark.hadoop.fs.s3a.access.key": ID,
                           "spark.hadoop.fs.azure.account.key.x": "short", "spark.log.level": "ERROR"}},
        "containers": [
            {"env": [{"name": "DB_URL", "value": f"postgres://ann:{PASSWORD}@db/logs"},
                     {"name": "GREETING", "value": PASSWORD},
                     {"name": "LOGHUB_ACCESS_KEY_SECRET", "value": "short"},
                     {"name": "LOGHUB_CONSUMER", "value": "access-0"},
                     {"name": "P", "valueFrom": {"secretKeyRef": {"name": "db", "key": "password"}}}]}
        ],
    },
    "data": {"worker.json": json.dumps({"sink": {"password": PASSWORD, "host": "db"}}),
             "tls.key": f"{BEGIN}\n{CERTIFICATE_KEY}\n{END}",
             "notes": f"bearer {WEB_TOKEN}"},
}  # fmt: skip


def test_an_object_keeps_what_is_no_secret() -> None:
    clean = redacted(OBJECT)
    assert isinstance(clean, dict)
    text = json.dumps(clean)
    assert [one for one in PLANTED if one in text] == []
    assert "last-applied" not in text
    assert "managedFields" not in text
    spec = clean["spec"]
    assert spec["credentialsSecret"] == {"name": "loghub-credentials"}
    assert spec["automountServiceAccountToken"] is False
    assert spec["spark"]["conf"] == {
        "spark.hadoop.fs.s3a.secret.key": REDACTED,
        "spark.hadoop.fs.s3a.access.key": REDACTED,
        "spark.hadoop.fs.azure.account.key.x": REDACTED,
        "spark.log.level": "ERROR",
    }
    values = {one["name"]: one.get("value") for one in spec["containers"][0]["env"]}
    assert values == {
        "DB_URL": REDACTED,
        "GREETING": REDACTED,
        "LOGHUB_ACCESS_KEY_SECRET": REDACTED,
        "LOGHUB_CONSUMER": "access-0",
        "P": None,
    }
    assert '"host": "db"' in clean["data"]["worker.json"]


def test_a_log_keeps_what_is_no_secret() -> None:
    text = redacted_text(planted_log())
    assert [one for one in PLANTED if one in text] == []
    for kept in (
        "the sink refuses",
        "2026-11-27T08:00:00Z",
        "postgresql://",
        "@db:5432/logs",
        "'user': 'ann'",
    ):
        assert kept in text, kept


@pytest.mark.parametrize(
    "text",
    [
        "MTc5NTcxODk2NDAwMDAwMDAwMA==",  # a cursor
        "ffffffffffffffffffffffffffffffff",  # a hash key
        "sha256:9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08",
        "3f2504e0-4f89-11d3-9a0c-0305e82c3301",
        "org.apache.spark.sql.execution.streaming.MicroBatchExecution",
        "2026-11-27T08:00:00.123456Z shard 3 of access-log-12 is held by access-log-12-0",
        "SELECT contents['line'] AS line FROM logs",
    ],
)
def test_what_only_looks_like_one_stays(text: str) -> None:
    assert redacted_text(text) == text


@pytest.mark.parametrize(
    "text",
    [f"password: {PASSWORD}", f'"accessKeySecret":"{KEY}"', f"--token={TOKEN}", f"amqp://u:{PASSWORD}@h:1/",
     f"Cookie: a={PASSWORD}; b={PASSWORD}", f"jaas.config=x password='{PASSWORD}'", f"got {ID} and {KEY}",
     f"password => {PASSWORD}", f"{BEGIN}\n{CERTIFICATE_KEY}"],
)  # fmt: skip
def test_a_secret_is_taken_out_of_any_text(text: str) -> None:
    clean = redacted_text(text)
    assert REDACTED in clean
    assert [one for one in PLANTED if one in clean] == []
