"""The members of a JSON object are as they are written."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from loghub.wire.json_object import NotAnObject, members_of

LITERALS = [
    "1.10",
    "12345678901234567.89",
    "1E5",
    "1e-7",
    "1e400",
    "-0",
    "9" * 5000,
    "[1.50,\t2]",
    '{"a":-0.0}',
    "null",
]
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=8,
)


@pytest.mark.parametrize("literal", LITERALS, ids=lambda text: text[:12])
@pytest.mark.parametrize("form", ['{"a":%s}', ' { "a" : %s , "b":"x"}', '\ufeff{"a":%s}\n'])
def test_a_literal_is_as_it_is_written(literal: str, form: str) -> None:
    assert members_of((form % literal).encode())[0] == ("a", literal.encode())


@pytest.mark.parametrize(
    "text", ['{"a":"1","b":3,"a":"2"}', '{"a":"1", "b" : 3, "\\u0061": "2"}', '{"a":"1","b":3,"":4,"":4}']
)
def test_a_key_that_occurs_twice_is_there_twice(text: str) -> None:
    pairs = json.loads(text, object_pairs_hook=lambda pairs: pairs)
    assert [name for name, _ in members_of(text.encode())] == [name for name, _ in pairs]


@given(
    st.lists(st.tuples(st.text(max_size=4), JSON), max_size=5),
    st.sampled_from([(",", ":"), (", ", ": "), (" ,\n", "\t: ")]),
)
def test_members_are_those_of_the_text(pairs: list[tuple[str, object]], separators: tuple[str, str]) -> None:
    comma, colon = separators
    texts = [(name, json.dumps(value)) for name, value in pairs]
    text = "{" + comma.join(f"{json.dumps(name)}{colon}{value}" for name, value in texts) + "}"
    expected = [(name, json.loads(value) if value[0] == '"' else value.encode()) for name, value in texts]
    assert list(members_of(text.encode())) == expected


@pytest.mark.parametrize(
    "text",
    ["", "[1]", "1", "{", '{"a"', '{"a":', '{"a":1', '{"a":1,', '{"a":1,}', '{"a":1}x', "{a:1}", '{"a":NaN}',
    '{"a":-Infinity}',
     '{"a":01}', '{"a":"\n"}', '{"a" 1}', '{"a":1 "b":2}', '{"a":[1}', "{'a':1}", '{"a":' + "[" * 100_000],
    ids=lambda text: text[:12],
)  # fmt: skip
def test_what_is_no_object_is_refused(text: str) -> None:
    with pytest.raises(NotAnObject, match="is not"):
        members_of(text.encode())


def test_bytes_that_are_not_utf_8_are_refused() -> None:
    with pytest.raises(NotAnObject):
        members_of(b'{"a":"\xff"}')
