"""The sink that writes rows or copies log groups to another logstore, and the log groups that rows become."""
