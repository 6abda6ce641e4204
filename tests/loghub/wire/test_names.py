"""Rules for names (docs/sls-protocol.md 2.5). Those that more than the service has are in
`tests/loghub_operator/api/test_names_agree.py`.
"""

import pytest

from loghub.wire import names
from loghub.wire.errors import MalformedName


@pytest.mark.parametrize("name", ["pod-0", "host:1_2", "a b", "x" * 256, "a%b"])
def test_a_valid_name_is_returned(name: str) -> None:
    assert names.CONSUMER.check(name) == name
    assert names.CONSUMER.allows(name)


@pytest.mark.parametrize("name", ["", " a", "a ", "a\nb", "a\x00b", "\u00e9", "x" * 257, "a\n"])
def test_an_invalid_name_is_reported_with_the_rule(name: str) -> None:
    assert not names.CONSUMER.allows(name)
    with pytest.raises(MalformedName, match="not a valid consumer name: 1 to 256 printable"):
        names.CONSUMER.check(name)


def test_long_name_is_not_echoed_whole() -> None:
    with pytest.raises(MalformedName) as error:
        names.PROJECT.check("x" * 10_000)
    assert len(str(error.value)) < 400
