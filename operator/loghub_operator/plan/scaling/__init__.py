"""How many workers a group needs, from what comes in and what is left to do. All pure.

What for: mode Auto and Recommend, the readings that others scale on, the hot shard. What it
must not know: Kubernetes, how a worker is started, real time. Read next:
`loghub_operator.model.group_metrics` (what comes out), `loghub_operator.plan.replicas` (bounds, drain and
cap, in every mode).

The unit is the log group: cursors count them one by one in a shard (docs/sls-protocol.md 2.1), so
written = end cursor, consumed = checkpoint, lag = the difference, on SLS and embedded alike.
"""
