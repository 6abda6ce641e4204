"""The exchange of a consumer with its subscription (docs/subscriptions-protocol.md 2).

What a session is and when it ends is in `loghub_service.dispatch.sessions`, and who gets which log in
`loghub_service.subscription`. This module brings both together with requests that wait, with log groups that
are read in threads, and with the disk.
"""

import asyncio
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import groupby
from typing import NoReturn

import msgspec
import structlog

from loghub.domain.log_position import group_end, ordinal_of, position_of
from loghub.wire import cursor as wire_cursor
from loghub.wire import names
from loghub.wire.errors import Code
from loghub.wire.subscriptions import (
    EXCHANGE_MEDIA_TYPE,
    MAX_ANSWER_BYTES,
    MAX_DELAY_S,
    MAX_IDS,
    MAX_LEASE_S,
    MAX_LOGS,
    MAX_PRIORITY,
    MAX_SLOT_RANGES,
    MIN_LEASE_S,
    DeliveredGroup,
    Exchange,
    Exchanged,
    LeaseGrain,
)
from loghub_service.api.subscriptions import (
    FoundSubscription,
    active_shards,
    backlog_of,
    find,
    opened,
)
from loghub_service.dispatch.driver import DAMAGE_WAIT_S, Dispatch
from loghub_service.dispatch.ports import Unreadable
from loghub_service.dispatch.sessions import (
    Dealt,
    LeasedConsumer,
    begin_call,
    end_call,
    is_of_generation,
    session_text,
)
from loghub_service.engine import Engine
from loghub_service.errors import failure
from loghub_service.messages import EMPTY, Request, ServiceResponse
from loghub_service.polls import wait_for_change
from loghub_service.storage.shardlog import ShardLog, cursor_of
from loghub_service.storage.stored_group import packed_list
from loghub_service.subscribed_logs import readable
from loghub_service.subscription.acked import Run
from loghub_service.subscription.events import (
    Ack,
    AckUpTo,
    Allow,
    DeliveredRun,
    Join,
    Redeliver,
    Refusal,
)

_log = structlog.get_logger("loghub_service.exchange")
_SESSION_DIGITS = 24  # hexadecimal: nobody guesses the session of another
_MAX_NONCE = 64  # characters; our client sends 24
_MAX_NUMBER = 1 << 53  # above, numbers are not exact in every client
_MAX_SESSIONS = 20_000  # of the service: one that is idle takes a few kilobytes
_TOO_MANY_SESSIONS = (
    f"the service has {_MAX_SESSIONS} consumers over HTTP, which is the most: stop some, or wait until the "
    "leases of consumers that are gone are over"
)
_BACKLOG_S = 1.0  # between two counts for a session
# An acknowledgment of a range is applied group by group.
_MAX_GROUPS = 100_000
_REFUSALS = {
    Refusal.CONSUMER_BUSY: "another consumer excludes this one: an exclusive one, or one with chosen slots",
    Refusal.SLOTS_TAKEN: "another consumer has some of the slots",
}


async def exchange(engine: Engine, request: Request, *, ls: str, sub: str) -> ServiceResponse:
    wanted = _decoded(request)
    _check(engine, wanted)
    found = find(engine, request, ls, sub)
    if wanted.type is not found.saved.state.settings.type:
        raise failure(
            Code.SUBSCRIPTION_MISMATCH,
            f"subscription {sub} is {found.saved.state.settings.type.value}, not {wanted.type.value}",
        )
    session = _session(engine, found, wanted)
    if session is None:
        await _settle_late(engine, found, wanted)
    begin_call(session, engine.clock.monotonic_s())
    try:
        call = _ExchangeCall(engine, request, found, session, wanted, ls)
        return await call.run()
    finally:
        end_call(session, engine.clock.monotonic_s())


def _decoded(request: Request) -> Exchange:
    try:
        return msgspec.msgpack.decode(request.body, type=Exchange)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise failure(Code.PARAMETER_INVALID, f"the body is no exchange: {error}") from error


