"""Times in the JSON that Spark writes: with microseconds, as Spark has them. By itself it cuts them to three
digits.

Six digits always, so that texts of one length sort as the times do; `Z` is the session's time zone.
"""

from collections.abc import Mapping

# Options of Spark's JSON, of files as well as of `to_json`.
TIMES: Mapping[str, str] = {
    "timestampFormat": "yyyy-MM-dd'T'HH:mm:ss.SSSSSSXXX",
    "timestampNTZFormat": "yyyy-MM-dd'T'HH:mm:ss.SSSSSS",
}
