"""Consumers of several logstores of a project in one program: one `Consumer` for each.

They share a bound on memory, threads, connections, the listener and the end. The logstores of the project are
looked up regularly.
"""

import re
import threading
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TypeAlias

import structlog

from loghub.client.port import LogHub
from loghub.clock import SystemClock
from loghub.wire.errors import LogHubException
from loghub_consumer.consumer import Consumer, ConsumerError
from loghub_consumer.log_service import to_reported_error
from loghub_consumer.membership.turns import Turn
from loghub_consumer.processor import Listener, ProcessorFactory
from loghub_consumer.program_parts import SharedParts
from loghub_consumer.settings import ConsumerSettings, about_consumer, connect, log_to_logging

log = structlog.get_logger()

STEP_S = 0.2  # `wakeup` takes no lock, so `run` notices it only when it looks: this often
LIFE_STEP_S = 1.0  # how often a consumer looks for due work, unless it is woken
Change: TypeAlias = Callable[[ConsumerSettings], ConsumerSettings]


class MultiLogstoreListener:
    """A `loghub_consumer.processor.Listener` for all logstores; one call at a time. An exception ends the
    program."""

    def on_assigned(self, logstore: str, shards: tuple[int, ...]) -> None:
        """Called before the shards are processed."""

    def on_revoked(self, logstore: str, shards: tuple[int, ...]) -> None:
        """The shards are being given up and no batch of them runs any more."""

    def on_lost(self, logstore: str, shards: tuple[int, ...]) -> None:
        """Other consumers may have the shards already, or the logstore was deleted."""


class _LogstoreListener(Listener):
    """The listener of one logstore."""

    def __init__(
        self,
        logstore: str,
        listener: MultiLogstoreListener,
        lock: threading.RLock,
        fail: Callable[[BaseException], None],
    ) -> None:
        self._logstore = logstore
        self._listener = listener
        self._lock = lock
        self._fail = fail

    def on_assigned(self, shards: tuple[int, ...]) -> None:
        self._call(self._listener.on_assigned, shards)

    def on_revoked(self, shards: tuple[int, ...]) -> None:
        self._call(self._listener.on_revoked, shards)

    def on_lost(self, shards: tuple[int, ...]) -> None:
        self._call(self._listener.on_lost, shards)

    def _call(self, method: Callable[[str, tuple[int, ...]], None], shards: tuple[int, ...]) -> None:
        with self._lock:
            try:
                method(self._logstore, shards)
            except BaseException as failure:
                self._fail(failure)
                raise


def _check_targets(settings: ConsumerSettings, logstores: Collection[str] | re.Pattern[str]) -> None:
    """Raises `ValueError` if failed logs would be read again."""
    for name in settings.targets:
        is_read = logstores.fullmatch(name) if isinstance(logstores, re.Pattern) else name in logstores
        if is_read:
            raise ValueError(
                f"the dead letter is the logstore {name}, which is one of those that are read, so that what"
                " fails would fail again; name another one, or leave it out of logstores"
            )


@dataclass(slots=True)
class _LogstoreRun:
    consumer: Consumer
    ended: threading.Event = field(default_factory=lambda: threading.Event())
    turn: Turn | None = None

    def wakeup(self) -> None:
        self.consumer.wakeup()
        if self.turn is not None:
            self.turn.wake()


