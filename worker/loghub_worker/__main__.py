"""``python -m loghub_worker``: run one worker process; with the argument ``executor``, an executor of Spark
(`loghub_worker.query.executor_pods`). With ``check`` it is no worker, but makes the checks of its start
(`loghub_worker.start_check`), and with ``try`` it runs the pipeline over given logs
(`loghub_worker.dry_run`).

The process reads its settings from the environment and turns the outcome of the worker into an exit status:
`loghub_worker.worker.WorkerRuntime` on Spark, or for a processor
`loghub_worker.processing.processor_worker.ProcessorWorker`. It ends the processes that the worker has
started, and writes the message of a failure to the termination log, from which the kubelet copies it into the
container's status.

Exit status: 0 the worker stopped on request, or could work, or the report of the given logs is written; 1 a
fatal error; 2 invalid settings.
"""

import contextlib
import logging
import os
import signal
import sys
from pathlib import Path
from typing import Protocol

import structlog

from loghub.clock import SystemClock
from loghub.contract import dry_run
from loghub.contract.processor import ProcessorPipeline
from loghub.contract.worker import ENV_TERMINATION_LOG, LogSettings
from loghub_consumer.errors import FatalError
from loghub_worker.log import configure_log, open_log_file
from loghub_worker.pre_stop import record_pid
from loghub_worker.query.executor_pods import ARGUMENT, NotAnExecutorError, become_executor
from loghub_worker.query.spark_jvm import JvmMisjudgedError
from loghub_worker.settings import BadSettingsError, WorkerSettings, read_settings

log = structlog.get_logger()


def end_children(threads: Path = Path("/proc/self/task")) -> None:
    """End the processes that this one started. A JVM ends with its pipe, except for one whose start was
    interrupted: its port was never read, and it waits forever. This works on Linux; elsewhere that JVM is
    left."""
    for children in threads.glob("*/children"):
        for pid in _pids(children):
            with contextlib.suppress(ProcessLookupError):
                os.kill(int(pid), signal.SIGTERM)


def _pids(path: Path) -> list[str]:
    """The process ids in a file; none for a thread that has ended since it was listed, as Spark's threads do
    now."""
    try:
        return path.read_text().split()
    except OSError:
        return []


class AnyWorker(Protocol):
    """A worker process."""

    def run(self) -> None:
        """Work until stopped. Raises `FatalError`."""

    def request_stop(self) -> None:
        """Only for a signal handler in the main thread."""


STOPPED, FATAL, INVALID_SETTINGS = 0, 1, 2
AGAIN = -1  # no exit status: this process becomes a new worker
TERMINATION_MESSAGE_BYTES = 4000  # the kubelet keeps 4096 bytes


def main() -> int:
    """Run a worker until it ends, and return the exit status."""
    configure_log(LogSettings())  # until the settings are known
    if sys.argv[1:] == [ARGUMENT]:
        return _executor()
    try:
        settings = read_settings(os.environ)
    except BadSettingsError as error:
        log.error("invalid settings", message=str(error))
        _write_termination_message(os.environ.get(ENV_TERMINATION_LOG), str(error))
        return INVALID_SETTINGS
    log_file = open_log_file(settings)
    configure_log(settings.config.log, log_file)
    try:
        return _run(settings)
    finally:
        if log_file is not None:
            log_file.close()


def _executor() -> int:
    try:
        become_executor(os.environ)
    except NotAnExecutorError as error:
        log.error("not an executor", message=str(error))
        return INVALID_SETTINGS


def _run(settings: WorkerSettings) -> int:
    if settings.ignored:
        log.warning("settings of another release are ignored", settings=", ".join(settings.ignored))
    try:
        match sys.argv[1:]:
            case [dry_run.CHECK, *how]:
                from loghub_worker.start_check import check_settings  # a worker does without

                check_settings(settings, offline=how == [dry_run.OFFLINE])
                return STOPPED
            case [dry_run.TRY, sample, report]:
                from loghub_worker.dry_run import try_sample

                try_sample(settings, Path(sample), Path(report))
                return STOPPED
        worker = make_worker(settings)
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, lambda *_: worker.request_stop())
        record_pid(settings.state_dir)
        worker.run()
    except FatalError as fatal:
        if len(sys.argv) == 1:  # otherwise the message is the whole answer
            log.error("the worker failed", reason=fatal.reason, message=fatal.message)
        _write_termination_message(settings.termination_log, str(fatal))
        return FATAL
    except JvmMisjudgedError:
        log.info("starting once more, with a JVM that computes rows")
        return AGAIN
    except Exception as fault:
        log.exception("internal error")
        _write_termination_message(
            settings.termination_log, f"InternalError: {type(fault).__name__}: {fault}"
        )
        return FATAL
    return STOPPED


def make_worker(settings: WorkerSettings) -> AnyWorker:
    """The worker for a pipeline. Only one for Spark imports it: the other starts in a second."""
    if isinstance(settings.config.pipeline, ProcessorPipeline):
        from loghub_worker.processing.processor_worker import ProcessorWorker

        return ProcessorWorker(settings, SystemClock())
    from loghub_worker.worker import WorkerRuntime

    return WorkerRuntime(settings, SystemClock())


def _write_termination_message(path: Path | str | None, text: str) -> None:
    if not path:
        return
    try:
        Path(path).write_bytes(text.encode(errors="replace")[:TERMINATION_MESSAGE_BYTES])
    except OSError as error:  # the log contains the message as well
        log.warning("termination message not written", message=str(error))


if __name__ == "__main__":
    status = main()
    logging.shutdown()
    sys.stdout.flush()
    sys.stderr.flush()
    end_children()
    if status == AGAIN:
        os.execv(sys.executable, [sys.executable, *sys.orig_argv[1:]])  # noqa: S606 - this program
    # Threads that wait in Spark's gateway must not keep the process alive.
    os._exit(status)
