"""The types of value that several parts of the resource share, each bounded and explained in one place.

Spellings are regular expressions that Go's RE2 and Python both read: the CRD and the check of `loghub up` use
one text each. The members of an enumeration are explained in the docstring of its class, which reads
``Introduction. FIRST: text. SECOND, THIRD: text.`` One text then serves `kubectl explain` (through
`loghub_operator.api.crd`) and ``docs/reasons.md``, so that the two cannot differ.
"""

import inspect
import json
import re
from collections import Counter
from datetime import datetime
from enum import StrEnum
from typing import Annotated, Any

from pydantic import AfterValidator, Field
from pydantic_core import PydanticCustomError

from loghub.contract.worker import KUBERNETES
from loghub.wire import names
from loghub.wire.names import NameRule

# `NAME: text`, `NAME, NAME: text` or `NAME and NAME: text`
_NAMES = re.compile(r"\b((?:[A-Z][A-Z_]+(?:, | and ))*[A-Z][A-Z_]+): ")


def explained(kind: type[StrEnum]) -> tuple[str, list[tuple[list[str], str]]]:
    """The introduction, then the text for each group of member names, in the docstring's order."""
    text = " ".join(inspect.cleandoc(kind.__doc__ or "").split())
    introduction, *parts = _NAMES.split(text)
    pairs = zip(parts[::2], parts[1::2], strict=True)
    return introduction.strip(), [(re.split(", | and ", names), text.strip()) for names, text in pairs]


def described(kind: type[StrEnum], introduction: str = "") -> str:
    """One paragraph for a schema: the introduction, then ``Value: text`` for every value."""
    first, rows = explained(kind)
    texts = (f"{', '.join(kind[name] for name in names)}: {text}" for names, text in rows)
    return " ".join(part for part in (introduction or first, *texts) if part)


OBJECT_NAME = r"^[a-z0-9]([-a-z0-9.]*[a-z0-9])?$"
NAME = r"^[a-z][-a-z0-9]{0,50}[a-z0-9]$"
QUANTITY = r"^[0-9]+(\.[0-9]+)?(m|k|Ki|M|Mi|G|Gi|T|Ti)?$"
STORAGE = r"^[1-9][0-9]{0,8}(Mi|Gi|Ti)$"  # as the API server spells it, which compares what was written
_SUFFIXES = {
    "": 1.0,
    "m": 1e-3,
    "k": 1e3,
    "M": 1e6,
    "G": 1e9,
    "T": 1e12,
    "Ki": 2.0**10,
    "Mi": 2.0**20,
    "Gi": 2.0**30,
    "Ti": 2.0**40,
}
# No leading slash, no dot segment: a path never leaves the claim.
RELATIVE_PATH = r"^[A-Za-z0-9_=-][A-Za-z0-9_.=-]*(/[A-Za-z0-9_=-][A-Za-z0-9_.=-]*)*$"
# module:function, as an entry point is spelled.
FUNCTION = r"^[A-Za-z_][A-Za-z0-9_]*(\.[A-Za-z_][A-Za-z0-9_]*)*:[A-Za-z_][A-Za-z0-9_]*$"
# host:port, separated by commas.
_HOST_PORT = r"([A-Za-z0-9._-]+|\[[0-9A-Fa-f:.]+\]):[0-9]{1,5}"
HOSTS_WITH_PORTS = rf"^{_HOST_PORT}(,{_HOST_PORT})*$"
KAFKA_TOPIC = r"^[a-zA-Z0-9._-]+$"
SPARK_FORMAT = r"^[A-Za-z][A-Za-z0-9._$-]*$"
SINK_HOST = (
    r"^([A-Za-z0-9]([A-Za-z0-9._-]*[A-Za-z0-9])?|[0-9A-Fa-f:]*:[0-9A-Fa-f:.]*)$"  # a name, or an address
)
POSTGRESQL_NAME = r"^[A-Za-z_][A-Za-z0-9_$-]*$"
# In the pod, in pods of their own, or standalone masters, of which one leads.
SPARK_MASTER = rf"^(local\[\*\]|{re.escape(KUBERNETES)}|spark://{_HOST_PORT}(,{_HOST_PORT})*)$"
SPARK_MEMORY = r"^[1-9][0-9]{0,5}[mg]$"
ENV_NAME = r"^[A-Za-z_][A-Za-z0-9_]*$"
DATA_KEY = r"^[-._a-zA-Z0-9]+$"
NONCE = r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?$"
_HOST = r"([A-Za-z0-9]([A-Za-z0-9.-]*[A-Za-z0-9])?|\[[0-9A-Fa-f:.]+\])"  # a name, or an address
ENDPOINT = rf"^https?://{_HOST}(:[0-9]{{1,5}})?/?$"
# A bucket's name, and keys as they are spelled everywhere without quoting; no dot segments.
S3_URL = r"^s3://[a-z0-9][a-z0-9.-]{1,61}[a-z0-9](/[A-Za-z0-9_=-][A-Za-z0-9_.=-]*)*$"
REGION = r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?$"
# The host of an SLS endpoint with what surrounds it, in lower case.
_SLS_HOST = r"//[a-z0-9.-]+[.]log[.]aliyuncs[.]com(:|/|$)"
# What the apiserver accepts as format date-time and CEL can read.
DATE_TIME = (
    r"^[0-9]{4}-(0[1-9]|1[0-2])-(0[1-9]|[12][0-9]|3[01])"
    r"T([01][0-9]|2[0-3]):[0-5][0-9]:[0-5][0-9](\.[0-9]+)?(Z|[+-]([01][0-9]|2[0-3]):[0-5][0-9])$"
)


