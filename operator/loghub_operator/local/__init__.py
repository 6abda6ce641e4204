"""`loghub up`: a consumer group on this machine, workers as processes, by the same plan as the cluster's."""
