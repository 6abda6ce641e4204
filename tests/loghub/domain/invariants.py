"""The invariants of docs/shard-states.md 3 as checks on one state, and on one step between two.

They are written from the specification and share no code with the coordinator.
"""

from collections import Counter
from collections.abc import Mapping

from loghub.domain.fsm import SHARD_STATES, ShardState, ShardTrigger
from loghub.domain.group import GroupState, ShardEntry, Step

HOLDING = (ShardState.ALREADY_ALLOC, ShardState.TRANSFER)
BALANCED = (ShardState.NOT_ALLOC, ShardState.ALREADY_ALLOC, ShardState.TRANSFER)
BY_BALANCE = (ShardTrigger.ASSIGNED, ShardTrigger.MOVED_TO_BALANCE, ShardTrigger.REBOUND)


def check_state(state: GroupState) -> None:
    """All that holds between two steps."""
    for shard, entry in state.shards.items():
        assert shard == entry.shard
        _check_holders(state, entry)
        _check_over(entry)
        _check_wait(state, entry)
    _check_balance(state)
    assert list(state.shards) == sorted(state.shards)
    assert list(state.consumers) == sorted(state.consumers)


def _check_holders(state: GroupState, entry: ShardEntry) -> None:
    assert (entry.holder is not None) == (entry.state in HOLDING), entry
    assert (entry.next_holder is not None) == (entry.state is ShardState.TRANSFER), entry
    assert entry.holder is None or entry.holder in state.consumers, f"held by a dead consumer: {entry}"
    assert entry.next_holder is None or entry.next_holder in state.consumers, entry
    assert entry.last_holder is None or entry.state is ShardState.OVER, entry
    assert entry.last_holder is None or entry.last_holder in state.consumers, entry


def _check_over(entry: ShardEntry) -> None:
    """Over is exactly: read-only, and empty or checkpointed at the end (edges 7, 8, 10)."""
    log_shard, saved = entry.log_shard, entry.checkpoint
    end = log_shard.end_cursor
    consumed = end is not None and (
        log_shard.begin_cursor >= end or (saved is not None and saved.cursor >= end)
    )
    assert consumed == (entry.state is ShardState.OVER), entry


def _check_wait(state: GroupState, entry: ShardEntry) -> None:
    """Who waits, waits for something, in an ordered group (edges 1, 2, 12)."""
    if entry.state is ShardState.WAIT:
        assert state.order, entry
        assert open_ancestors(state, entry), f"waits for nothing: {entry}"


def open_ancestors(state: GroupState, entry: ShardEntry) -> set[int]:
    """Existing ancestors that are not over."""
    found: set[int] = set()
    layer = {p for p in entry.log_shard.parents if p in state.shards}
    while layer - found:
        found |= layer
        layer = {p for s in layer for p in state.shards[s].log_shard.parents if p in state.shards}
    return {s for s in found if state.shards[s].state is not ShardState.OVER}


def counts(state: GroupState) -> Counter[str]:
    """Per live consumer, a shard in transfer counted for its next holder."""
    tally = Counter(dict.fromkeys(state.consumers, 0))
    for entry in state.shards.values():
        if entry.state in HOLDING:
            tally[entry.next_holder or entry.holder or "?"] += 1
    return tally


def _check_balance(state: GroupState) -> None:
    if state.consumers:
        tally = counts(state)
        assert max(tally.values()) - min(tally.values()) <= 1, f"unbalanced: {dict(tally)}"
        assert all(e.state is not ShardState.NOT_ALLOC for e in state.shards.values()), "a shard left free"


def check_step(old: GroupState, step: Step) -> None:
    """What holds of one step: the table, the answer, the refusal, the fewest moves."""
    new = step.state
    if step.refusal is not None:
        assert new == old
        assert not step.facts
        assert not step.transitions
        assert not step.answer
        return
    _check_transitions(old, step)
    _check_answer(old, step)
    _check_given_to_nobody_who_reports_it(old, new)
    _check_fewest_moves(old, step)


