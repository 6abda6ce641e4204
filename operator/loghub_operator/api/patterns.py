"""The spellings that the CR accepts, in the regular expressions that Go's RE2 and Python both read.

What for: the CRD and our own check use one text each. What it must not know: which field
uses which. Read next: `loghub_operator.api.v1alpha1`.
"""

import json
import re
from datetime import datetime

OBJECT_NAME = r"^[a-z0-9]([-a-z0-9.]*[a-z0-9])?$"
NAME = r"^[a-z][-a-z0-9]{0,50}[a-z0-9]$"
# Names of SLS: docs/sls-protocol.md 2.5.
PROJECT = r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?$"
LOGSTORE = r"^[a-z0-9]([-_a-z0-9]*[a-z0-9])?$"
CONSUMER_GROUP = r"^[a-zA-Z0-9]([-_a-zA-Z0-9]*[a-zA-Z0-9])?$"
QUANTITY = r"^[0-9]+(\.[0-9]+)?(m|k|Ki|M|Mi|G|Gi|T|Ti)?$"
# No leading slash, no dot segment: a path never leaves the claim.
RELATIVE_PATH = r"^[A-Za-z0-9_=-][A-Za-z0-9_.=-]*(/[A-Za-z0-9_=-][A-Za-z0-9_.=-]*)*$"
# module:function, as an entry point is spelled.
FUNCTION = r"^[A-Za-z_][A-Za-z0-9_]*(\.[A-Za-z_][A-Za-z0-9_]*)*:[A-Za-z_][A-Za-z0-9_]*$"
SPARK_MEMORY = r"^[1-9][0-9]{0,5}[mg]$"
ENV_NAME = r"^[A-Za-z_][A-Za-z0-9_]*$"
DATA_KEY = r"^[-._a-zA-Z0-9]+$"
NONCE = r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?$"
ENDPOINT = r"^https?://[A-Za-z0-9]([A-Za-z0-9.-]*[A-Za-z0-9])?(:[0-9]{1,5})?/?$"
RFC3339 = (
    r"^[0-9]{4}-(0[1-9]|1[0-2])-(0[1-9]|[12][0-9]|3[01])"
    r"T([01][0-9]|2[0-3]):[0-5][0-9]:[0-5][0-9](\.[0-9]{1,6})?(Z|[+-]([01][0-9]|2[0-3]):[0-5][0-9])$"
)


def matches(pattern: str, text: str) -> bool:
    """As CEL's ``matches``; ``$`` is the very end, as in RE2."""
    return re.fullmatch(pattern, text) is not None


def cel(pattern: str) -> str:
    """The pattern as a CEL string literal."""
    return json.dumps(pattern)


def unix_s(time: str) -> int:
    """Unix seconds of an RFC 3339 time; -1 where it is none."""
    if not matches(RFC3339, time):
        return -1
    try:
        return int(datetime.fromisoformat(time).timestamp())
    except ValueError:  # a day that does not exist, such as 30 February
        return -1
