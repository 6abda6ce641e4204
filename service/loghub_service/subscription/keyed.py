"""Key_Shared: logs of one key go to one consumer, in their order, while consumers come and go.

A log goes to the owner of its slot only if (a) no other consumer has a log of this slot that is not
acknowledged, and (b) no earlier log of this slot waits. Otherwise it waits and others pass it; once
``look_ahead`` logs of a shard wait, reading stops. By (a) and (b) the first delivery of the logs of a key is
in their order. A log that is delivered again, because its consumer refused it or left, may come after later
logs of its key that were out as well, and a log with a delay lets later logs pass.
"""

import heapq
from collections.abc import Sequence
from dataclasses import dataclass, field

from loghub_service.subscription.acked import Run
from loghub_service.subscription.events import ActiveChange
from loghub_service.subscription.shared import LAST, Member, SharedQueue, is_last
from loghub_service.subscription.slots import SlotOwners
from loghub_service.subscription.state import AttachedConsumer, Cursor, DispatchDraft, SubscriptionLimits


@dataclass(slots=True, eq=False)
class DealtLogs:
    """What one dispatch deals to a consumer, and for how many more logs the consumer has room."""

    member: Member
    room: int
    positions: list[int] = field(default_factory=list)
    values: list[int] = field(default_factory=list)


class Deal:
    """What one dispatch deals, by consumer. There may be a thousand, so only those are looked at for which
    there is a log."""

    def __init__(self, queue: "KeyedQueue", limits: SubscriptionLimits) -> None:
        self.dealt: dict[int, DealtLogs] = {}
        self._members, self._limits = queue.members, limits
        self._hungry = queue.hungry(limits)
        self._next = next(self._hungry, None)  # those before it have no room

    def to(self, consumer: int) -> DealtLogs:
        found = self.dealt.get(consumer)
        if found is None:
            member = self._members[consumer]
            found = self.dealt[consumer] = DealtLogs(member, member.room(self._limits))
        return found

    def is_wanted(self) -> bool:
        """Whether any consumer has room for a log."""
        while self._next is not None:
            found = self.dealt.get(self._next.consumer.number)
            if found is None or found.room > 0:
                return True
            self._next = next(self._hungry, None)
        return False