class MultiLogstoreConsumer:
    """Runs a `Consumer` for each of several logstores. `run` it once; the other methods may be called by any
    thread."""

    def __init__(
        self,
        settings: ConsumerSettings,
        factory: Callable[[str], ProcessorFactory],
        logstores: Collection[str] | re.Pattern[str],
        listener: MultiLogstoreListener | None = None,
        *,
        change: Change = lambda settings: settings,
        look_up_interval_s: float = 30.0,
    ) -> None:
        """Each logstore has the settings that `change` returns for `settings` with its name in `logstore`;
        `max_buffered_bytes` is for all together. `factory` makes the factory of a logstore. `logstores` are
        names, or a pattern that matches whole names; the existing ones are looked up every
        `look_up_interval_s`. Raises `ValueError` for `ConsumerSettings.retry`, whose logstore belongs to one
        logstore only, for a dead letter in one of `logstores`, for `ConsumerSettings.end_time_s`, since
        further logstores may be created, for `ConsumerSettings.subscription`, of which each one holds a
        request open, and for `ConsumerSettings.processes`, which would be processes of each logstore."""
        if settings.logstore:
            raise ValueError("logstore is set; leave it out, since logstores names them")
        if settings.retry is not None:
            raise ValueError("retry is set; logs of several logstores cannot wait in the same one")
        if settings.end_time_s is not None:
            raise ValueError("end_time_s is set; run a Consumer for each logstore, which returns at its end")
        if settings.subscription is not None:
            raise ValueError(
                "subscription is set, and each logstore would hold a request open; run a Consumer for each"
                " logstore"
            )
        if settings.processes:
            raise ValueError("processes is set; run a Consumer for each logstore, with processes of its own")
        _check_targets(settings, logstores)
        if look_up_interval_s <= 0:
            raise ValueError(f"look_up_interval_s is {look_up_interval_s}; it must be above 0")
        log_to_logging()
        self._settings = settings
        self._factory = factory
        self._logstores = logstores
        self._listener = listener or MultiLogstoreListener()
        self._change = change
        self._look_up_interval_s = look_up_interval_s
        self._clock = SystemClock()
        self._shared = SharedParts(settings.max_buffered_bytes, self._clock)
        self._lock = threading.Lock()  # of all fields below
        self._calling = threading.RLock()  # while the listener runs
        self._runs: dict[str, _LogstoreRun] = {}
        self._paused: set[str] = set()
        self._errors: dict[str | None, ConsumerError] = {}
        self._failure: BaseException | None = None
        self._stop = False
        self._ended = threading.Event()
        self._thread: threading.Thread | None = None

    def run(self) -> None:
        """Consume until `shutdown`, `wakeup` or Ctrl-C. Raises `LogHubException` if the logstores cannot be
        looked up at the start, and the exceptions of the listener, or of a processor that ends its thread. A
        consumer that cannot start, for example without its group, is in `errors`, and started again at each
        look-up."""
        if self._thread is not None:
            raise RuntimeError("this runs only once; make another one")
        self._thread = threading.current_thread()
        with about_consumer(self._settings):  # without a logstore, which the messages of its consumers name
            self._serve()
        if self._failure is not None:
            raise self._failure

    def _serve(self) -> None:
        client = connect(self._settings)
        try:
            logstores = client.list_logstores()
            due_s = self._clock.monotonic_s()
            while not self._stop and self._failure is None:
                now = self._clock.monotonic_s()
                if now >= due_s:
                    self._follow(logstores)
                    due_s = now + self._look_up_interval_s
                self._ended.wait(STEP_S)
                if self._clock.monotonic_s() >= due_s and not self._stop:
                    logstores = self._look_up(client, logstores)
        except BaseException as failure:  # noqa: BLE001 - such as Ctrl-C: raised again after the end of all
            self._fail(failure)
        finally:
            self._end()
            client.close()

    def wakeup(self) -> None:
        """Let `run` return once running batches have ended. Takes no lock: a signal handler may call it."""
        self._stop = True

    def shutdown(self, timeout_s: float | None = None) -> bool:
        """End like `wakeup`, and wait until `run` has returned; False after `timeout_s`. A processor or the
        listener does not wait for itself."""
        self._stop = True
        with self._lock:
            runs = tuple(self._runs.values())
        is_own = threading.current_thread() is self._thread or any(
            run.consumer.is_own_thread() for run in runs
        )
        return self._ended.is_set() if self._thread is None or is_own else self._ended.wait(timeout_s)

    def consumers(self) -> dict[str, Consumer]:
        """The running consumers by logstore, for `seek`, `lag`, `pause` of single shards, and their other
        methods."""
        with self._lock:
            return {logstore: run.consumer for logstore, run in self._runs.items()}

    def pause(self, logstores: Iterable[str]) -> None:
        """Hand over no further batch of these logstores, even if they do not exist yet."""
        for logstore in logstores:
            with self._lock:
                self._paused.add(logstore)
                run = self._runs.get(logstore)
            if run is not None:
                run.consumer.pause()

    def resume(self, logstores: Iterable[str]) -> None:
        """The opposite of `pause`."""
        for logstore in logstores:
            with self._lock:
                self._paused.discard(logstore)
                run = self._runs.get(logstore)
            if run is not None:
                run.consumer.resume()

    def errors(self) -> Mapping[str | None, tuple[ConsumerError, ...]]:
        """The present problems by logstore; None for the look-up."""
        with self._lock:
            self._forget_errors()
            errors_by_logstore = {logstore: (error,) for logstore, error in self._errors.items()}
        for logstore, consumer in self.consumers().items():
            errors_by_logstore[logstore] = (*errors_by_logstore.get(logstore, ()), *consumer.errors())
        return {logstore: errors for logstore, errors in errors_by_logstore.items() if errors}

    # -- logstores come and go

    def _look_up(self, client: LogHub, before: tuple[str, ...]) -> tuple[str, ...]:
        try:
            logstores = client.list_logstores()
        except LogHubException as error:
            self._note(None, error)
            return before
        with self._lock:
            self._errors.pop(None, None)
        return logstores

    def _follow(self, logstores: tuple[str, ...]) -> None:
        """Begin with new logstores, and give up the ones that no longer exist, or lost their group."""
        if isinstance(self._logstores, re.Pattern):
            wanted = {name for name in logstores if self._logstores.fullmatch(name)}
        else:
            wanted = set(self._logstores) & set(logstores)
            for name in set(self._logstores) - set(logstores):
                self._set_error(name, "LogstoreNotFound", f"logstore {name} does not exist")
        for logstore, run in self._drop_ended().items():
            if logstore not in wanted:
                log.info("logstore no longer exists", logstore=logstore)
                run.consumer.abandon()
            elif run.consumer.has_lost_group:
                # The logstore was perhaps deleted and created again: the next look-up starts it again.
                log.warning("consumer group no longer exists", logstore=logstore)
                run.consumer.abandon()
        for logstore in sorted(wanted - self._runs.keys()):
            self._begin(logstore)

    def _forget_errors(self) -> None:
        """Forget the errors of consumers that have started, since these have errors of their own."""
        for logstore, run in self._runs.items():
            if run.consumer.has_started and not run.ended.is_set():
                self._errors.pop(logstore, None)

    def _drop_ended(self) -> dict[str, _LogstoreRun]:
        with self._lock:
            self._forget_errors()
            self._runs = {name: run for name, run in self._runs.items() if not run.ended.is_set()}
            return dict(self._runs)

    def _begin(self, logstore: str) -> None:
        settings = self._change(replace(self._settings, logstore=logstore))
        kept = settings.logstore == logstore and not settings.processes
        if not kept or settings.retry or settings.end_time_s is not None:
            raise ValueError("change must keep logstore, and set neither retry nor end_time_s nor processes")
        _check_targets(settings, self._logstores)
        listener = _LogstoreListener(logstore, self._listener, self._calling, self._fail)
        parts = self._shared.of(logstore)
        run = _LogstoreRun(Consumer(settings, self._factory(logstore), listener, shared=parts))
        with self._lock:
            self._runs[logstore] = run
            is_paused = logstore in self._paused
        if is_paused:
            run.consumer.pause()
        run.consumer.call_on_change(lambda: self._wake(run))
        run.turn = self._shared.lives.start(logstore, partial(self._step, logstore, run, run.consumer.life()))

    def _wake(self, run: _LogstoreRun) -> None:
        if run.turn is not None:
            run.turn.wake()

    def _step(self, logstore: str, run: _LogstoreRun, life: Iterator[int]) -> float | None:
        try:
            if next(life, None) is not None:
                return LIFE_STEP_S
        except (LogHubException, OSError) as error:  # it could not start
            self._note(logstore, error)
        except BaseException as failure:  # noqa: BLE001 - `run` raises it
            self._fail(failure)
        run.ended.set()
        return None

    def _note(self, logstore: str | None, error: Exception) -> None:
        reported = to_reported_error(error)
        self._set_error(logstore, reported.reason, reported.message)

    def _set_error(self, logstore: str | None, reason: str, message: str) -> None:
        with self._lock:
            before = self._errors.get(logstore)
            self._errors[logstore] = ConsumerError(shard=None, reason=reason, message=message)
        if before is None or before.reason != reason:
            log.warning(
                "logstore not consumed, will retry", logstore=logstore, reason=reason, message=message
            )

    def _fail(self, failure: BaseException) -> None:
        with self._lock:
            self._failure = self._failure or failure

    def _end(self) -> None:
        with self._lock:
            runs = tuple(self._runs.values())
        for run in runs:
            run.wakeup()
        for run in runs:
            run.ended.wait()
        self._shared.close()
        self._ended.set()
