"""Patterns of topic names: what they match, what is refused, and that no pattern takes long."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from loghub_service.pulsar.broker.topic_pattern import TopicPattern, UnsupportedPattern

ATOMS = st.sampled_from(["a", "b", ".", "[ab]", "[^a]", "[a-c]", r"\w", r"\d", r"\.", "-"])
PIECES = st.tuples(ATOMS, st.sampled_from(["", "*", "+", "?"])).map("".join)
SEQUENCES = st.lists(PIECES, max_size=5).map("".join)
GROUPS = st.lists(SEQUENCES, min_size=1, max_size=3).map(lambda parts: f"({'|'.join(parts)})")
PATTERNS = st.lists(SEQUENCES | GROUPS, min_size=1, max_size=3).map("".join)


@given(PATTERNS, st.text(alphabet="abc.-1", max_size=8))
def test_a_pattern_matches_what_python_matches(pattern: str, name: str) -> None:
    assert TopicPattern(pattern).matches(name) == (re.fullmatch(pattern, name, re.ASCII) is not None)


@pytest.mark.parametrize(
    ("pattern", "name"),
    [
        ("public/default/acc.*", "public/default/access-partition-0"),
        ("^public/default/(orders|access)-.*$", "public/default/access-partition-0"),
        (r"public/default/access\.raw.*", "public/default/access.raw"),
    ],
)
def test_patterns_as_clients_send_them_are_offered(pattern: str, name: str) -> None:
    assert TopicPattern(pattern).matches(name)


@pytest.mark.parametrize(
    "pattern",
    [
        "(a*)*b",
        "a{3}",
        "(?=a)b",
        r"(a)\1",
        "[[a]]",
        "[a",
        "(a",
        "a)",
        "*a",
        "a**",
        "a\\",
        "x" * 257,
        "(a|b)" * 7,
    ],
)
def test_what_may_take_long_or_is_malformed_is_refused(pattern: str) -> None:
    with pytest.raises(UnsupportedPattern):
        TopicPattern(pattern)


def test_a_pattern_on_which_backtracking_takes_forever_is_matched_at_once() -> None:
    pattern = TopicPattern("a*" * 100 + "b")
    assert not pattern.matches("a" * 500)
    assert pattern.matches("a" * 500 + "b")


@pytest.mark.timeout(120)
def test_the_longest_pattern_is_compared_with_many_names_in_no_time_to_speak_of() -> None:
    """A hundred places in each of 64 alternatives: one by one they take a quarter of a second for a name."""
    pattern = TopicPattern(".?" * 110 + "(|x)" * 6 + "z")
    names = [f"public/default/{'a' * 60}-partition-{number}" for number in range(1000)]
    assert not any(pattern.matches(name) for name in names)
    assert all(pattern.matches(f"{name}xz") for name in names)
