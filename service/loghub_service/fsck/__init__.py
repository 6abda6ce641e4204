"""`loghub fsck`: lists what is wrong with a data folder of the service, and repairs it on request."""
