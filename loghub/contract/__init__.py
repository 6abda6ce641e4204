"""What operator, workers and their sinks agree on."""
