"""Name rules (docs/sls-protocol.md 2.5)."""

import pytest

from loghub.wire import names
from loghub.wire.errors import MalformedName
from loghub.wire.names import NameRule

GOOD = [
    (names.PROJECT, ["a", "demo", "My-Project_1", "a" * 128]),
    (names.LOGSTORE, ["ab", "access-log_2", "0x", "a" * 80]),
    (names.CONSUMER_GROUP, ["a", "-", "_Group-1", "a" * 128]),
    (names.CONSUMER, ["pod-0", "host:1_2", "a b", "x" * 256, "a%b"]),
]
BAD = [
    (names.PROJECT, ["", "-a", "a-", "a.b", "a b", "a" * 129, "ä", "a\n"]),
    (names.LOGSTORE, ["", "a", "Ab", "-ab", "ab_", "a/b", "a" * 81, "ab\n"]),
    (names.CONSUMER_GROUP, ["", "a b", "a.b", "a/b", "a" * 129, "é", "a\n"]),
    (names.CONSUMER, ["", " a", "a ", "a\nb", "a\x00b", "é", "x" * 257, "a\n"]),
]


def flat(table: list[tuple[NameRule, list[str]]]) -> list[tuple[NameRule, str]]:
    return [(rule, name) for rule, found in table for name in found]


@pytest.mark.parametrize(("rule", "name"), flat(GOOD))
def test_a_valid_name_is_returned(rule: NameRule, name: str) -> None:
    assert rule.check(name) == name
    assert rule.allows(name)


@pytest.mark.parametrize(("rule", "name"), flat(BAD))
def test_an_invalid_name_is_reported_with_the_rule(rule: NameRule, name: str) -> None:
    assert not rule.allows(name)
    with pytest.raises(MalformedName, match=r"characters|letters") as error:
        rule.check(name)
    assert rule.kind in str(error.value)


def test_long_name_is_not_echoed_whole() -> None:
    with pytest.raises(MalformedName) as error:
        names.PROJECT.check("x" * 10_000)
    assert len(str(error.value)) < 400