def _check_answer(old: GroupState, step: Step) -> None:
    """One consumer's shards, and those no longer its own that it had not reported before: it may not have
    seen the answer that listed them (docs/shard-states.md 3)."""
    entries = [step.state.shards[shard] for shard in step.answer]
    assert len({entry.holder or entry.last_holder for entry in entries}) <= 1
    for entry in entries:
        holder = entry.holder or entry.last_holder or ""
        if entry.state is not ShardState.ALREADY_ALLOC:
            assert entry.state in (ShardState.TRANSFER, ShardState.OVER), entry
            assert holder in (old.shards[entry.shard].holder, old.shards[entry.shard].last_holder), entry
            assert entry.shard in step.state.consumers[holder].held, "nothing to see: it does not know of it"
            assert entry.shard not in old.consumers[holder].held, "seen by now, and taken from it"


def _check_given_to_nobody_who_reports_it(old: GroupState, new: GroupState) -> None:
    """An answer has omitted it, and a library may be shutting it down (docs/shard-states.md 3)."""
    for shard, entry in new.shards.items():
        if entry.state is ShardState.ALREADY_ALLOC and entry.holder is not None:
            before = old.shards.get(shard)
            was_given = before is not None and (before.state, before.holder) == (entry.state, entry.holder)
            assert was_given or shard not in new.consumers[entry.holder].held, entry


def _check_transitions(old: GroupState, step: Step) -> None:
    """Each shard's passages join its old state to its new one, each by a row of the table."""
    rows = {(e.old, e.trigger, e.new) for e in SHARD_STATES.edges}
    where: dict[int, ShardState | None] = {s: e.state for s, e in old.shards.items()}
    for passage in step.transitions:
        assert where.get(passage.shard) == passage.old, passage
        assert (passage.old, passage.trigger, passage.new) in rows, passage
        where[passage.shard] = passage.new
    for shard, entry in step.state.shards.items():
        assert where[shard] == entry.state, f"{entry} came by no edge"


def _check_fewest_moves(old: GroupState, step: Step) -> None:
    """No more shards change the consumer they count for than the counts make necessary."""
    new = step.state
    before = _counted_before_balance(old, step)
    after = {s: e.next_holder or e.holder for s, e in new.shards.items() if e.state in HOLDING}
    moves = sum(1 for s, name in before.items() if after[s] != name)
    assert moves <= fewest_moves(before, len(after), list(new.consumers)), step.transitions


def _counted_before_balance(old: GroupState, step: Step) -> dict[int, str]:
    """Shard -> consumer it counted for when balance began; a free shard that a live one reports is its."""
    new = step.state
    counted = {s: e.next_holder or e.holder for s, e in old.shards.items() if e.state in HOLDING}
    for passage in step.transitions:
        if passage.trigger not in BY_BALANCE:
            counted[passage.shard] = passage.next_holder or passage.holder
    for shard, entry in new.shards.items():
        if entry.state in BALANCED and counted.get(shard) is None:
            reporters = [c.name for c in new.consumers.values() if shard in c.held]
            last_holder = old.shards[shard].last_holder if shard in old.shards else None
            counted[shard] = last_holder or min(reporters, default=None)
    taking_part = {s for s, e in new.shards.items() if e.state in BALANCED}
    return {s: n for s, n in counted.items() if s in taking_part and n is not None and n in new.consumers}


def fewest_moves(before: Mapping[int, str], shards: int, consumers: list[str]) -> int:
    """How many of the counted shards must change hands for counts that differ by at most one."""
    if not consumers:
        return 0
    low, extra = divmod(shards, len(consumers))
    tally = sorted((Counter(before.values())[name] for name in consumers), reverse=True)
    # The rich ones may keep one more, as far as there is one more to keep.
    return sum(max(0, count - (low + (rank < extra))) for rank, count in enumerate(tally))
