"""By how much this machine's clock is ahead of the service's, as an answer shows.

The service stamps checkpoints with its own time. Compared with the time of this machine, a live consumer
looks silent if this clock is ahead: the service accepts requests that are up to 15 minutes off. So the
adapter gives out times of this machine's clock.
"""

from collections.abc import Mapping
from email.utils import parsedate_to_datetime

# Date has whole seconds, and an answer takes a while. Multiples of this are corrected, so that a checkpoint
# has the same time in every answer.
STEP_S = 60


def ahead_s(headers: Mapping[str, str], *, now_unix_s: float) -> int:
    """Seconds, a multiple of `STEP_S`; negative if this clock is behind. 0 for an answer without a time (the
    header ``Date``, RFC 9110, 6.6.1)."""
    text = next((value for name, value in headers.items() if name.lower() == "date"), "")
    try:
        service_s = parsedate_to_datetime(text).timestamp()
    except (ValueError, OverflowError, TypeError):
        return 0
    return round((now_unix_s - service_s) / STEP_S) * STEP_S
