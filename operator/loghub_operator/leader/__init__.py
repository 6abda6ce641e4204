"""Leader election: the lease, the elector, and the fence around every write."""
