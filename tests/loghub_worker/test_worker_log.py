"""What a worker's log says, and what never."""

from collections.abc import Iterator

import pytest
import structlog

from loghub_worker.__main__ import configure_log


@pytest.fixture
def as_before() -> Iterator[None]:
    yield
    structlog.reset_defaults()


@pytest.mark.usefixtures("as_before")
def test_a_fault_shows_where_it_was_and_no_value_of_a_variable(capsys: pytest.CaptureFixture[str]) -> None:
    def sign(secret: str) -> None:
        text = f"{secret} and more"
        raise ValueError(f"{len(text)} is odd")

    configure_log()
    try:
        sign("hush" + "-hush")
    except ValueError:
        structlog.get_logger().exception("fault", number=7)
    told = capsys.readouterr().err
    for word in ("fault", "number=7", "Traceback", "in sign", "ValueError: 18 is odd"):
        assert word in told
    assert "hush-hush" not in told
