"""Computes how many workers a group needs, from what arrives and what is left to consume.

All functions are pure. The package covers modes Auto and Recommend, the metrics that other autoscalers use
(`loghub_operator.model.group_metrics`), and hot shards. `loghub_operator.plan.replicas` then reaches the
number, in every mode.

The unit is the log group: cursors count them one by one in a shard (docs/sls-protocol.md 2.1), so written =
end cursor, consumed = checkpoint, and lag = the difference, on SLS and on the embedded service alike.
"""
