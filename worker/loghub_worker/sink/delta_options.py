"""How delta-rs reaches an object storage: address, region and keys, under the names that it knows."""

from loghub.sink_settings import S3Settings
from loghub_worker.sink.bucket import (
    ACCESS_KEY_ID,
    SECRET_ACCESS_KEY,
    SESSION_TOKEN,
    read_keys,
)
from loghub_worker.sink.sink_credentials import SinkCredentials

# As for the other requests of a worker: a storage that does not answer is reported, and asked again later.
_LIMITS = {"timeout": "30s", "connect_timeout": "5s", "max_retries": "4", "retry_timeout": "30s"}
# The files of the credentials, and their names for delta-rs.
_KEYS = {
    ACCESS_KEY_ID: "AWS_ACCESS_KEY_ID",
    SECRET_ACCESS_KEY: "AWS_SECRET_ACCESS_KEY",
    SESSION_TOKEN: "AWS_SESSION_TOKEN",
}


def s3_options(settings: S3Settings, credentials: SinkCredentials) -> dict[str, str]:
    """The options, with the keys as they are now; without a Secret the environment's or the machine's
    identity is used. Raises `OSError` if the keys cannot be read."""
    # delta-rs creates a commit's file with If-None-Match, which is its default and is named for clarity.
    options = {"aws_conditional_put": "etag", **_LIMITS}
    if settings.endpoint is not None:
        options["AWS_ENDPOINT_URL"] = settings.endpoint
    if settings.region is not None:
        options["AWS_REGION"] = settings.region
    if settings.virtual_hosted:
        options["AWS_VIRTUAL_HOSTED_STYLE_REQUEST"] = "true"
    if settings.allow_http:
        options["AWS_ALLOW_HTTP"] = "true"
    return options | {_KEYS[name]: value for name, value in read_keys(credentials).items()}
