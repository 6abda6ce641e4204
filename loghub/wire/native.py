"""The native part of service and worker, if its wheel is installed: much faster than Python, never needed.

Each of its functions answers None for what only the implementation in Python can judge, and without the wheel
for everything: this is the only place that knows whether there is one. Its source is in the folder
``native``, what it may do and how it is built in docs/decisions/kafka.md.
"""

from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from loghub_native import DecodedLists

# A log group, whether its form is raw, and the most logs -> their records, the number of them, the times of
# the first and of the youngest in ms; None for a group that only the implementation in Python can judge.
RecordsOf = Callable[[bytes, bool, int], tuple[bytes, int, int, int] | None]
# The number of logs in a group that is certainly valid; None likewise.
CountLogs = Callable[[bytes], int | None]
# Some LogGroupLists, keys, and whether the contents are wanted -> their columns; None likewise.
DecodeLists = Callable[[list[bytes], list[str], bool], "DecodedLists | None"]


def left_to_python(*_: object) -> None:
    """The answer of every function where there is no native part."""


try:
    import loghub_native

    records_of: RecordsOf = loghub_native.records_of
    count_logs: CountLogs = loghub_native.count_logs
    decode_lists: DecodeLists = loghub_native.decode_lists
    is_installed = True
except (ImportError, AttributeError):  # there is none, or that of an older checkout, which lacks something
    records_of = count_logs = decode_lists = left_to_python
    is_installed = False
