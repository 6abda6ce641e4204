"""The network between consumers and the service: it loses, delays, repeats and reorders.

Instead of the transport of `loghub.client.http.HttpLogHub`, so that the client's own encoding runs too.
"""

from collections.abc import Callable
from dataclasses import dataclass

import msgspec

from loghub.client.http import POLLS, HttpLogHub
from loghub.client.port import Credentials
from loghub.client.schemas import InfoJson, decode
from loghub.client.transport import INFO_PATH, HttpAnswer, HttpCall
from loghub.wire.errors import EndpointUnreachable, LogHubError
from tests.simulator.faults import Dice, Fault, ServiceCrashed, WorkerCrashed
from tests.simulator.service import PROJECT, SimService

KEY = Credentials(access_key_id="id", access_key_secret="secret")
MAX_LATE = 20


@dataclass
class Network:
    """All calls go through `send`. ``on_call`` runs before and after a call, and lets others act meanwhile;
    ``on_done`` runs when the service has done what a call asks, before anyone else acts."""

    service: SimService
    dice: Dice
    on_call: Callable[[str], None]
    on_done: Callable[[str, HttpCall], None]
    late_heartbeats: bool = True
    has_polls: bool = True

    def __post_init__(self) -> None:
        self.late: list[HttpCall] = []

    def send(self, sender: str, call: HttpCall) -> HttpAnswer:
        dice = self.dice
        self._wait()
        self.on_call(sender)
        if dice.happens(Fault.WORKER_CRASHED_IN_CALL) and sender:
            raise WorkerCrashed
        if dice.happens(Fault.REQUEST_LOST):
            raise EndpointUnreachable("simulated", "the request was lost", definite=False)
        if self._may_be_late(call) and dice.happens(Fault.REORDERED):
            self.late.append(call)
        answer = self._deliver(sender, call)
        if call.repeatable and dice.happens(Fault.REPEATED):
            answer = self._deliver(sender, call)
        self._wait()
        self.on_call(sender)
        if dice.happens(Fault.WORKER_CRASHED_IN_CALL) and sender:
            raise WorkerCrashed
        if dice.happens(Fault.ANSWER_LOST):
            raise EndpointUnreachable("simulated", "the answer was lost", definite=False)
        return answer

    def deliver_late(self) -> None:
        """A copy of an earlier request arrives; nobody waits for its answer."""
        call = self.late.pop(self.dice.below(len(self.late)))
        try:
            self._deliver("", call)
        except (EndpointUnreachable, LogHubError):
            return

    def _may_be_late(self, call: HttpCall) -> bool:
        """Not a checkpoint: SLS lets its holder move it back, so that the copy of an older one does that."""
        is_heartbeat = call.query.get("type") == "heartbeat"
        is_write = "lb" in call.path or "route" in call.path
        return len(self.late) < MAX_LATE and (is_write or (is_heartbeat and self.late_heartbeats))

    def _wait(self) -> None:
        seconds = self.dice.random.uniform(0.001, 0.05)
        if self.dice.happens(Fault.DELAYED):
            seconds = self.dice.random.uniform(0.5, 12.0)
        self.service.advance(seconds)

    def _deliver(self, sender: str, call: HttpCall) -> HttpAnswer:
        if self.service.engine is None:
            raise EndpointUnreachable("simulated", "the service is down", definite=False)
        try:
            response = self.service.handle(call)
        except ServiceCrashed:
            raise EndpointUnreachable("simulated", "the service crashed", definite=False) from None
        if response.status != 200:
            fields = msgspec.json.decode(response.body)
            raise LogHubError(fields["errorCode"], response.status, fields["errorMessage"])
        self.on_done(sender, call)
        return HttpAnswer(headers=dict(response.headers), body=response.body)


class _SimTransport:
    def __init__(self, network: Network, sender: str) -> None:
        self._network = network
        self._sender = sender
        self._info: InfoJson | None = None

    def send(self, call: HttpCall) -> HttpAnswer:
        return self._network.send(self._sender, call)

    def discover(self) -> InfoJson:
        if self._info is None:
            call = HttpCall(method="GET", path=INFO_PATH, signed=False, repeatable=True)
            info = decode(self.send(call).body, InfoJson)
            if not self._network.has_polls:
                info.extensions = sorted(set(info.extensions) - POLLS)
            self._info = info
        return self._info

    def forget(self) -> None:
        self._info = None

    def close(self) -> None:
        """Nothing is open."""


def connect(network: Network, sender: str) -> HttpLogHub:
    """The production client over the simulated network."""
    client = HttpLogHub("http://127.0.0.1:1", PROJECT, credentials=KEY)
    client._transport = _SimTransport(network, sender)  # type: ignore[assignment]
    return client