class KeyedQueue(SharedQueue):
    """``queues`` has the waiting positions of each slot as a heap, with some that are acknowledged already;
    none is empty. ``held`` has the member with logs of a slot that are out, and their number.

    ``ready`` has, for each consumer that has any, the lowest waiting position of each of its slots that it
    may get, with some that it may not get any more: `_head` and `_may_take` say so. ``unowned`` has all slots
    that wait without an owner, and perhaps some that do not wait any more.
    """

    __slots__ = ("held", "owners", "queues", "ready", "unowned")

    def __init__(self, cursor: Cursor) -> None:
        super().__init__(cursor)
        self.owners = SlotOwners()
        self.queues: dict[int, list[int]] = {}
        self.held: dict[int, tuple[Member, int]] = {}
        self.ready: dict[int, list[tuple[int, int]]] = {}
        self.unowned: set[int] = set()

    # -- consumers

    def join(self, consumer: AttachedConsumer) -> list[ActiveChange]:
        super().join(consumer)
        if consumer.slots is None:
            self.owners.join(consumer.number)
        else:
            self._assign_chosen()
        self.offer_all()
        return []

    def leave(self, consumer: AttachedConsumer) -> list[ActiveChange]:
        if consumer.slots is None:
            self.owners.leave(consumer.number)
        super().leave(consumer)
        if consumer.slots is not None:
            self._assign_chosen()
        self.offer_all()
        return []

    def _assign_chosen(self) -> None:
        self.owners.assign(
            (chosen, member.consumer.number)
            for member in self.members.values()
            for chosen in member.consumer.slots or ()
        )

    # -- slots

    def offer_all(self) -> None:
        """Offer the head of every waiting slot, because owners have changed."""
        self.ready.clear()
        self.unowned.clear()
        for slot in list(self.queues):
            self._offer(slot)

    def _offer(self, slot: int) -> None:
        """The first position that waits in the slot is another one, or who may get it."""
        head = self._head(slot)
        if head is None:
            return
        owner = self.owners.owner(slot)
        if owner is None:
            self.unowned.add(slot)
        elif self._may_take(slot, owner):
            heapq.heappush(self.ready.setdefault(owner, []), (head, slot))

    def _head(self, slot: int) -> int | None:
        """The lowest position that waits in the slot."""
        queue = self.queues.get(slot)
        while queue:
            if queue[0] in self.waiting:
                return queue[0]
            heapq.heappop(queue)
        self.queues.pop(slot, None)
        return None

    def _may_take(self, slot: int, owner: int) -> bool:
        """Rule (a)."""
        holder = self.held.get(slot)
        return holder is None or holder[0].consumer.number == owner

    def has_unowned(self) -> bool:
        while self.unowned:
            slot = next(iter(self.unowned))
            if self._head(slot) is not None:
                return True
            self.unowned.remove(slot)
        return False

    def _take_back(self, position: int, value: int) -> None:
        super()._take_back(position, value)
        slot = value >> 1
        member, logs = self.held[slot]
        if logs > 1:
            self.held[slot] = (member, logs - 1)
        else:
            del self.held[slot]
            if slot in self.queues:
                self._offer(slot)

    def _wait(self, position: int, value: int) -> None:
        slot = value >> 1
        self.waiting[position] = value
        queue = self.queues.setdefault(slot, [])
        heapq.heappush(queue, position)
        if queue[0] == position:
            self._offer(slot)

    def _forget_one(self, position: int) -> int | None:
        value = super()._forget_one(position)
        if value is not None and value >> 1 in self.queues:
            self._offer(value >> 1)  # it may have been the first that waited
        return value

    def pass_on(self, consumer: AttachedConsumer, runs: Sequence[Run]) -> bool:  # noqa: ARG002 - has its slot
        return False

    # -- delivery

    def dispatch(self, draft: DispatchDraft) -> None:
        self.wake(draft)
        if not self.has_supply:
            return
        deal = Deal(self, draft.limits)
        for number in tuple(self.ready):
            if self.members[number].consumer.permits > 0:
                self._deal_waiting(number, deal.to(number), draft)
        self._deal_new(deal, draft)
        for one in deal.dealt.values():
            self._deliver(one.member, one.positions, one.values, draft)

    def _deal_waiting(self, number: int, dealt: DealtLogs, draft: DispatchDraft) -> None:
        """Deal what waits for this consumer and may go."""
        ready = self.ready[number]
        while ready and dealt.room > 0:
            position, slot = ready[0]
            is_current = self._head(slot) == position  # else it is acknowledged
            if is_current and self.cursor.acked.is_beyond(position, draft.limits.max_ranges):
                return
            heapq.heappop(ready)
            if is_current:
                self._deal(dealt, slot, position, self.waiting.pop(position))
                self._offer(slot)
        if not ready:
            del self.ready[number]

    def _deal(self, dealt: DealtLogs, slot: int, position: int, value: int) -> None:
        self.hold(slot, dealt.member)
        dealt.positions.append(position)
        dealt.values.append(value)
        dealt.room -= 1

    def hold(self, slot: int, member: Member) -> None:
        holder = self.held.get(slot)
        self.held[slot] = (member, 1 if holder is None else holder[1] + 1)

    def _deal_new(self, deal: Deal, draft: DispatchDraft) -> None:
        """What was not read yet. This keeps rule (b): a log that still waits after `_deal_waiting` has an
        owner without room, or one that may not take it, or is beyond the last range, and then a later log of
        its slot waits as well."""
        limits = draft.limits
        is_wanted = deal.is_wanted()
        unread = limits.max_unacked - self.unacked - sum(len(one.positions) for one in deal.dealt.values())
        while is_wanted and unread > 0 and len(self.waiting) < limits.look_ahead:
            piece = self.cursor.piece(unread, draft)
            if piece is None or self.cursor.acked.is_beyond(piece[1], limits.max_ranges):
                break
            entry, first, stop = piece
            slots = entry.slots or ()
            has_times = entry.due_unix_s > draft.unix_s or bool(self.held_back)
            position = first
            while position < stop and is_wanted and len(self.waiting) < limits.look_ahead:
                slot = slots[position - entry.first]
                value = slot << 1 | is_last(entry, position + 1)
                owner = self.owners.owner(slot)
                if has_times and self.is_held_back(entry, position, draft):
                    pass
                elif owner is None or (one := deal.to(owner)).room <= 0 or not self._may_take(slot, owner):
                    self._wait(position, value)
                else:
                    self._deal(one, slot, position, value)
                    is_wanted = one.room > 0 or deal.is_wanted()
                position += 1
            unread -= position - first
            self.cursor.pass_to(position, draft)


assert LAST == 1  # the slot is what is above it
