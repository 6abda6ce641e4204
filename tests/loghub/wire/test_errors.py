"""The tree of errors: their messages, and whether the request was surely not done."""

import pytest

from loghub.wire import errors
from loghub.wire.errors import Code, EndpointUnreachable, LogHubError, LogHubException, MalformedInput


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
