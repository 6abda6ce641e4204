"""A name of the log service is right or wrong wherever it is given: to the service, over HTTP or by a Kafka
client, in an object, on the command line and to a client.
"""

import asyncio
import json
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import click
import pytest

from loghub.client.aliyun import AliyunLogHub
from loghub.client.http import HttpLogHub
from loghub.client.port import check_group, check_logstore
from loghub.wire import names
from loghub.wire.errors import LogHubError
from loghub.wire.names import NameRule
from loghub_cli import options
from loghub_operator.api import InvalidResourceError
from loghub_service.kafka.broker.store import NewTopic, StoreError
from loghub_service.kafka.store.topics import create_topic
from tests.fakes.fake_log_service import MemoryServer
from tests.loghub_operator.api.crd_cases import schema_at
from tests.loghub_operator.support.examples import Document, resource
from tests.loghub_service.inprocess import KEY, InProcess, in_process

Answers = dict[tuple[str, str], bool]  # by kind and name
Takes = Callable[[NameRule, str, Answers], bool]
PROJECT, LOGSTORE, GROUP = names.PROJECT, names.LOGSTORE, names.CONSUMER_GROUP
CAPITALS = "My-Project_1"  # an object is refused with it: it is found by the text that it names
TAKEN: dict[NameRule, tuple[str, ...]] = {
    PROJECT: ("a", "ab", "demo-2", "0", "a_b", "a" * 63, "a" * 64, "a" * 128, CAPITALS),
    LOGSTORE: ("ab", "0x", "access-log_2", "a" * 63, "a" * 64, "a" * 80),
    GROUP: ("a", "-", "_Group-1", "0", "a" * 63, "a" * 64, "a" * 128),
}
REFUSED: dict[NameRule, tuple[str, ...]] = {
    PROJECT: ("", "-a", "a-", "_a", "a.b", "a b", "a/b", "a" * 129, "\u00e4", "\u212a", "a\n"),
    LOGSTORE: ("", "a", "Ab", "-ab", "ab_", "a.b", "a/b", "a" * 81, "\u00e4b", "ab\n"),
    GROUP: ("", "a b", "a.b", "a/b", "a" * 129, "\u00e9", "a\n"),
}
PLACES = {
    PROJECT: (
        ("project",),
        ("pipeline", "sink", "logstore", "project"),
        ("pipeline", "onFailure", "deadLetter", "logstore", "project"),
    ),
    LOGSTORE: (
        ("logstore",),
        ("pipeline", "sink", "logstore", "name"),
        ("pipeline", "onFailure", "deadLetter", "logstore", "name"),
        ("pipeline", "processor", "retryLogstore", "name"),
    ),
    GROUP: (("consumerGroup",),),
}


def service_takes(rule: NameRule, name: str, service: Answers) -> bool:
    return service[rule.kind, name]


def object_takes(rule: NameRule, name: str, _: Answers) -> bool:
    field = {PROJECT: "project", LOGSTORE: "logstore", GROUP: "consumerGroup"}[rule]
    return refusal(InvalidResourceError, lambda: resource({field: name})) is None


def command_line_takes(rule: NameRule, name: str, _: Answers) -> bool:
    kind = {PROJECT: options.PROJECT, LOGSTORE: options.LOGSTORE, GROUP: options.GROUP}[rule]
    why = refusal(click.BadParameter, lambda: kind.convert(name, None, None))
    assert rule.description in (why or rule.description)
    return why is None


def client_takes(rule: NameRule, name: str, _: Answers) -> bool:
    calls = {
        PROJECT: [
            lambda: HttpLogHub("http://127.0.0.1:1", name, credentials=KEY).close(),
            lambda: AliyunLogHub("http://127.0.0.1:1", name, credentials=KEY).close(),
            lambda: MemoryServer().client(name).close(),
        ],
        LOGSTORE: [lambda: check_logstore(name)],
        GROUP: [lambda: check_group(name)],
    }
    (why,) = {refusal(LogHubError, call) for call in calls[rule]}
    assert rule.description in (why or rule.description)
    return why is None


