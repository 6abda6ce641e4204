"""The worker: membership in the consumer group, and the pipeline on Spark."""