def _check(engine: Engine, wanted: Exchange) -> None:
    names.CONSUMER.check(wanted.consumer)
    runs = [*wanted.acks.values(), *wanted.release.values(), *(nack.runs for nack in wanted.nacks)]
    groups = sum(ordinal_of(stop - 1) - ordinal_of(first) + 1 for some in runs for first, stop in some)
    most_s = engine.settings.limits.poll_s
    rules = {
        f"lease_s is {MIN_LEASE_S:g} to {MAX_LEASE_S:g} s": MIN_LEASE_S <= wanted.lease_s <= MAX_LEASE_S,
        f"priority is 0 to {MAX_PRIORITY}": 0 <= wanted.priority <= MAX_PRIORITY,
        f"slots are at most {MAX_SLOT_RANGES} ranges": len(wanted.slots or ()) <= MAX_SLOT_RANGES,
        f"nonce has at most {_MAX_NONCE} characters": len(wanted.nonce) <= _MAX_NONCE,
        f"an exchange names at most {MAX_IDS} runs": sum(map(len, runs)) <= MAX_IDS,
        "a run is two positions, the second above the first": all(
            0 <= first < stop < 1 << 63 for some in runs for first, stop in some
        ),
        f"an exchange settles at most {_MAX_GROUPS} log groups": groups <= _MAX_GROUPS,
        f"delay_s is 0 to {MAX_DELAY_S:g} s": all(0 <= nack.delay_s <= MAX_DELAY_S for nack in wanted.nacks),
        f"max_logs is at most {MAX_LOGS}": 0 <= wanted.max_logs <= MAX_LOGS,
        f"max_bytes is at most {MAX_ANSWER_BYTES}": 0 <= wanted.max_bytes <= MAX_ANSWER_BYTES,
        f"wait_s is at most {most_s} s": 0 <= wanted.wait_s <= most_s,
        "number is 1 or more": wanted.number is None or 1 <= wanted.number <= _MAX_NUMBER,
        "settlement is 1 or more": wanted.settlement is None or 1 <= wanted.settlement <= _MAX_NUMBER,
    }
    for words, holds in rules.items():
        if not holds:
            raise failure(Code.PARAMETER_INVALID, words)
    if wanted.grain is LeaseGrain.RANGE:
        raise failure(Code.NOT_IMPLEMENTED, "this service deals single logs: leave out grain")


# Joining


def _session(engine: Engine, found: FoundSubscription, wanted: Exchange) -> LeasedConsumer | None:
    """The session that the exchange names, or a new one; None if it has ended."""
    key = found.logs.id, found.saved.name
    if wanted.session:
        session = engine.sessions.find(key, wanted.session)
        return session if session is not None and session.name == wanted.consumer else None
    now_s = engine.clock.monotonic_s()
    known = engine.sessions.named(key, wanted.consumer)
    if known is not None:
        if wanted.nonce and known.nonce == wanted.nonce:
            return known  # the answer to the first attempt was lost
        raise failure(
            Code.SUBSCRIPTION_BUSY,
            f"consumer {wanted.consumer} has a session that lives until its {known.lease_s:g} s are over",
        )
    if len(engine.sessions) >= _MAX_SESSIONS:
        raise failure(Code.SUBSCRIPTION_QUOTA_EXCEED, _TOO_MANY_SESSIONS)
    return _join(engine, found, wanted, now_s)


def _join(engine: Engine, found: FoundSubscription, wanted: Exchange, now_s: float) -> LeasedConsumer:
    session = LeasedConsumer(
        id=session_text(found.saved.generation, engine.random.hex(_SESSION_DIGITS)),
        subscription=(found.logs.id, found.saved.name),
        name=wanted.consumer,
        number=next(engine.dispatches.numbers),
        nonce=wanted.nonce,
        lease_s=wanted.lease_s,
        bodies=wanted.bodies,
        expires_s=now_s + wanted.lease_s,
        seen_s=now_s,
    )
    with opened(engine, found) as dispatch:
        dispatch.refresh()
        refusal = dispatch.join(
            session,
            Join(
                consumer=session.number,
                name=session.name,
                type=wanted.type,
                shards=None,
                priority=wanted.priority,
                slots=wanted.slots,
            ),
        )
    if refusal is Refusal.TOO_MANY_CONSUMERS:
        raise failure(Code.SUBSCRIPTION_QUOTA_EXCEED, "the subscription has the most consumers: stop some")
    if refusal is Refusal.BAD_SLOTS:
        raise failure(Code.PARAMETER_INVALID, "ranges of slots lie in 0 to 65535 and do not overlap")
    if refusal is not None:
        raise failure(Code.SUBSCRIPTION_BUSY, _REFUSALS.get(refusal, refusal.value))
    session.reported_changes = session.changes  # by the answer to this exchange
    engine.sessions.add(session)
    return session


