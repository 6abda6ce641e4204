"""The class of an error is read from its message, and nothing of a log comes along."""

import pytest

from loghub.contract.worker import LONGEST, error_class, is_error_class


@pytest.mark.parametrize(
    ("message", "expected"),
    [
        ("[CAST_INVALID_INPUT] The value 'alice' of the type STRING cannot be cast", "CAST_INVALID_INPUT"),
        ("[UNRESOLVED_COLUMN.WITH_SUGGESTION] A column", "UNRESOLVED_COLUMN.WITH_SUGGESTION"),
        ("ValueError: invalid literal 'alice' (code.py:7, in transform)", "ValueError"),
        ("pipeline:transform: json.decoder.JSONDecodeError: Expecting value", "JSONDecodeError"),
        ("java.lang.ArithmeticException: / by zero", "ArithmeticException"),
        ("alice: her order", ""),
        ("[alice] her order", ""),
        ("the value 'alice' is no ValueError: see the log", ""),
        ("E" * LONGEST + "Error: too long for a name", ""),
        ("", ""),
    ],
)
def test_only_a_class_at_the_beginning_is_taken(message: str, expected: str) -> None:
    assert error_class(message) == expected
    assert is_error_class(expected)


@pytest.mark.parametrize(
    "text", ["alice", "ValueError: alice", "A b", "[X]", "CAST_INVALID_INPUT\n", "E" * 65]
)
def test_any_other_text_is_no_class(text: str) -> None:
    assert not is_error_class(text)
