"""What the annotations say of a group, and of which endpoint."""

import pytest

from loghub_operator.origin import origin_in, origin_marks


@pytest.mark.parametrize("origin", ["Created", "Adopted"])
def test_what_was_written_is_read_again(origin: str) -> None:
    assert origin_in(origin_marks(origin, "embedded"), "embedded") == origin  # type: ignore[arg-type]


def test_another_spelling_of_the_endpoint_is_the_same_group() -> None:
    marks = origin_marks("Created", "https://cn-hangzhou.log.aliyuncs.com")
    assert origin_in(marks, "https://cn-hangzhou-intranet.log.aliyuncs.com:443/") == "Created"


def test_at_another_endpoint_nothing_is_known() -> None:
    assert origin_in(origin_marks("Created", "embedded"), "https://cn-hangzhou.log.aliyuncs.com") is None


@pytest.mark.parametrize("word", ["", "created", "Somebody"])
def test_another_word_says_nothing(word: str) -> None:
    marks = {**origin_marks("Created", "embedded"), "loghub.dev/group-origin": word}
    assert origin_in(marks, "embedded") is None
    assert origin_in({}, "embedded") is None
