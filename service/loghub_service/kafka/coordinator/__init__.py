"""The classic group coordinator of Kafka as a pure state machine (docs/kafka-groups.md).

`step` decides, `states` has the table, `facts` says what survives a restart. Nothing in this package knows a
clock, a connection or a thread; `loghub_service.kafka.groups` drives it.
"""
