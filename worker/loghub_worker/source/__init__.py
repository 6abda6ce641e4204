"""The Spark data source over a logstore."""
