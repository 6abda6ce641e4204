"""Names of topics: a logstore, and perhaps a suffix that says what its records look like.

``access`` is a logstore with its own form; ``access.json`` and ``access.raw`` are the same logs in another
one. SLS has the first of these suffixes. The name of a logstore has no dot.
"""

from dataclasses import dataclass

from loghub.kafka.broker.store import Login, StoreError, Topic
from loghub.kafka.records.record_form import RecordForm
from loghub.kafka.wire.error_codes import ErrorCode

_SUFFIXES = (None, RecordForm.PLAIN, RecordForm.JSON, RecordForm.RAW)  # their places are stored
_PARTITION_BITS = 24


@dataclass(frozen=True, slots=True, kw_only=True)
class NamedTopic:
    """A topic by the name that the client uses for it, and the form of its records under that name."""

    name: str
    topic: Topic
    form: RecordForm
    suffix: RecordForm | None = None

    def addressed(self, partition: int) -> int:
        """What stands for a partition under this name. A producer takes the names of one logstore for
        different topics, and begins at sequence 0 in each."""
        return _SUFFIXES.index(self.suffix) << _PARTITION_BITS | partition


def find_topic(login: Login, name: str) -> NamedTopic:
    """Raises StoreError UNKNOWN_TOPIC_OR_PARTITION."""
    logstore, dot, suffix = name.partition(".")
    topic = login.topic(logstore)
    if topic is None:
        raise _unknown(f"project {login.project} has no logstore {logstore[:100]!r}")
    if not dot:
        return NamedTopic(name=name, topic=topic, form=topic.settings.form)
    try:
        form = RecordForm(suffix)
    except ValueError:
        known = ", ".join(form.value for form in RecordForm)
        raise _unknown(f"topic {name[:100]!r} has none of the suffixes {known}") from None
    return NamedTopic(name=name, topic=topic, form=form, suffix=form)


def _unknown(message: str) -> StoreError:
    return StoreError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, message)
