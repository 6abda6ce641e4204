"""Metrics of the operator and of each consumer group.

`loghub_operator.metrics.store` holds the latest metrics of each group; Prometheus, KEDA and HPAs read them
from it.
"""
