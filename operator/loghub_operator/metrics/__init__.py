"""Numbers for others: what Prometheus, KEDA and HPAs are told about each consumer group.

What for: one board of the last readings, and three ways to read it. What it must not know: how
readings come about, how workers are scaled here. Read next: `loghub_operator.metrics.store`,
`loghub_operator.model.group_metrics` (what is on it).
"""
