"""The format of the worker's log."""

from collections.abc import Iterator

import pytest
import structlog

from loghub_worker.__main__ import configure_log


@pytest.fixture
def as_before() -> Iterator[None]:
    yield
    structlog.reset_defaults()


@pytest.mark.usefixtures("as_before")
def test_an_exception_is_logged_with_its_place_but_without_values_of_variables(
    capsys: pytest.CaptureFixture[str],
) -> None:
    def sign(secret: str) -> None:
        text = f"{secret} and more"
        raise ValueError(f"{len(text)} is odd")

    configure_log()
    try:
        sign("hush" + "-hush")
    except ValueError:
        structlog.get_logger().exception("internal error", number=7)
    output = capsys.readouterr().err
    for text in ("internal error", "number=7", "Traceback", "in sign", "ValueError: 18 is odd"):
        assert text in output
    assert "hush-hush" not in output
