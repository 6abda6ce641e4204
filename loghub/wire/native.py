"""The native part of service and worker, if its wheel is installed: much faster than Python, and never
needed.

Each function answers None for input that only the implementation in Python can judge, and for all input if
the wheel is not installed. Only this module knows whether it is. The source is in the folder ``native``;
docs/decisions/kafka.md says what it may do and how it is built.
"""

from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from loghub_native import DecodedLists

# A log group, whether its form is raw, and the maximum of logs -> their records, the number of records, the
# times of the first and of the youngest in ms; None for a group that only the implementation in Python can
# judge.
RecordsOf = Callable[[bytes, bool, int], tuple[bytes, int, int, int] | None]
# The number of logs in a group that is certainly valid; None for a group that only Python can judge.
CountLogs = Callable[[bytes], int | None]
# Some LogGroupLists, keys, and whether the contents are wanted -> their columns; None for lists that only
# Python can judge.
DecodeLists = Callable[[list[bytes], list[str], bool], "DecodedLists | None"]


def left_to_python(*_: object) -> None:
    """The answer of every function where there is no native part."""


try:
    import loghub_native

    records_of: RecordsOf = loghub_native.records_of
    count_logs: CountLogs = loghub_native.count_logs
    decode_lists: DecodeLists = loghub_native.decode_lists
    is_installed = True
# The wheel is missing, or belongs to an older checkout and lacks a function
except (ImportError, AttributeError):
    records_of = count_logs = decode_lists = left_to_python
    is_installed = False
