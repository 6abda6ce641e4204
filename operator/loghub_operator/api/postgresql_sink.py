"""``spec.pipeline.sink.postgresql``."""

from enum import StrEnum
from typing import Annotated

from pydantic import Field

from loghub_operator.api import patterns
from loghub_operator.api.explain import described
from loghub_operator.api.validation import ApiModel

# Exactly as the database has it: without quotes, PostgreSQL turns a name into lower case.
PostgresqlName = Annotated[str, Field(min_length=1, max_length=63, pattern=patterns.POSTGRESQL_NAME)]


class SslMode(StrEnum):
    """How the worker's connection to PostgreSQL is secured, in the words of PostgreSQL.

    VERIFY_FULL: TLS; the server's certificate must be signed by ca.crt of credentialsSecret, or without it by
    an authority that the worker's image knows, and must be for this host. VERIFY_CA: the same without the
    host. DISABLE: no TLS; passwords are still not sent in clear text, rows are.
    """

    VERIFY_FULL = "verify-full"
    VERIFY_CA = "verify-ca"
    DISABLE = "disable"


class PostgresqlSink(ApiModel):
    """A table of a PostgreSQL database; each log exactly once.

    A micro-batch is one transaction, which also records its ranges in the tables loghub_shards and
    loghub_ranges of the same schema. credentialsSecret has username and password, and optionally ca.crt, or
    tls.crt and tls.key in place of a password."""

    host: Annotated[str, Field(min_length=1, max_length=253, pattern=patterns.SINK_HOST)] = Field(
        description="Host name or address of the primary server."
    )
    port: Annotated[int, Field(ge=1, le=65_535)] = Field(default=5432, description="Port of the server.")
    database: PostgresqlName = Field(description="Name of the database.")
    schema_: PostgresqlName = Field(default="public", description="Name of the schema, which must exist.")
    table: PostgresqlName = Field(
        description=(
            "Name of the table. Each column of the query must be a column of the table, with a type that"
            " takes every value of it."
        )
    )
    ssl_mode: SslMode = Field(default=SslMode.VERIFY_FULL, strict=False, description=described(SslMode))
    create_table: bool = Field(
        default=False,
        description="Create the table with the columns of the query if it does not exist.",
    )
