"""What a program sees of a consumer in Python's `logging`."""

import ast
import logging
from collections.abc import Iterator
from pathlib import Path

import pytest
import structlog

import loghub_consumer
from loghub_consumer import ConsumerSettings, LogBatch, MultiLogstoreConsumer, Processor, Tracker
from loghub_consumer.log_context import about
from loghub_consumer.settings import log_to_logging
from tests.loghub_consumer.support import GROUP, PROJECT, Site, running, wait_for


@pytest.fixture
def messages(caplog: pytest.LogCaptureFixture) -> Iterator[pytest.LogCaptureFixture]:
    """Of a program that has configured nothing but `logging`."""
    before = structlog.get_config() if structlog.is_configured() else None
    structlog.reset_defaults()
    caplog.set_level(logging.DEBUG, logger="loghub_consumer")
    yield caplog
    structlog.reset_defaults()
    if before is not None:
        structlog.configure(**before)


class Raising(Processor):
    def process(self, logs: LogBatch, tracker: Tracker) -> None:
        raise ValueError("100% wrong\nin two lines")


@pytest.mark.long
def test_every_message_names_project_logstore_and_group(
    site: Site, messages: pytest.LogCaptureFixture
) -> None:
    logstores = [site.logstore, f"{site.logstore}-b"]
    for name in logstores:
        one = Site(site.service, site.client)
        one.logstore = name
        one.prepare()
        one.put()
    plain = site.plain_settings() | {"logstore": ""}
    settings = ConsumerSettings(credentials=site.service.credentials, **plain)

    def failed() -> list[str]:
        return [one.getMessage() for one in messages.records if "processor failed" in one.getMessage()]

    with running(MultiLogstoreConsumer(settings, lambda _: Raising, logstores)):
        wait_for(
            lambda: all(any(f"logstore={name} " in one for one in failed()) for name in logstores),
            "each logstore's processor has failed",
        )
    named = [one for one in messages.records if one.name.startswith("loghub_consumer.")]
    assert {one.name.rpartition(".")[0] for one in named} >= {"loghub_consumer", "loghub_consumer.membership"}
    for one in named:
        text = one.getMessage()
        assert f"project={PROJECT}" in text, text
        assert f"group={GROUP}" in text, text
        assert "logstore=" in text, text


def test_an_exception_is_shown_with_its_lines_below_the_message(messages: pytest.LogCaptureFixture) -> None:
    log_to_logging()
    log = structlog.get_logger("loghub_consumer.shown")
    try:
        Raising().process(None, None)  # type: ignore[arg-type]
    except ValueError as error:
        with about(project="demo", logstore="access", group=""):
            log.warning("processor failed", shard=3, why="two words", logstore="other", exc_info=error)
    (record,) = messages.records
    text = logging.Formatter("%(levelname)s %(message)s").format(record)
    first, second, *_ = text.splitlines()
    assert first == 'WARNING processor failed project=demo logstore=other shard=3 why="two words"'
    assert second == "Traceback (most recent call last):"
    assert text.endswith("ValueError: 100% wrong\nin two lines")


def test_every_thread_names_what_the_thread_that_made_it_names() -> None:
    made = [
        (path.name, ast.unparse(node))
        for path in Path(loghub_consumer.__path__[0]).rglob("*.py")
        if path.parent.name != "reading"  # the data source has no messages, nor the package that writes them
        for node in ast.walk(ast.parse(path.read_text("utf-8")))
        if isinstance(node, ast.Call) and ast.unparse(node.func) == "threading.Thread"
    ]
    assert len(made) > 10
    assert [one for one in made if "inherited(" not in one[1]] == []
