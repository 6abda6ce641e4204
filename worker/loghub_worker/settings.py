"""The worker's settings, read from the environment once at the start.

`loghub.contract.worker` defines the variables, and `loghub_worker.__main__` passes their values on, so that
the parts of a worker depend on values and not on the environment.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import cast

import msgspec

from loghub.client.choice import ClientKind, check_client
from loghub.contract import worker as contract
from loghub.contract.worker import WorkerConfig, WorkerReason
from loghub.extras import MissingPackageError
from loghub_consumer.log_service import LogServiceAddress


class BadSettingsError(Exception):
    """A variable is missing, or the file that it names cannot be read, or is one of another release. The text
    is a termination message (`loghub.contract.worker`)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerSettings:
    """The settings that `loghub.contract.worker` describes; ``ignored`` are settings that this release does
    not know."""

    config: WorkerConfig
    ignored: tuple[str, ...]
    consumer: str
    credentials_dir: str
    client: ClientKind
    sink_credentials_dir: Path | None = None
    drain_file: Path | None
    state_dir: Path
    status_file: Path
    metrics_address: str | None
    termination_log: Path | None
    class_archive: Path | None

    @property
    def address(self) -> LogServiceAddress:
        """The address of the logstore that the worker reads, for its connections."""
        return LogServiceAddress(
            endpoint=self.config.endpoint,
            project=self.config.project,
            credentials_dir=self.credentials_dir,
            client=self.client,
        )


def read_settings(environment: Mapping[str, str]) -> WorkerSettings:
    """The settings in an environment. Raises `BadSettingsError` with the name of the variable."""
    optional = {
        name: environment.get(name)
        for name in (
            contract.ENV_SINK_CREDENTIALS_DIR,
            contract.ENV_DRAIN_FILE,
            contract.ENV_TERMINATION_LOG,
            contract.ENV_CLASS_ARCHIVE,
        )
    }
    config, ignored = _config(_required(environment, contract.ENV_CONFIG))
    return WorkerSettings(
        config=config,
        ignored=ignored,
        consumer=_required(environment, contract.ENV_CONSUMER),
        credentials_dir=_required(environment, contract.ENV_CREDENTIALS_DIR),
        client=_client(environment),
        sink_credentials_dir=_path(optional[contract.ENV_SINK_CREDENTIALS_DIR]),
        state_dir=Path(_required(environment, contract.ENV_STATE_DIR)).absolute(),
        status_file=Path(_required(environment, contract.ENV_STATUS_FILE)),
        drain_file=_path(optional[contract.ENV_DRAIN_FILE]),
        termination_log=_path(optional[contract.ENV_TERMINATION_LOG]),
        class_archive=_path(optional[contract.ENV_CLASS_ARCHIVE]),
        metrics_address=environment.get(contract.ENV_METRICS_ADDRESS) or None,
    )


def _path(value: str | None) -> Path | None:
    return Path(value) if value else None


def _client(environment: Mapping[str, str]) -> ClientKind:
    kind = cast("ClientKind", environment.get(contract.ENV_CLIENT) or "http")
    try:
        check_client(kind)
    except (ValueError, MissingPackageError) as error:
        raise BadSettingsError(f"{contract.ENV_CLIENT}: {error}") from error
    return kind


def _required(environment: Mapping[str, str], name: str) -> str:
    value = environment.get(name)
    if not value:
        raise BadSettingsError(f"{name} is not set")
    return value


def _config(path: str) -> tuple[WorkerConfig, tuple[str, ...]]:
    try:
        return contract.decode_settings(Path(path).read_bytes())
    except OSError as error:
        raise BadSettingsError(f"{contract.ENV_CONFIG}: {error}") from error
    except contract.UnsupportedContractError as error:
        raise BadSettingsError(f"{WorkerReason.UNSUPPORTED_SETTINGS}: {error}") from error
    except msgspec.MsgspecError as error:
        hint = "use a worker image of the operator's release"
        raise BadSettingsError(f"{WorkerReason.UNSUPPORTED_SETTINGS}: {error}; {hint}") from error


def is_drain_requested(drain_file: Path | None) -> bool:
    """Whether the operator has requested that this worker drains and leaves the group. An absent or
    unreadable file means no."""
    if drain_file is None:
        return False
    try:
        return drain_file.read_text(encoding="utf-8").strip() == contract.DRAIN_REQUESTED
    except OSError:
        return False
