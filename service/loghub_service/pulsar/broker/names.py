"""Names that clients use: topics, namespaces and subscriptions.

A topic is ``persistent://public/<namespace>/<logstore>``, where the namespace is ``default`` or the project
of the login. A partition has the name of its topic and ``-partition-<shard>``, which the clients append. A
suffix such as ``.raw`` chooses the form of the records, as for Kafka clients. Names of logstores have no
capitals, but the names that clients derive from others do (``<topic>-<subscription>-RETRY``), so a name that
no logstore can have is taken in small letters.

The name of a logstore may end like the name of a partition. Clients first ask how many partitions a topic
has, and use the names of partitions for everything else. So the question for partitions is about the logstore
with the whole name, and every other command is about the partition: no client gets the logs of another topic.

https://pulsar.apache.org/docs/4.0.x/concepts-messaging/#topics
"""

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Generic, TypeVar

from loghub.wire import names
from loghub.wire.errors import MalformedName
from loghub_service.kafka.records.record_forms import RecordForm
from loghub_service.pulsar.broker.refusals import RefusedCommand
from loghub_service.pulsar.wire.errors import ServerError

T = TypeVar("T")
PERSISTENT = "persistent"
TENANT = "public"
DEFAULT_NAMESPACE = "default"
_FORMS = {form.value: form for form in RecordForm}
_MAX_NAME = 512  # characters of a topic or namespace; the longest logstore has 80
_PARTITION = re.compile(r"(.+)-partition-(0|[1-9][0-9]{0,6})", re.ASCII | re.DOTALL)


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicName:
    """A topic as a client names it."""

    namespace: str
    local: str  # what is in the namespace


@dataclass(frozen=True, slots=True, kw_only=True)
class FoundTopic(Generic[T]):
    """What a local name stands for. ``partition`` None is the topic itself, ``form`` the one that a suffix
    chooses."""

    topic: T
    partition: int | None
    form: RecordForm | None


def parse_topic(text: str) -> TopicName:
    """Raises RefusedCommand TOPIC_NOT_FOUND."""
    domain, separator, rest = text[: _MAX_NAME + 1].partition("://")
    if not separator:
        domain, rest = PERSISTENT, domain
    parts = rest.split("/")
    if len(parts) == 1:
        parts = [TENANT, DEFAULT_NAMESPACE, *parts]
    if len(text) > _MAX_NAME or len(parts) != 3 or not all(parts):
        raise _invalid(text, "a topic is persistent://public/default/LOGSTORE")
    if domain != PERSISTENT:
        raise _invalid(text, "only persistent topics are offered")
    if parts[0] != TENANT:
        raise _invalid(text, f"the tenant is always {TENANT!r}")
    return TopicName(namespace=parts[1], local=parts[2])


def parse_namespace(text: str) -> str:
    """The namespace of ``public/<namespace>``. Raises RefusedCommand TOPIC_NOT_FOUND."""
    tenant, separator, namespace = text[: _MAX_NAME + 1].partition("/")
    if not separator or tenant != TENANT or not namespace or "/" in namespace:
        raise _invalid(text, "a namespace is public/default or public/PROJECT")
    return namespace


def check_namespace(namespace: str, project: str) -> None:
    """Raises RefusedCommand AUTHORIZATION_ERROR unless the namespace is that project."""
    if namespace not in (DEFAULT_NAMESPACE, project):
        raise RefusedCommand(
            ServerError.AUTHORIZATION_ERROR,
            f"the login is for project {project!r}, so the namespace must be {DEFAULT_NAMESPACE!r} or "
            f"{project!r}, not {namespace[:100]!r}",
        )


def find_local(
    local: str,
    topic: Callable[[str], T | None],
    *,
    partitions: Callable[[T], int],
    whole_first: bool = False,
) -> FoundTopic[T] | None:
    """What a local name stands for, with how many ``partitions`` a topic has. If it may be both, it is a
    partition unless ``whole_first``."""
    for name in dict.fromkeys((local, local.lower())):
        whole = _with_suffix(name, None, topic)
        match = _PARTITION.fullmatch(name)
        part = None if match is None else _with_suffix(match[1], int(match[2]), topic)
        if match is not None and whole is not None and part is not None:
            return part if not whole_first and int(match[2]) < partitions(part.topic) else whole
        if whole is not None or part is not None:
            return whole or part
    return None


def _with_suffix(name: str, partition: int | None, topic: Callable[[str], T | None]) -> FoundTopic[T] | None:
    logstore, dot, suffix = name.partition(".")
    if dot and suffix not in _FORMS:
        return None
    found = topic(logstore)
    return None if found is None else FoundTopic(topic=found, partition=partition, form=_FORMS.get(suffix))


def logstore_to_create(local: str) -> str:
    """The name of the logstore that is created for a missing topic. Raises RefusedCommand
    TOPIC_NOT_FOUND."""
    match = _PARTITION.fullmatch(local)
    name = (match[1] if match else local).lower()
    if not names.LOGSTORE.allows(name):
        raise _invalid(local, f"a new topic is a logstore: {names.LOGSTORE.description}")
    return name


def partition_name(namespace: str, local: str, partition: int) -> str:
    """The whole name of a partition."""
    return f"{PERSISTENT}://{TENANT}/{namespace}/{local}-partition-{partition}"


def check_subscription(name: str) -> None:
    """Raises RefusedCommand NOT_ALLOWED_ERROR."""
    try:
        names.SUBSCRIPTION.check(name)
    except MalformedName as error:
        raise RefusedCommand(ServerError.NOT_ALLOWED_ERROR, str(error)) from error


def _invalid(text: str, rule: str) -> RefusedCommand:
    """The refusal of a name. After INVALID_TOPIC_NAME clients in C++ and Python would try again for half a
    minute, and then report a time-out."""
    return RefusedCommand(ServerError.TOPIC_NOT_FOUND, f"{text[:100]!r}: {rule}")
