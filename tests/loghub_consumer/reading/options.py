"""Options of a source on the logstore of the tests."""

from pathlib import Path
from typing import Any

from loghub_worker.source import SourceOptions
from tests.loghub_worker.support import LOGSTORE, PROJECT


def source_options(endpoint: str, credentials_dir: Path, exchange_dir: Path, **changes: Any) -> SourceOptions:
    """All settings but the changes are such that they limit nothing."""
    settings: dict[str, Any] = {
        "endpoint": endpoint,
        "project": PROJECT,
        "logstore": LOGSTORE,
        "credentials_dir": str(credentials_dir),
        "exchange_dir": str(exchange_dir),
        "fetch_interval_s": 0.1,
        "batch_interval_s": 0.0,
        "max_log_groups": 1000,
        "max_bytes": 1 << 30,
        "max_logs": 1_000_000,
        "cores": 1,
    }
    return SourceOptions(**(settings | changes))
