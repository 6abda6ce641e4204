"""The operator: observe, plan, apply; and `loghub up`, the same without a cluster."""