def refusal(kind: type[Exception], call: Callable[[], object]) -> str | None:
    try:
        call()
    except kind as error:
        return str(error)
    return None


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Answers:
    """Whether a service creates what has the name."""
    return asyncio.run(created(tmp_path_factory.mktemp("names")))


async def created(data: Path) -> Answers:
    answers: Answers = {}
    async with in_process(data) as service:
        for rule in (PROJECT, LOGSTORE, GROUP):
            for name in (*TAKEN[rule], *REFUSED[rule]):
                path, body, host = CREATE[rule](name)
                answers[rule.kind, name] = await answer(service, rule, path, body, host)
        await service.ok("POST", "/", body=b"{}", headers={"Host": "topics.127.0.0.1"})
        for name in (*TAKEN[LOGSTORE], *REFUSED[LOGSTORE]):
            assert await is_topic(service, name) == answers[LOGSTORE.kind, name]
    return answers


CREATE: dict[NameRule, Callable[[str], tuple[str, Document, str]]] = {
    PROJECT: lambda name: ("/", {"projectName": name}, f"{as_sent(name)}.127.0.0.1"),
    LOGSTORE: lambda name: ("/logstores", {"logstoreName": name, "shardCount": 1}, "demo.127.0.0.1"),
    GROUP: lambda name: (
        "/logstores/access/consumergroups",
        {"consumerGroup": name, "timeout": 30},
        "demo.127.0.0.1",
    ),
}


def as_sent(name: str) -> str:
    """In a header, which has bytes."""
    return name.encode().decode("latin-1")


async def answer(service: InProcess, rule: NameRule, path: str, body: Document, host: str) -> bool:
    exchange = service.begin("POST", path, body=json.dumps(body).encode(), headers={"Host": host})
    reply = await exchange.reply()
    assert reply is not None
    assert reply.status in (200, 400, 404), reply
    assert reply.status == 200 or rule is PROJECT or rule.description in reply.body.decode()
    return reply.status == 200


async def is_topic(service: InProcess, name: str) -> bool:
    """Whether a Kafka client may create a topic of the name."""
    topic = NewTopic(name=name, partitions=1, retention_ms=None, form=None)
    try:
        await create_topic(service.engine, "topics", topic, check_only=True)
    except StoreError as error:
        return LOGSTORE.description not in str(error)
    return True


@pytest.mark.parametrize("takes", [service_takes, object_takes, command_line_takes, client_takes])
@pytest.mark.parametrize("rule", [PROJECT, LOGSTORE, GROUP], ids=lambda rule: rule.kind)
def test_all_take_the_same_names(rule: NameRule, takes: Takes, service: Answers) -> None:
    taken = [name for name in (*TAKEN[rule], *REFUSED[rule]) if takes(rule, name, service)]
    of_objects = [name for name in TAKEN[rule] if name != CAPITALS]
    assert taken == (of_objects if takes is object_takes else list(TAKEN[rule]))


@pytest.mark.parametrize(("rule", "path"), [(rule, path) for rule, paths in PLACES.items() for path in paths])
def test_each_field_of_an_object_has_the_rule(rule: NameRule, path: tuple[str, ...]) -> None:
    schema = schema_at(("spec", *path))
    bounds = (schema["minLength"], schema["maxLength"], schema["pattern"])
    assert bounds == (rule.shortest, rule.longest, f"^{rule.pattern}$")


def test_a_project_with_capitals_is_kept_in_small_letters() -> None:
    assert options.PROJECT.convert(CAPITALS, None, None) == CAPITALS.lower()
    with closing(HttpLogHub("http://127.0.0.1:1", CAPITALS, credentials=KEY)) as client:
        assert client.project == CAPITALS.lower()
