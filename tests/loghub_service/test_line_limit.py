"""Few lines of a kind get into the log, however often a client causes them."""

import pytest
import structlog

from loghub_service.log_setup import MAX_LINES, LineLimit, limited

KIND, MINUTE_S = "login refused", 60.0


def test_the_same_line_is_written_once_a_minute_and_then_says_how_many_there_were() -> None:
    limit = LineLimit()
    answers = [limit.left_out_before(KIND, "10.0.0.1 demo", now_s=second) for second in range(130)]
    assert {second: left for second, left in enumerate(answers) if left is not None} == {
        0: 0,
        60: 59,
        120: 59,
    }
    assert limit.left_out == 130 - 3


def test_who_says_something_else_each_time_has_one_line_a_second() -> None:
    limit = LineLimit()
    for minute in range(3):
        now_s = minute * MINUTE_S
        written = [limit.left_out_before(KIND, f"{minute}-{n}", now_s=now_s) for n in range(5000)]
        assert len([one for one in written if one is not None]) == MAX_LINES
    # Who had no line gets one as soon as there is room.
    assert limit.left_out_before(KIND, "2-4999", now_s=3 * MINUTE_S) == 5000 - MAX_LINES


def test_kinds_do_not_take_each_others_places() -> None:
    limit = LineLimit()
    for number in range(5000):
        limit.left_out_before(KIND, str(number), now_s=0)
    assert limit.left_out_before("record batch refused", "0", now_s=0) == 0


def test_what_is_remembered_is_bounded() -> None:
    limit = LineLimit()
    for second in range(3000):
        limit.left_out_before(KIND, f"{second}", now_s=second)
        limit.left_out_before(f"kind {second}", "", now_s=second)
    assert len(limit._kinds) == 1000
    assert len(limit._kinds[KIND].last_s) == 1000


def test_what_ends_the_service_is_always_written() -> None:
    process = limited(LineLimit(), lambda: 0.0)
    line = {"event": "storage failed, the service stops", "error": "full"}
    for _ in range(3):
        assert process(None, "critical", dict(line)) == line
    assert process(None, "warning", dict(line)) == line
    with pytest.raises(structlog.DropEvent):
        process(None, "warning", dict(line))
