"""The operator: observe, plan, apply; and, without a cluster, `loghub up`."""
