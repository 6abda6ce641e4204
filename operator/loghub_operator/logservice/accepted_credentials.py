"""Remembers for each object the last access key that its log service accepted, for the object's deletion.

While a namespace is deleted, its Secrets and its groups go in any order. Without the key the workers could
not leave the group, and the group could not be deleted. A finalizer on the user's Secret would keep the
namespace from ending where no operator runs; a key in memory is lost with the operator, which is then as it
was without.
"""

from collections import OrderedDict

from loghub.client.port import Credentials

MOST_OBJECTS = 10_000


class AcceptedCredentials:
    """By UID of the object; of more than `MOST_OBJECTS` objects, those that were not used longest are
    forgotten."""

    def __init__(self) -> None:
        self._tried: OrderedDict[str, Credentials] = OrderedDict()
        self._accepted: OrderedDict[str, Credentials] = OrderedDict()

    def trying(self, uid: str, credentials: Credentials) -> None:
        """The next answer of the log service is about this key."""
        _put(self._tried, uid, credentials)

    def accepted(self, uid: str) -> None:
        """The log service accepted the key that was tried last."""
        if uid in self._tried:
            _put(self._accepted, uid, self._tried[uid])

    def last(self, uid: str) -> Credentials | None:
        """The key that was accepted last."""
        return self._accepted.get(uid)

    def forget(self, uid: str) -> None:
        """The object is released."""
        self._tried.pop(uid, None)
        self._accepted.pop(uid, None)


def _put(known: OrderedDict[str, Credentials], uid: str, credentials: Credentials) -> None:
    known[uid] = credentials
    known.move_to_end(uid)
    if len(known) > MOST_OBJECTS:
        known.popitem(last=False)
