"""Where a sink of files writes: a folder of a volume, or a prefix of an S3 bucket."""

from typing import Annotated, ClassVar

from pydantic import Field

from loghub_operator.api import patterns
from loghub_operator.api.fields import ObjectName, RelativePath, once
from loghub_operator.api.validation import ApiModel, Rule

MAX_PARTITION_COLUMNS = 8

ColumnName = Annotated[str, Field(min_length=1, max_length=255)]
PartitionColumns = Annotated[
    tuple[ColumnName, ...],
    Field(max_length=MAX_PARTITION_COLUMNS, json_schema_extra={"x-kubernetes-list-type": "set"}),
    once(),
]


class S3(ApiModel):
    """The object storage of a URL, if it is not Amazon S3 or not in its default region."""

    RULES: ClassVar = (
        Rule(
            field="endpoint",
            cel="!has(self.endpoint) || !self.endpoint.startsWith('http://') || self.allowHttp",
            message="an http endpoint is used only with allowHttp: true",
            holds=lambda self: not (self.endpoint or "").startswith("http://") or self.allow_http,
        ),
    )

    endpoint: Annotated[str, Field(max_length=512, pattern=patterns.ENDPOINT)] | None = Field(
        default=None,
        description="URL of the storage without the bucket. Default: Amazon S3 in the region.",
    )
    region: Annotated[str, Field(min_length=1, max_length=64, pattern=patterns.REGION)] | None = Field(
        default=None,
        description="Region of the bucket. Default: that of the worker's environment, else us-east-1.",
    )
    virtual_hosted: bool = Field(
        default=False,
        description="Put the bucket into the host name of requests, as OSS requires, not into their path.",
    )
    allow_http: bool = Field(
        default=False,
        description="Allow an http endpoint: rows and the session token then travel unencrypted.",
    )


class SinkLocation(ApiModel):
    """A folder of a PersistentVolumeClaim, or a prefix of a bucket."""

    RULES: ClassVar = (
        Rule(
            cel=(
                "has(self.url) ? !has(self.path) && !has(self.volumeClaim)"
                " : has(self.path) && has(self.volumeClaim)"
            ),
            message="either path and volumeClaim, or url must be set",
            holds=lambda self: (
                (self.path is None and self.volume_claim is None)
                if self.url is not None
                else (self.path is not None and self.volume_claim is not None)
            ),
        ),
        Rule(
            cel="!has(self.s3) || has(self.url)",
            message="s3 describes the storage of url, which is not set",
            holds=lambda self: self.s3 is None or self.url is not None,
        ),
    )

    path: RelativePath | None = Field(
        default=None, description="Folder inside the volume. Set with volumeClaim, unless url is set."
    )
    volume_claim: ObjectName | None = Field(
        default=None,
        description="Name of a PersistentVolumeClaim in this namespace; every worker mounts it.",
    )
    url: Annotated[str, Field(max_length=576, pattern=patterns.S3_URL)] | None = Field(
        default=None,
        description=(
            "Prefix of a bucket, s3://bucket/prefix, in place of a folder. The storage must honour"
            " create-only writes (If-None-Match), which each worker tries before it starts."
            " pipeline.sink.credentialsSecret has the keys accessKeyId, secretAccessKey and, for temporary"
            " ones, sessionToken; without it the identity of the pod or of its node is used."
        ),
    )
    s3: S3 | None = None
