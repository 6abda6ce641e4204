"""A worker whose pipeline is a processor: user code in processes of its own, without Spark."""
