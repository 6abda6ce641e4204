"""The bytes of the Pulsar protocol as values, and back: frames, commands and the metadata of messages.

Pure: no clock, no socket, nothing of the service. `frames` has the calls that a broker needs; the commands
are described field by field in one module for each family, and `codec` derives the coders from these
descriptions.
"""
