"""The worker process: membership in the consumer group, and the user's pipeline on Spark."""
