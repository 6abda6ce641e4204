"""One driver of Spark in which workers run one after another, each as `python -m loghub_worker` would run it.

A worker's session is most of the cost of its start, and a session on a cluster also starts executors. So
the tests that hold for every `spark.master` share a driver for each. The first worker starts the session,
with the code that starts every worker's, and the others get the same one.

``python -m tests.loghub_worker.spark_driver`` is the driver. Each line of its input has the variables of a
worker as JSON; when the worker has ended, its exit status is in the file ``exit`` in its folder.
"""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import msgspec

from loghub.contract.worker import WorkerConfig, WorkerStatus
from tests.loghub_worker.support import GUARD_S, NO_VARIABLES, worker_environment
from tests.support import PYTHON_PATH, ROOT, wait_until

EXIT = "exit"


class HostedWorker:
    """A worker in a `SparkDriver`."""

    def __init__(self, folder: Path, driver: "SparkDriver") -> None:
        self.folder = folder
        self._driver = driver

    @property
    def exit_status(self) -> int | None:
        path = self.folder / EXIT
        return int(path.read_text()) if path.exists() else None

    @property
    def status(self) -> WorkerStatus | None:
        """What it reports. Fails if it has ended with an error."""
        assert not self.exit_status, self.log_tail()
        self._driver.check()
        path = self.folder / "status.json"
        return msgspec.json.decode(path.read_bytes(), type=WorkerStatus) if path.exists() else None

    def logs(self) -> dict[int, int]:
        """How many logs it has counted, by shard."""
        status = self.status
        return {} if status is None else {one.shard: one.logs for one in status.shards}

    def log_tail(self) -> str:
        return self._driver.log_tail()

    def end(self) -> None:
        """Let it drain, and wait until it has ended. Fails if it ends with an error."""
        self._driver.end_worker()
        self._driver.wait(lambda: self.exit_status is not None, "the worker to end")
        assert self.exit_status == 0, self.log_tail()


class SparkDriver:
    """A driver whose tasks run at the `master`; all that it writes is in `folder`."""

    def __init__(self, folder: Path, master: str) -> None:
        self.folder = folder
        self.master = master
        folder.mkdir()
        self._log = (folder / "log").open("wb")
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.loghub_worker.spark_driver"],
            cwd=ROOT,
            env=os.environ | {"PYTHONPATH": PYTHON_PATH},
            stdin=subprocess.PIPE,
            stdout=self._log,
            stderr=self._log,
        )

    @contextmanager
    def worker(
        self,
        name: str,
        config: WorkerConfig,
        *,
        credentials_dir: Path,
        variables: Mapping[str, str] = NO_VARIABLES,
    ) -> Iterator[HostedWorker]:
        """Run a worker; `name` is new to this driver. It must have ended, or is ended here."""
        place = self.folder / name
        place.mkdir()
        config = msgspec.structs.replace(config, spark_master=self.master)
        (place / "config.json").write_bytes(msgspec.json.encode(config))
        environment = worker_environment(place, name="w-0", credentials_dir=credentials_dir) | variables
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(environment).encode() + b"\n")
        self._process.stdin.flush()
        worker = HostedWorker(place, self)
        try:
            yield worker
        finally:
            if worker.exit_status is None:
                worker.end()

    def wait(self, condition: Callable[[], bool], what: str) -> None:
        """Wait for it; fails with the end of the log if the driver ends."""

        def holds() -> bool:
            self.check()
            return condition()

        try:
            wait_until(holds, what, guard_s=GUARD_S)
        except AssertionError as error:
            raise AssertionError(f"{error}\n{self.log_tail()}") from None

    def check(self) -> None:
        assert self._process.poll() is None, f"the driver has ended:\n{self.log_tail()}"

    def end_worker(self) -> None:
        self._process.send_signal(signal.SIGTERM)

    def printed(self) -> str:
        """Everything that its workers have printed."""
        return (self.folder / "log").read_text(errors="replace")

    def log_tail(self) -> str:
        return self.printed()[-4000:]

    def close(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        try:
            self._process.wait(GUARD_S)
        finally:
            self._process.kill()
            self._process.wait()
            self._log.close()


@contextmanager
def running_driver(folder: Path, master: str) -> Iterator[SparkDriver]:
    driver = SparkDriver(folder, master)
    try:
        yield driver
    finally:
        driver.close()


def share_session() -> None:
    """Let every worker of this process get the session of the first one."""
    from pyspark.sql import SparkSession

    from loghub_worker import worker
    from loghub_worker.query.spark_session import send_code

    start_spark = worker.start_spark
    started: list[SparkSession] = []

    def start(
        config: WorkerConfig, state_dir: Path, *, code: Path | None = None, **options: Any
    ) -> SparkSession:
        if not started:
            started.append(start_spark(config, state_dir, **options))
        # Spark's processes have the PYTHONPATH of the session's start, so that a pod's own Spark gets it too.
        send_code(started[0], config.pipeline, code)
        return started[0]

    worker.start_spark = start


def main() -> None:
    from loghub_worker import __main__ as program
    from loghub_worker.__main__ import end_children

    share_session()
    own = dict(os.environ)
    for line in sys.stdin:
        variables = json.loads(line)
        os.environ.clear()
        os.environ.update(own | variables)
        status = program.main()
        sys.stdout.flush()
        made = Path(variables["LOGHUB_STATUS_FILE"]).with_name(EXIT)
        made.with_suffix(".part").write_text(str(status))
        made.with_suffix(".part").rename(made)
    end_children()
    os._exit(0)


if __name__ == "__main__":
    main()
