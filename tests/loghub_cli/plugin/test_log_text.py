"""The log of workers as lines for people."""

import json

from loghub_cli.plugin.log_text import LogLine, by_time


def line(pod: str, second: int, event: str, **fields: object) -> str:
    message = {"event": event, "level": "info", "timestamp": f"2026-11-27T08:00:{second:02}Z", **fields}
    return f"[pod/{pod}/worker] {json.dumps(message, ensure_ascii=False)}"


def test_a_message_is_a_line_with_its_fields_and_an_exception_is_below_it() -> None:
    given = line(
        "access-0", 1, "the sink refuses", shard=3, table="my logs", exception="Traceback\n  ValueError: x"
    )
    assert list(LogLine.of(given).readable()) == [
        '2026-11-27T08:00:01Z  INFO     access-0  the sink refuses  shard=3  table="my logs"',
        "    Traceback",
        "      ValueError: x",
    ]


def test_any_other_line_stays_as_it_is_and_controls_no_terminal() -> None:
    for text in ("26/11/27 ERROR Executor: lost", "{not json", '{"a": 1}', "[1, 2]"):
        assert list(LogLine.of(f"[pod/access-1/worker] {text}\n").readable()) == [f"access-1  {text}"]
    assert list(LogLine.of("a\x1b[2Jb").readable()) == ["a\\x1b[2Jb"]
    (text,) = LogLine.of(line("access-0", 1, "a\x1b[2J", field="\x07")).readable()
    assert "\x1b" not in text
    assert "\x07" not in text


def test_the_logs_of_several_workers_become_one_by_time() -> None:
    lines = [
        line("access-0", 1, "first"),
        line("access-0", 5, "last"),
        "[pod/access-0/worker] Traceback of no message",
        line("access-1", 3, "between"),
    ]
    order = [one.text if one.message is None else one.message["event"] for one in by_time(lines)]
    assert order == ["first", "between", "last", "Traceback of no message"]
