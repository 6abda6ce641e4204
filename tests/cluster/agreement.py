"""Compares what the status, the pods and the log service report of one consumer group."""

from dataclasses import dataclass

from loghub.client.port import LogHub
from tests.cluster.kubectl import eventually
from tests.cluster.stack import Stack

Places = dict[int, tuple[str, str | None]]  # shard: state, holder


@dataclass(frozen=True, slots=True, kw_only=True)
class Group:
    """One LogHubConsumerGroup, whose group has its name."""

    stack: Stack
    namespace: str
    name: str
    logstore: str
    shards: int

    def reported(self) -> Places:
        """By the status."""
        status = self.stack.group(self.name, self.namespace).get("status", {})
        return {shard["id"]: (shard["state"], shard.get("consumer")) for shard in status.get("shards", [])}

    def real(self, client: LogHub) -> Places:
        """By the log service."""
        shards = client.group_status(self.logstore, self.name).shards
        return {shard.shard: (shard.state, shard.holder or None) for shard in shards}

    def wait_held(self, client: LogHub, workers: set[str], *, guard_s: float = 300) -> Places:
        """These workers run, each holds a shard, every shard is held, and the status says so."""

        def agree() -> Places | None:
            status = self.stack.group(self.name, self.namespace).get("status", {})
            reported, real = self.reported(), self.real(client)
            if status.get("phase") != "Running" or len(real) != self.shards or reported != real:
                return None
            held_by = {holder for state, holder in real.values() if state == "already_alloc"}
            ready = set(self.stack.workers(self.name, self.namespace))
            return real if held_by == workers == ready else None

        return eventually(agree, what=f"shards held by {sorted(workers)}", guard_s=guard_s)
