"""A group state under construction, for the length of one step.

The `Draft` collects the changes of one event. Every change of a shard's state goes through `Draft.go`
or `Draft.add`, which check it against the table and record the transition. `coordinator`, the only user
of this module, decides why a change is made.
"""

from collections.abc import Collection
from dataclasses import replace

from loghub.domain.fsm import ShardTrigger, transition
from loghub.domain.group import ConsumerEntry, GroupState, LogShard, ShardEntry, Transition


class Draft:
    """Mutable for the length of one step; the state that it started from does not change."""

    def __init__(self, state: GroupState) -> None:
        self.group = state.group
        self.timeout_s = state.timeout_s
        self.order = state.order
        self.consumers: dict[str, ConsumerEntry] = dict(state.consumers)
        self.shards: dict[int, ShardEntry] = dict(state.shards)
        self.transitions: list[Transition] = []
        # Whether waiting shards and the balance must be recomputed before the step ends.
        self.unsettled = False

    def go(
        self,
        shard: int,
        trigger: ShardTrigger,
        *,
        holder: str | None = None,
        next_holder: str | None = None,
        last_holder: str | None = None,
    ) -> ShardEntry:
        """Change one shard's state by one edge, and set the holders that apply after it."""
        old = self.shards[shard]
        new = replace(
            old,
            state=transition(old.state, trigger),
            holder=holder,
            next_holder=next_holder,
            last_holder=last_holder,
        )
        self.shards[shard] = new
        self._record(old, new, trigger)
        return new

    def add(self, log_shard: LogShard, trigger: ShardTrigger) -> None:
        """Add a shard that is new to the group (edge 1)."""
        new = ShardEntry(log_shard=log_shard, state=transition(None, trigger))
        self.shards[new.shard] = new
        self._record(None, new, trigger)

    def _record(self, old: ShardEntry | None, new: ShardEntry, trigger: ShardTrigger) -> None:
        self.unsettled = True
        self.transitions.append(
            Transition(
                group=self.group,
                shard=new.shard,
                old=old.state if old else None,
                new=new.state,
                trigger=trigger,
                holder=new.holder,
                next_holder=new.next_holder,
            )
        )

    def put_shard(self, entry: ShardEntry) -> ShardEntry:
        """Replace an entry without changing its state: a new checkpoint, or new data of the logstore."""
        self.shards[entry.shard] = entry
        return entry

    def keep_shards(self, existing: Collection[int]) -> None:
        """Remove all other shards, from the consumers' reports too."""
        self.unsettled = True
        self.shards = {s: e for s, e in self.shards.items() if s in existing}
        self.consumers = {
            name: replace(c, held=c.held.intersection(self.shards)) for name, c in self.consumers.items()
        }

    def put_consumer(self, consumer: ConsumerEntry) -> None:
        if consumer.name not in self.consumers:
            self.unsettled = True
        self.consumers[consumer.name] = consumer

    def remove_consumers(self, names: Collection[str]) -> None:
        """Remove consumers.

        The caller frees their shards; without shards to free, the others stay balanced.
        """
        self.consumers = {name: c for name, c in self.consumers.items() if name not in names}

    def configure(self, *, timeout_s: float | None, order: bool | None) -> None:
        self.timeout_s = self.timeout_s if timeout_s is None else timeout_s
        self.order = self.order if order is None else order

    def reporter_of(self, shard: int) -> str | None:
        """The first live consumer, by name, whose last heartbeat reported the shard."""
        return min((c.name for c in self.consumers.values() if shard in c.held), default=None)

    def finish(self) -> GroupState:
        return GroupState(
            group=self.group,
            timeout_s=self.timeout_s,
            order=self.order,
            consumers=dict(sorted(self.consumers.items())),
            shards=dict(sorted(self.shards.items())),
        )
