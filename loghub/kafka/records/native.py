"""The native part of the transcoding, if its wheel is installed: ten times as fast as Python, never needed.

`records_of` is None without it. Its source is in the folder ``native``, how it is built and what it may do in
docs/decisions/kafka.md.
"""

from collections.abc import Callable

# A log group, whether its form is raw, and the most logs -> their records, the number of them, the times of
# the first and of the youngest in ms; None for a group that only the implementation in Python can judge.
RecordsOf = Callable[[bytes, bool, int], tuple[bytes, int, int, int] | None]

try:
    import loghub_native
except ImportError:
    records_of: RecordsOf | None = None
else:
    records_of = loghub_native.records_of
