"""Messages of Pulsar as logs and back, in the forms that Kafka's records have (docs/kafka-protocol.md 5).

`sends` turns what a SEND carries into one log group and its origin, `entries` a stored log group into what
MESSAGE carries, in either form. Pure, and on the way of every log.
"""
