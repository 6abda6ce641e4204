"""Serves the metrics that external autoscalers read."""
