"""What a request leads to: an answer, or the end of the connection."""

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass

from loghub.kafka.wire.reader import Buffer


@dataclass(frozen=True, slots=True)
class Answer:
    """The parts of a frame, its length included; none if the request has no answer. ``sent`` is called once
    the client has read it, or is gone."""

    parts: Sequence[Buffer] = ()
    sent: Callable[[], None] = lambda: None


NO_ANSWER = Answer()
# Completes a request that was begun. It is called at most once: not if the connection ends before.
Complete = Callable[[], Awaitable[Answer]]


class Disconnect(Exception):  # noqa: N818 - says what follows
    """The client breaks the protocol, so that no answer can be right: the connection ends.

    ``answer`` is sent before, and the message is for the log.
    """

    def __init__(self, message: str, answer: Answer = NO_ANSWER) -> None:
        super().__init__(message)
        self.answer = answer
