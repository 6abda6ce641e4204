"""In what the service and Pulsar 4.0.6 differ for a client, by the name that the scenarios use, and why."""

DIFFERENCES = {
    "priority deals one by one": (
        "Pulsar hands consumers of one priority blocks of messages; the service deals one message at a time, "
        "as Pulsar's documentation says"
    ),
    "an ack in a batch without index acks": (
        "A log is an entry of its own in Shared and Key_Shared, so it is acknowledged by itself; Pulsar "
        "keeps the whole batch unacknowledged unless the consumer acknowledges by index"
    ),
    "a nack in a batch": (
        "Each log is redelivered by itself; Pulsar redelivers the batch, and counts for all of it"
    ),
    "entries of a batch": (
        "In Shared and Key_Shared each log is an entry of its own; Pulsar sends the batch as one"
    ),
    "a refused message at two consumers": (
        "Pulsar may deliver a refused message to two consumers, 25 of 10,000 in a run with three of them, so "
        "that it comes again after one has acknowledged it; here a log is at one consumer at a time"
    ),
    "keys in a batch": (
        "Each log goes to the owner of its own key; Pulsar hands the batch to the owner of its first key"
    ),
    "the first messages of a new partition": (
        "A subscription begins with the first log of a shard that came of a split; at Pulsar the consumers "
        "of the libraries for Go and Python begin where they find the partition, so that a consumer of new "
        "messages has missed what was sent before"
    ),
}
