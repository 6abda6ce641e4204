"""How the program of a worker is started: its files, its environment, its log."""

import contextlib
import shutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from loghub import worker_contract as contract
from loghub.atomic_file import replace_file
from loghub.worker_contract import encode_settings
from loghub_operator.local.paths import WorkerFolder
from loghub_operator.local.processes.child_process import Child
from loghub_operator.model.revision import WorkerSpec

LOG_BYTES = 16 << 20  # a start rotates a worker's log beyond this size; one older log is kept


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerProgram:
    """How to run a worker. ``environment`` is common to all workers; the variables of
    `loghub.worker_contract` that differ by worker are added to it."""

    command: Sequence[str]
    environment: Mapping[str, str]
    grace_s: float  # between SIGTERM and SIGKILL

    def start(
        self,
        name: str,
        folder: WorkerFolder,
        variables: Mapping[str, str],
        *,
        on_exit: Callable[[Child], None],
        arguments: Sequence[str] = (),
    ) -> Child:
        """A process in a folder that was prepared; ``variables`` are the user's own."""
        return Child(
            [*self.command, *arguments],
            environment={**self.environment, **variables, **_variables(name, folder)},
            log=folder.log,
            on_exit=on_exit,
        )


def prepare(folder: WorkerFolder, spec: WorkerSpec, *, keep_state: bool) -> None:
    """Creates the scratch folder, removes the status and message of earlier processes, and writes the
    settings. As in a pod, the scratch folder outlives a process, but not a change of the settings, unless it
    has the state of a pipeline."""
    if not keep_state:
        shutil.rmtree(folder.state, ignore_errors=True)
    folder.state.mkdir(parents=True, exist_ok=True)
    for stale in (folder.status, folder.last_words):
        stale.unlink(missing_ok=True)
    with contextlib.suppress(FileNotFoundError):
        if folder.log.stat().st_size > LOG_BYTES:
            folder.log.replace(folder.log.with_suffix(".1"))
    replace_file(folder.config, encode_settings(spec.config))


def _variables(name: str, folder: WorkerFolder) -> dict[str, str]:
    return {
        contract.ENV_CONFIG: str(folder.config),
        contract.ENV_CONSUMER: name,
        contract.ENV_DRAIN_FILE: str(folder.drain),
        contract.ENV_STATE_DIR: str(folder.state),
        contract.ENV_STATUS_FILE: str(folder.status),
        contract.ENV_TERMINATION_LOG: str(folder.last_words),
    }
