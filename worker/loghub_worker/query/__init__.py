"""The streaming query on Spark."""