def matches(pattern: str, text: str) -> bool:
    """Whether the text matches, as CEL's ``matches`` decides; ``$`` is the very end, as in RE2."""
    return re.fullmatch(pattern, text) is not None


def cel(pattern: str) -> str:
    """The pattern as a CEL string literal."""
    return json.dumps(pattern)


def known_service(endpoint: str) -> str:
    """Which log service an endpoint surely means: the region of SLS, or "embedded"; "" if that is unknown, as
    for a private host.
    """
    text = endpoint.lower()
    match = re.search(_SLS_HOST, text)
    region = re.sub("-(intranet|internal)[.]log[.]", ".log.", match[0]) if match else ""
    return text if text == "embedded" else region.strip("/:")


def same_unless_known_to_differ(new: str, old: str) -> str:
    """A CEL expression: whether two endpoints may be one log service, by `known_service`."""
    after, before = _known_service_cel(new), _known_service_cel(old)
    return f"{after} == {before} || {after} == '' || {before} == ''"


def _known_service_cel(field: str) -> str:
    region = f"{field}.lowerAscii().find({cel(_SLS_HOST)}).replace('/', '').replace(':', '')"
    for ending in ("-intranet", "-internal"):
        region = f"{region}.replace('{ending}.log.', '.log.')"
    return f"({field} == 'embedded' ? 'embedded' : {region})"


def unix_s(time: str) -> int:
    """Unix seconds of an RFC 3339 time. Raises ValueError for any other text."""
    if not matches(DATE_TIME, time):
        raise ValueError(f"{time} is not an RFC 3339 time")
    return int(datetime.fromisoformat(time).timestamp())  # raises for 30 February


def amount(quantity: int | str) -> float:
    """The number that a quantity represents: 0.5 for "500m". Raises ValueError."""
    text = str(quantity)
    if not matches(QUANTITY, text):
        raise ValueError(f"{text} is not a quantity")
    number = text.rstrip("mkKMGTi")
    return float(number) * _SUFFIXES[text[len(number) :]]


MAX_REPLICAS = 1000  # above the shards of any logstore: further workers would only wait


def _name(rule: NameRule) -> Any:
    """A field with a name of the log service."""
    return Field(min_length=rule.shortest, max_length=rule.longest, pattern=f"^{rule.pattern}$")


Seconds = Annotated[int, Field(ge=1, le=86_400)]
Replicas = Annotated[int, Field(ge=0, le=MAX_REPLICAS)]
Count = Annotated[int, Field(ge=0, le=2**31 - 1)]
ObjectName = Annotated[str, Field(min_length=1, max_length=253, pattern=OBJECT_NAME)]
ProjectName = Annotated[str, _name(names.PROJECT)]
LogstoreName = Annotated[str, _name(names.LOGSTORE)]
GroupName = Annotated[str, _name(names.CONSUMER_GROUP)]
RelativePath = Annotated[str, Field(min_length=1, max_length=512, pattern=RELATIVE_PATH)]
Quantity = Annotated[int, Field(ge=0)] | Annotated[str, Field(max_length=32, pattern=QUANTITY)]


def seconds_of(seconds: int, milliseconds: int | None) -> float:
    """An interval that has a field in seconds, and one in milliseconds that takes precedence."""
    return float(seconds) if milliseconds is None else milliseconds / 1000


def _is_date_time(value: str) -> str:
    try:
        unix_s(value)
    except ValueError:
        raise PydanticCustomError(
            "date_time", "must be of type date-time (RFC 3339), for example 2026-01-31T08:00:00Z"
        ) from None
    return value


# Of the status. The API server accepts other spellings of a date-time too, in a status that was edited.
Time = Annotated[str, Field(json_schema_extra={"format": "date-time"}), AfterValidator(_is_date_time)]
Timestamp = Annotated[
    str, Field(max_length=64, json_schema_extra={"format": "date-time"}), AfterValidator(_is_date_time)
]


def once(by: str = "") -> AfterValidator:
    """No two items with the same value (of ``by``), as in a list that is a set (a map) to the apiserver."""

    def check(items: tuple[Any, ...]) -> tuple[Any, ...]:
        counted = Counter(getattr(item, by) if by else item for item in items)
        if repeated := [str(key) for key, count in counted.items() if count > 1]:
            values = {"values": ", ".join(repeated)}
            raise PydanticCustomError("duplicate", "Duplicate value: {values}", values)
        return items

    return AfterValidator(check)
