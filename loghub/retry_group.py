"""The consumer group that reads a retry logstore: workers create it, the operator sees what it has left."""

import hashlib

from loghub.wire import names


def retry_group(consumer_group: str, logstore: str) -> str:
    """The consumer group that reads a retry logstore for the group of this logstore. Groups of two logstores
    may have one name, and one retry logstore: neither may pass over what the other one has to read.

    A logstore's name has no capital letters, so two groups never have the same one.
    """
    name = f"{consumer_group}-FROM-{logstore}"
    if names.CONSUMER_GROUP.allows(name):
        return name
    digest = hashlib.sha256(name.encode()).hexdigest()
    return f"{consumer_group[:32]}-FROM-{digest}"