async def _settle_late(engine: Engine, found: FoundSubscription, wanted: Exchange) -> NoReturn:
    """The session has ended. Where no order is kept, its acknowledgments count all the same, unless a seek or
    a deletion since then is the reason that the logs come again."""
    taken = ""
    is_of_now = is_of_generation(wanted.session, found.saved.generation)
    if not wanted.type.is_ordered and wanted.acks and not is_of_now:
        taken = "; since then the subscription was created or set to a position, so nothing was settled"
    elif not wanted.type.is_ordered and wanted.acks:
        with opened(engine, found) as dispatch:
            dispatch.refresh()
            for shard, runs in wanted.acks.items():
                dispatch.apply(Ack(shard=shard, runs=list(_by_group(runs))))
        if wanted.is_durable:
            await found.saved.durable()
        taken = "; its acknowledgments were taken"
    raise failure(
        Code.SUBSCRIPTION_FENCED, f"the session of consumer {wanted.consumer} has ended{taken}: join again"
    )


def _by_group(runs: Sequence[Run]) -> Iterator[Run]:
    """The runs cut where log groups end."""
    for first, stop in runs:
        while first < stop:
            end = min(stop, group_end(first))
            yield first, end
            first = end


@dataclass(slots=True)
class _Receipt:
    """What became of what was settled."""

    rejected: int = 0
    fenced: tuple[int, ...] = ()


