"""What may have been meant by a name that does not exist."""

import pytest

from loghub.near_names import did_you_mean


@pytest.mark.parametrize(
    ("given", "known", "hint"),
    [
        ("tial", ("pull", "tail", "lag"), "; did you mean tail?"),
        ("STARTINGOFFSET", ("endpoint", "startingOffsets"), "; did you mean startingOffsets?"),
        ("x", ("pull", "tail"), ""),
        ("tail", (), ""),
    ],
)
def test_only_a_near_name_is_suggested(given: str, known: tuple[str, ...], hint: str) -> None:
    assert did_you_mean(given, known) == hint
