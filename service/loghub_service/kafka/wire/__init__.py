"""The bytes of the Kafka protocol as values, and back: frames, messages and record batches.

Pure: no clock, no socket, nothing of the service. `frames` has the four calls that a broker and a client
need; the messages are described field by field in one module for each family of APIs, and `codec` derives
the coders from these descriptions. `record_batch` builds and reads what Produce and Fetch carry.
"""
