"""The handling of log groups that cannot be delivered."""