class _ExchangeCall:
    """One exchange of a session."""

    def __init__(
        self,
        engine: Engine,
        request: Request,
        found: FoundSubscription,
        session: LeasedConsumer,
        wanted: Exchange,
        ls: str,
    ) -> None:
        self._engine = engine
        self._request = request
        self._found = found
        self._session = session
        self._wanted = wanted
        self._ls = ls

    @property
    def _dispatch(self) -> Dispatch:
        dispatch = self._engine.dispatches.get(self._found.logs.id, self._found.saved.name)
        if dispatch is None or self._session.is_closed:
            self._gone()
        return dispatch

    def _gone(self) -> NoReturn:
        find(self._engine, self._request, self._ls, self._found.saved.name)
        raise failure(
            Code.SUBSCRIPTION_FENCED, f"the session of consumer {self._session.name} has ended: join again"
        )

    async def run(self) -> ServiceResponse:
        wanted, session = self._wanted, self._session
        receipt = self._settle()
        if wanted.is_durable and (wanted.acks or not wanted.session):
            await self._found.saved.durable()
        if wanted.leave:
            self._engine.sessions.end(session)
            return _answer(replace(self._described(receipt, ()), session=""))
        if wanted.number is None:
            return _answer(self._described(receipt, ()))
        return await self._receive(wanted.number, receipt)

    # Settling

    def _settle(self) -> _Receipt:
        wanted, dispatch, receipt = self._wanted, self._dispatch, _Receipt()
        acks = {shard: list(_by_group(runs)) for shard, runs in wanted.acks.items()}
        nacks = [(nack, list(_by_group(nack.runs))) for nack in wanted.nacks]
        released = {shard: list(_by_group(runs)) for shard, runs in wanted.release.items()}
        named = {*acks, *released, *(nack.shard for nack in wanted.nacks)}
        if wanted.type.is_ordered:
            active = active_shards(dispatch.saved.state.shards, self._session.number)
            receipt.fenced = tuple(sorted(named - set(active)))
        for shard, runs in acks.items():
            if shard not in receipt.fenced:
                receipt.rejected += self._ack(dispatch, shard, runs)
        if self._is_settled():
            return receipt
        for nack, runs in nacks:
            if nack.shard not in receipt.fenced:
                self._redeliver(nack.shard, runs, delay_s=nack.delay_s, is_counted=True)
        for shard, runs in released.items():
            if shard not in receipt.fenced:
                self._redeliver(shard, runs, delay_s=0.0, is_counted=False)
        return receipt

    def _is_settled(self) -> bool:
        """Whether an earlier attempt of this call has had the effects that would add up: a log that is
        acknowledged stays so, and one that is delivered again could be refused twice."""
        number, session = self._wanted.settlement, self._session
        if number is None:
            return False
        if number <= session.settlement:
            return True
        session.settlement = number
        return False

    def _ack(self, dispatch: Dispatch, shard: int, runs: list[Run]) -> int:
        """How many could not be taken. What ends at the mark and goes on is one step in an ordered type."""
        cursor = dispatch.saved.state.shards.get(shard)
        if cursor is None:
            return len(runs)
        stop = cursor.acked.mark
        if self._wanted.type.is_ordered:
            for first, end in runs:
                stop = max(stop, end) if first <= stop else stop
        if stop > cursor.acked.mark and stop <= cursor.end:
            dispatch.apply(AckUpTo(shard=shard, stop=stop))
            runs = [(first, end) for first, end in runs if end > stop]
        return dispatch.apply(Ack(shard=shard, runs=runs)).rejected if runs else 0

    def _redeliver(self, shard: int, runs: list[Run], *, delay_s: float, is_counted: bool) -> None:
        if self._wanted.type.is_ordered:
            self._session.drop(shard)
        self._dispatch.apply(
            Redeliver(
                consumer=self._session.number,
                shard=shard,
                runs=runs,
                delay_s=delay_s,
                is_counted=is_counted,
            )
        )

    # Receiving

    async def _receive(self, number: int, receipt: _Receipt) -> ServiceResponse:
        session, wanted, engine = self._session, self._wanted, self._engine
        async with session.sending:
            self._check_number(number)
            session.turn += 1
            session.wake()  # an earlier receive is over
            turn = session.turn
            if number == session.last_number:
                return await self._send(number, session.last, receipt)
        woken = asyncio.Event()
        session.wake = woken.set

        def has_changed() -> bool:
            is_over = session.turn != turn or session.is_closed
            return is_over or bool(session.queue) or session.changes != session.reported_changes

        poll_name = f"subscription session {session.id}"
        with engine.polls.place(self._request, poll_name, watched=1, wake=woken.set) as poll:
            self._allow(max(0, wanted.max_logs - session.queued_logs))
            await wait_for_change(self._request, poll, woken, wait_s=wanted.wait_s, has_changed=has_changed)
        async with session.sending:
            if session.is_closed:
                self._gone()
            if session.turn != turn:
                return _answer(self._described(receipt, ()))
            self._allow(0)  # so that what comes now is for those who wait
            if self._request.is_gone():
                return EMPTY
            return await self._send(number, session.take(engine.clock.monotonic_s()), receipt)

    def _check_number(self, number: int) -> None:
        last = self._session.last_number
        if number not in (last, last + 1):
            raise failure(
                Code.PARAMETER_INVALID,
                f"the number of a receive is {last + 1}, or {last} to get the last answer again",
            )

    def _allow(self, permits: int) -> None:
        shards = self._wanted.shards
        only = None if shards is None else frozenset(shards)
        self._dispatch.apply(Allow(consumer=self._session.number, permits=permits, only=only))

    def _still_out(self, before: Sequence[Dealt]) -> list[Dealt]:
        """What was dealt and was not acknowledged since."""
        dispatch, number = self._dispatch, self._session.number
        parts = ((shard, dispatch.still_out(number, shard, runs)) for shard, runs in before)
        return [(shard, left) for shard, left in parts if left]

    async def _send(self, number: int, dealt: list[Dealt], receipt: _Receipt) -> ServiceResponse:
        """Read the log groups of what is still out. What does not fit waits for the next answer, all of it
        if the reading fails. Of a shard with damaged log data nothing comes for a while, and of others it
        does."""
        session, epochs = self._session, dict(self._session.epochs)
        dealt = self._still_out(dealt)
        logs = {shard: log for shard, _ in dealt if (log := self._log(shard)) is not None}
        found = _FoundGroups(left=list(_pieces(dealt)), damage=dict(session.damage))
        if not session.unreadable:
            found.damage.clear()
        try:
            async with self._engine.pulling:
                await asyncio.to_thread(
                    _read, logs, found, bodies=session.bodies, max_bytes=self._wanted.max_bytes
                )
            session.last_number = number
        finally:
            session.last = session.valid(_dealt(found.sent), epochs)
            session.put_back(_dealt(found.left), epochs)
            again_s = self._engine.clock.monotonic_s() + DAMAGE_WAIT_S
            session.keep_unreadable(session.valid(_dealt(found.unreadable), epochs), found.damage, again_s)
        return _answer(self._described(receipt, tuple(found.groups), await self._backlog()))

    def _log(self, shard: int) -> ShardLog | None:
        return self._engine.logs.get((self._found.logs.id, shard))

    async def _backlog(self) -> dict[int, int | None]:
        """The backlog by shard, counted once a second at most, since the count may read the disk."""
        session, now_s = self._session, self._engine.clock.monotonic_s()
        if now_s - session.backlog_s < _BACKLOG_S:
            return session.backlog
        cursors = self._found.saved.state.shards.values()
        counted = [
            (cursor.shard, log, cursor.backlog) for cursor in cursors if (log := self._log(cursor.shard))
        ]
        now_us = self._engine.now_us()
        session.backlog = await asyncio.to_thread(
            lambda: {shard: backlog_of(log, backlog, now_us) for shard, log, backlog in counted}
        )
        session.backlog_s = now_s
        return session.backlog

    def _described(
        self,
        receipt: _Receipt,
        groups: tuple[DeliveredGroup, ...],
        backlog: dict[int, int | None] | None = None,
    ) -> Exchanged:
        session, shards = self._session, self._found.saved.state.shards
        dispatch = self._engine.dispatches.get(self._found.logs.id, self._found.saved.name)
        session.reported_changes = session.changes
        return Exchanged(
            session=session.id,
            lease_s=session.lease_s,
            groups=groups,
            shards={shard: cursor.state for shard, cursor in shards.items() if cursor.state is not None},
            active=active_shards(shards, session.number),
            end_cursors={
                shard: wire_cursor.encode(log.extent.end_cursor)
                for shard in shards
                if (log := self._log(shard)) is not None
            },
            backlog=session.backlog if backlog is None else backlog,
            rejected=receipt.rejected,
            fenced=receipt.fenced,
            unreadable=session.damage | ({} if dispatch is None else dispatch.unreadable),
        )


