"""Logs as records of Kafka and back, as SLS documents it (docs/kafka-protocol.md 5).

`to_batch` turns a stored log group into a record batch for a Fetch answer, `to_log_group` the records of a
producer into a log group. Pure, and on the way of every log, so that the first is written for speed.
"""
