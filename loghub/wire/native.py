"""The native part of the service, if its wheel is installed: much faster than Python, and never needed.

Both functions are None without it. Its source is in the folder ``native``, what it may do and how it is built
in docs/decisions/kafka.md.
"""

from collections.abc import Callable

# A log group, whether its form is raw, and the most logs -> their records, the number of them, the times of
# the first and of the youngest in ms; None for a group that only the implementation in Python can judge.
RecordsOf = Callable[[bytes, bool, int], tuple[bytes, int, int, int] | None]
# The number of logs in a group that is certainly valid; None likewise.
CountLogs = Callable[[bytes], int | None]

try:
    import loghub_native
except ImportError:
    records_of: RecordsOf | None = None
    count_logs: CountLogs | None = None
else:
    records_of, count_logs = loghub_native.records_of, loghub_native.count_logs
