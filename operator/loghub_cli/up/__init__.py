"""`loghub up`: runs a consumer group on this machine, with processes as workers and the cluster's planner."""
