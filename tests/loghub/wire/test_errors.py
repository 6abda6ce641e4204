"""The tree of errors: their messages, and whether the request was surely not done; the registry of error
codes, and how clients react to some of them (docs/sls-protocol.md 2.4).
"""

import pytest

from loghub.domain.group import RefusalCode
from loghub.wire import errors
from loghub.wire.errors import (
    REGISTRY,
    Code,
    EndpointUnreachable,
    LogHubError,
    LogHubException,
    MalformedInput,
)


def test_an_error_of_a_code_has_its_status_and_meaning() -> None:
    error = LogHubError.of(Code.LOG_STORE_NOT_EXIST)
    assert (error.code, error.status) == ("LogStoreNotExist", 404)
    assert error.message == "The logstore does not exist in the project."


def test_an_error_contains_code_status_request_id_and_message() -> None:
    error = LogHubError("SomeCode", 418, "short and stout", "REQ1")
    assert str(error) == "SomeCode (HTTP 418, request REQ1): short and stout"


@pytest.mark.parametrize(
    ("code", "status", "definite"),
    [
        ("LogStoreNotExist", 404, True),
        ("ServerBusy", 503, True),
        ("InternalServerError", 500, False),
        ("BadResponse", 502, False),
        ("BadResponse", 200, False),  # an answer, but not SLS's: nobody knows
        ("NeverHeardOf", 400, True),
        ("NeverHeardOf", 500, False),
    ],
)
def test_definite_by_registry_then_by_status(code: str, status: int, definite: bool) -> None:
    assert LogHubError(code, status, "").definite is definite


@pytest.mark.parametrize("definite", [True, False])
def test_an_unreachable_error_states_whether_the_request_may_have_been_done(definite: bool) -> None:
    error = EndpointUnreachable("http://there", "refused", definite=definite)
    assert error.definite is definite
    assert ("not known" in str(error)) is not definite


def test_all_errors_are_in_one_tree_and_in_its_picture() -> None:
    tree = errors.__doc__ or ""
    defined = [
        value for value in vars(errors).values() if getattr(value, "__module__", "") == errors.__name__
    ]
    raised = [value for value in defined if isinstance(value, type) and issubclass(value, Exception)]
    assert len(raised) > 10
    for value in raised:
        assert issubclass(value, LogHubException)
        assert value.__name__ in tree


def test_malformed_input_is_a_value_error_with_a_code_to_answer() -> None:
    assert issubclass(MalformedInput, ValueError)
    assert {kind.__name__: kind.code for kind in MalformedInput.__subclasses__()} == {
        "MalformedLogGroup": "PostBodyInvalid",
        "MalformedCompression": "PostBodyUncompressError",
        "TooLarge": "PostBodyTooLarge",
        "MalformedCursor": "InvalidCursor",
        "MalformedName": "ParameterInvalid",
        "MalformedSignature": "Unauthorized",
        "UnknownHost": "MissingHost",
    }


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
