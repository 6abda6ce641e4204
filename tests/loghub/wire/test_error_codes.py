"""The registry of error codes, and how clients react to some of them (docs/sls-protocol.md 2.4)."""

import pytest

from loghub.domain.group import RefusalCode
from loghub.wire import errors
from loghub.wire.errors import REGISTRY, Code

# Written down from docs/sls-protocol.md 2.4, "Codes with documented status".
DOCUMENTED = {
    400: "RequestTimeExpired InvalidRequestTime MissingContentType MissingBodyRawSize InvalidBodyRawSize "
    "InvalidCompressType MissingHost MissingDate InvalidDateFormat MissingAPIVersion InvalidAPIVersion "
    "ProjectAlreadyExist ParameterInvalid ShardNotExist LogStoreWithoutShard JsonInfoInvalid "
    "ConsumerGroupAlreadyExist NotExistConsumerWithBody InvalidShardCheckPoint",
    401: "SignatureNotMatch Unauthorized",
    404: "ProjectNotExist LogStoreNotExist",
    405: "InvalidMethod",
    411: "MissingContentLength",
    415: "InvalidContentType",
    403: "WriteQuotaExceed ReadQuotaExceed ShardWriteQuotaExceed ShardReadQuotaExceed ProjectQuotaExceed",
    500: "InternalServerError",
}


@pytest.mark.parametrize(("status", "names"), DOCUMENTED.items())
def test_documented_codes_have_their_status(status: int, names: str) -> None:
    for name in names.split():
        assert (name, REGISTRY[name].status, REGISTRY[name].evidence) == (name, status, "doc")


def test_every_code_has_one_complete_entry() -> None:
    assert set(REGISTRY) == {code.value for code in Code}
    for entry in REGISTRY.values():
        assert entry.meaning.endswith(".")
        assert entry.remedy.endswith(".")
        assert entry.source


def test_only_errors_of_requests_that_may_have_been_done_are_not_definite() -> None:
    assert {e.code for e in REGISTRY.values() if not e.definite} == {
        Code.INTERNAL_SERVER_ERROR,
        Code.BAD_RESPONSE,
    }


def test_each_refusal_of_the_domain_is_an_error_code() -> None:
    assert {refusal.value for refusal in RefusalCode} <= set(REGISTRY)


# --- what clients treat specially ------------------------------------------------------------


@pytest.mark.parametrize(
    ("agent", "code"),
    [
        ("readers_pod-0", "ShardNotExsit"),
        ("loghub-readers_pod-0", "ShardNotExsit"),
        ("log-python-sdk-v-0.9.52-consumergroup-readers-pod-0", "ShardNotExist"),
        ("Consumer-Library-readers/pod-0", "ShardNotExist"),
        ("aliyun-log-sdk-java-0.6.61", "ShardNotExist"),
        ("loghub-client/0.1.0 readers/pod-0", "ShardNotExist"),
    ],
)
def test_the_code_for_a_deleted_shard_depends_on_the_client(agent: str, code: str) -> None:
    assert errors.checkpoint_of_no_shard(agent) == code