def _answer(exchanged: Exchanged) -> ServiceResponse:
    return ServiceResponse(
        body=msgspec.msgpack.encode(exchanged), content_type=EXCHANGE_MEDIA_TYPE, is_repeatable=True
    )


Piece = tuple[int, int, list[DeliveredRun]]  # a shard, the ordinal of a log group, and what is meant of it


def _pieces(dealt: Sequence[Dealt]) -> Iterator[Piece]:
    """What was dealt, log group by log group."""
    for shard, runs in dealt:
        for ordinal, of_group in groupby(runs, lambda run: ordinal_of(run[0])):
            yield shard, ordinal, list(of_group)


def _dealt(pieces: Sequence[Piece]) -> list[Dealt]:
    return [(shard, runs) for shard, _, runs in pieces]


@dataclass(slots=True)
class _FoundGroups:
    """What was read of the pieces that were ``left``. ``damage``: why nothing is read of a shard."""

    left: list[Piece]
    damage: dict[int, str]
    groups: list[DeliveredGroup] = field(default_factory=list)
    sent: list[Piece] = field(default_factory=list)
    unreadable: list[Piece] = field(default_factory=list)


def _read(logs: dict[int, ShardLog], found: _FoundGroups, *, bodies: bool, max_bytes: int) -> None:
    """Read the log groups of the pieces in their order, as many as fit, but at least one. What has expired
    or was deleted with its shard is left out. Blocks."""
    size = 0
    while found.left and (size < max_bytes or not found.groups):
        piece = shard, ordinal, runs = found.left[0]
        group = None
        if shard not in found.damage and (log := logs.get(shard)) is not None:
            try:
                with readable():
                    group = _group(log, shard, ordinal, runs, bodies=bodies)
            except Unreadable as error:
                _log.error("a consumer waits: log data cannot be read", error=str(error), shard=shard)
                found.damage[shard] = str(error)
        if group is not None:
            size += len(group.body.content) if group.body is not None else 0
            if size > max_bytes and found.groups:
                return
            found.groups.append(group)
        (found.unreadable if shard in found.damage else found.sent).append(piece)
        found.left.pop(0)


def _group(
    log: ShardLog, shard: int, ordinal: int, runs: Sequence[DeliveredRun], *, bodies: bool
) -> DeliveredGroup | None:
    cursor = cursor_of(log, ordinal)
    read = log.read(cursor=cursor, end_cursor=cursor + 1, max_groups=1, max_bytes=1)
    if not read.entries or read.entries[0].cursor != cursor:
        return None
    entry, begin = read.entries[0], position_of(ordinal)
    indexes = [position - begin for first, stop, _ in runs for position in range(first, stop)]
    counts = [count for first, stop, count in runs for _ in range(first, stop)]
    return DeliveredGroup(
        shard=shard,
        cursor=wire_cursor.encode(cursor),
        ordinal=ordinal,
        body=packed_list(entry.group) if bodies else None,
        indexes=None if indexes == list(range(entry.logs)) else tuple(indexes),
        redeliveries=tuple(counts) if any(counts) else (),
        received_us=entry.received_us,
    )
