"""How a log and a record correspond: the forms, and the names of fields that they give a meaning to."""

from enum import StrEnum


class RecordForm(StrEnum):
    """What becomes of a produced record (docs/kafka-protocol.md 5).

    PLAIN keeps the value in the field `content`; JSON makes each member of a JSON object a field, as SLS does
    for the topic `<logstore>.json`; RAW keeps key, value and headers exactly, and is a setting of a logstore.
    Reading knows two forms only: that of SLS for the first two, and RAW.
    """

    PLAIN = "plain"
    JSON = "json"
    RAW = "raw"


CONTENT_FIELD = "content"
KEY_FIELD, VALUE_FIELD = "key", "value"
# In RAW; a field of the second kind has an empty value and stands for a header that is null.
HEADER_PREFIX, NULL_HEADER_PREFIX = "header.", "null_header."
# Logs that SLS imported from Kafka have all of these, and their key and value are those of the record.
IMPORTED_FIELDS = frozenset(("kafka_topic", "kafka_partition", "kafka_offset", KEY_FIELD, VALUE_FIELD))
