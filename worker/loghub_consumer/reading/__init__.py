"""The Spark data source that reads a logstore."""
