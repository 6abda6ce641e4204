"""Logs as records of Kafka and back, as SLS documents it (docs/kafka-protocol.md 5).

`records` turns a stored log group into a record batch for a Fetch answer, and the records of a producer into
a log group; `record_forms` has the forms. Pure. Every log that Kafka clients read goes through it, so it is
written for speed.
"""
