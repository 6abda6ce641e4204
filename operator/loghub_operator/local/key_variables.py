"""The environment variables with an access key for an endpoint other than the embedded service."""

KEY_ID = "LOGHUB_ACCESS_KEY_ID"
KEY_SECRET = "LOGHUB_ACCESS_KEY_SECRET"  # noqa: S105 - a variable's name, not a secret
TOKEN = "LOGHUB_SECURITY_TOKEN"  # noqa: S105 - a variable's name, not a secret
REGION = "LOGHUB_REGION"  # with it, requests are signed with version 4
