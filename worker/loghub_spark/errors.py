"""What the data source raises: each error says what to do, and none has a key in it."""


class OptionError(ValueError):
    """An option, or the declared schema, cannot be used."""


class LogstoreError(Exception):
    """The logstore cannot be read or written as the options say."""


class DataLossError(LogstoreError):
    """Log groups that should be read no longer exist."""
