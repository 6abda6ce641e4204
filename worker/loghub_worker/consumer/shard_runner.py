"""The thread of one shard: calls its processor, step by step."""

import threading
from collections.abc import Callable

import structlog

from loghub_worker.consumer import shard_flow
from loghub_worker.consumer.batch import LogBatch
from loghub_worker.consumer.processor import Processor, ProcessorFactory
from loghub_worker.consumer.processor_calls import ProcessorCalls, RemoteError
from loghub_worker.consumer.shard_flow import ShardFlow, Step
from loghub_worker.consumer.shard_table import ShardSlot, ShardTable
from loghub_worker.consumer.tracker import ShardTracker
from loghub_worker.log_service import ReportedError, decode_cursor
from loghub_worker.source.shard_reader import ShortReadError

log = structlog.get_logger()
PROCESSOR_FAILED = "ProcessorFailed"


class ShardRunner:
    """Runs one assignment of a shard from `initialize` to `shutdown`."""

    def __init__(
        self, table: ShardTable, slot: ShardSlot, tracker: ShardTracker, factory: ProcessorFactory
    ) -> None:
        self._table = table
        self._slot = slot
        self._tracker = tracker
        self._factory = factory
        self._processor: Processor | None = None
        self._call = ProcessorCalls()
        # A processor that never returns must not keep the program from ending.
        self.thread = threading.Thread(target=self._run, name=f"shard-{tracker.shard}", daemon=True)

    def start(self) -> None:
        self.thread.start()

    def _run(self) -> None:
        steps: dict[Step, Callable[[], None]] = {
            Step.INITIALIZE: self._initialize,
            Step.PROCESS: self._process,
            Step.SHUT_DOWN: self._shut_down,
        }
        try:
            while (step := self._table.await_step(self._slot)) is not Step.END:
                steps[step]()
        except BaseException as failure:  # noqa: BLE001 - such as SystemExit of user code: ends the consumer
            self._table.fail(failure)
            self._table.apply(self._slot, lambda flow, _: shard_flow.shut_down(flow))
        finally:
            self._call.close()

    def _initialize(self) -> None:
        try:
            self._processor = self._processor or self._factory()
            self._call(self._processor.initialize, self._tracker.shard)
        except Exception as error:  # noqa: BLE001 - user code
            self._report("initialize", error)
            retries = self._table.retries
            self._apply(lambda flow, now: shard_flow.initialize_failed(flow, retries=retries, now=now))
            return
        self._apply(lambda flow, now: shard_flow.initialized(flow, now=now))

    def _process(self) -> None:
        assert self._slot.kept is not None
        assert self._processor is not None
        batch, generation = self._slot.kept
        self._tracker.begin_batch(batch.end)
        try:
            returned = self._call(self._processor.process, batch, self._tracker)
            to = None if returned is None else decode_cursor(returned)
        except ShortReadError as error:
            self._report("process", error)
            self._roll_back(batch, generation, to=batch.begin)  # the body is unusable, so it is pulled again
        except Exception as error:  # noqa: BLE001 - user code
            self._report("process", error)
            self._fail(batch, generation)
        else:
            self._slot.user_error = ReportedError()
            if to is None:
                self._complete(batch, generation)
            else:
                self._roll_back(batch, generation, to=to)

    def _complete(self, batch: LogBatch, generation: int) -> None:
        self._end_batch(
            lambda flow, _: shard_flow.batch_done(
                flow, end=batch.end, size=batch.size_bytes, generation=generation
            )
        )

    def _fail(self, batch: LogBatch, generation: int) -> None:
        size, retries = batch.size_bytes, self._table.retries
        self._end_batch(
            lambda flow, now: shard_flow.batch_failed(
                flow, size=size, generation=generation, retries=retries, now=now
            )
        )

    def _roll_back(self, batch: LogBatch, generation: int, *, to: int) -> None:
        size, retries = batch.size_bytes, self._table.retries
        self._end_batch(
            lambda flow, now: shard_flow.rolled_back(
                flow, to=to, size=size, generation=generation, retries=retries, now=now
            )
        )

    def _end_batch(self, event: Callable[[ShardFlow, float], ShardFlow]) -> None:
        self._tracker.end_batch(self._table.end_batch(self._slot, event).position)

    def _shut_down(self) -> None:
        if self._processor is not None and self._slot.flow.is_initialized:
            self._tracker.end_batch(self._slot.flow.position)
            try:
                self._call(self._processor.shutdown, self._tracker)
            except Exception as error:  # noqa: BLE001 - user code
                self._report("shutdown", error)
        self._apply(lambda flow, _: shard_flow.shut_down(flow))

    def _apply(self, event: Callable[[ShardFlow, float], ShardFlow]) -> None:
        self._table.apply(self._slot, event)

    def _report(self, method: str, error: Exception) -> None:
        is_remote = isinstance(error, RemoteError)
        what = "failed" if is_remote else f"raised {type(error).__name__}"
        message = f"{method} of shard {self._tracker.shard} {what}: {error}"
        if self._slot.user_error.message != message:
            about = {"message": str(error)} if is_remote else {"exc_info": error}
            log.warning("processor failed", shard=self._tracker.shard, method=method, **about)
        self._slot.user_error = ReportedError(PROCESSOR_FAILED, message)
