"""What is remembered of corrected drift from one reconcile to the next."""

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True, kw_only=True)
class DriftCorrection:
    """How often one object was set back, and when last."""

    times: int
    at_unix_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class DriftHistory:
    """All that was set back lately, by object ("Service x"). ``wanted``: to what, in one word."""

    wanted: str = ""
    done: Mapping[str, DriftCorrection] = field(default_factory=dict)


NO_DRIFT_HISTORY = DriftHistory()
