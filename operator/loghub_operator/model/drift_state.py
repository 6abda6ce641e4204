"""What is remembered of corrected drift from one reconcile to the next."""

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True, kw_only=True)
class DriftCorrection:
    """How often one object was corrected, and when last."""

    times: int
    at_unix_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class DriftHistory:
    """All recent corrections, by object ("Service x"). ``wanted`` identifies the desired state."""

    wanted: str = ""
    done: Mapping[str, DriftCorrection] = field(default_factory=dict)


NO_DRIFT_HISTORY = DriftHistory()
