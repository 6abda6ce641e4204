"""The vendor's SDK's client with our limits: retries, the time limit of a call, the errors, and its session.

`loghub.client.aliyun` is the adapter that calls it. Only these two modules know the SDK.
"""

import ssl
import threading
from collections.abc import Callable
from http.client import HTTPException
from http.cookiejar import DefaultCookiePolicy
from typing import Any, NoReturn, TypeVar

import aliyun.log
import aliyun.log.auth
import aliyun.log.credentials
import aliyun.log.shard_response
import msgspec
import requests
from aliyun.log.compress import Compressor, CompressType
from requests.adapters import HTTPAdapter
from urllib3.exceptions import HTTPError, MaxRetryError, ProtocolError, ProxyError

from loghub.client.port import Credentials
from loghub.client.retry import Retries, check_sendable, unreachable
from loghub.client.target import BadEndpoint, parse, split_endpoint
from loghub.client.transport import PROTOBUF
from loghub.wire import names
from loghub.wire.errors import Code, EndpointUnreachable, LogHubError

T = TypeVar("T")

# The SDK's own type stubs omit what a subclass needs.
_sdk: Any = aliyun.log
LogException: Any = _sdk.LogException
_ListShardResponse: Any = aliyun.log.shard_response.ListShardResponse

_SOURCE = "loghub"  # without a source the SDK determines this machine's address
_CONNECTIONS = 16  # kept per client; more are opened when needed and closed after use
_MAX_QUOTED_CHARS = 200  # enough to recognize the page of a proxy; an error stays one line of a log
# The SDK's classes raise these while they parse an answer of another form.
_UNREADABLE = (AttributeError, IndexError, KeyError, RecursionError, TypeError, ValueError)


class _Credentials:
    """The SDK's credentials provider over our callable; every call returns current credentials."""

    def __init__(self, get_credentials: Callable[[], Credentials]) -> None:
        self._get_credentials = get_credentials

    def get_credentials(self) -> Any:
        key = self._get_credentials()
        check_sendable(key)
        return aliyun.log.credentials.Credentials(
            key.access_key_id, key.access_key_secret, key.security_token or None
        )


class _Signer:
    """Signs each request as the SDK does: with version 4 for a key with a region, with version 1 for a key
    without. The SDK itself fixes key and version for the whole life of a client."""

    def __init__(self, get_credentials: Callable[[], Credentials]) -> None:
        self._get_credentials = get_credentials

    def sign_request(self, *request: Any, **options: Any) -> None:
        key = self._get_credentials()
        auth: Any = aliyun.log.auth
        version = auth.AUTH_VERSION_4 if key.region else auth.AUTH_VERSION_1
        signer = auth.make_auth(_Credentials(lambda: key), version, key.region)
        signer.sign_request(*request, **options)


class SdkClient(_sdk.LogClient):  # type: ignore[misc]
    """The SDK's client with our limits, our errors and its own session."""

    def __init__(
        self, endpoint: str, project: str, get_credentials: Callable[[], Credentials], *, retries: Retries
    ) -> None:
        scheme, host, port = split_endpoint(endpoint)
        self._is_direct = names.is_direct(host)
        if self._is_direct and (scheme != "http" or ":" in host):
            raise BadEndpoint(f"{endpoint!r}: the vendor SDK supports only IPv4 and http for an IP address")
        super().__init__(
            f"{scheme}://{host}:{port}", source=_SOURCE, credentials_provider=_Credentials(get_credentials)
        )
        self._auth = _Signer(get_credentials)
        self._configured_endpoint = endpoint
        self._retries = retries
        self._try = threading.local()  # .deadline_s of the attempt that runs in this thread
        through = f"http://{host}:{port}" if self._is_direct else parse(endpoint, project).proxy
        self._prepare_session({scheme: through} if through else {})

    def _prepare_session(self, proxies: dict[str, str]) -> None:
        # Set per client: the environment applies to the whole process, a .netrc would replace the
        # signature, and a proxy would be used for this machine too.
        self._session.trust_env = False
        self._session.proxies = proxies
        # The authorities that OpenSSL trusts, as over `http`; by default requests uses its own list.
        paths = ssl.get_default_verify_paths()
        self._session.verify = paths.cafile or paths.capath or True
        self._session.cookies.set_policy(DefaultCookiePolicy(allowed_domains=[]))
        for scheme in ("http://", "https://"):
            self._session.mount(scheme, HTTPAdapter(pool_maxsize=_CONNECTIONS))

    def close(self) -> None:
        self._session.close()

    def once(self, call: Callable[[], T], deadline_s: float) -> T:
        """One attempt. The SDK's error becomes ours; an answer that the SDK cannot read is a BadResponse."""
        self._try.deadline_s = deadline_s
        try:
            return call()
        except LogException as error:
            _raise(error)
        except _UNREADABLE as error:
            raise _unreadable(error) from None

    def put_bytes(self, project: str, logstore: str, log_group: bytes, hash_key: str | None) -> None:
        """Like the SDK's put_log_raw, which accepts neither bytes nor a key."""
        headers = {
            "Content-Type": PROTOBUF,
            "x-log-bodyrawsize": str(len(log_group)),
            "x-log-compresstype": str(CompressType.LZ4),
        }
        route, params = ("lb", {}) if hash_key is None else ("route", {"key": hash_key})
        body = Compressor.compress(log_group, CompressType.LZ4)
        self._send("POST", project, body, f"/logstores/{logstore}/shards/{route}", params, headers)

    def split(self, project: str, logstore: str, shard: int, query: dict[str, str]) -> Any:
        """Like the SDK's split_shard, which cannot name a number of parts."""
        path = f"/logstores/{logstore}/shards/{shard}"
        body, headers = self._send("POST", project, None, path, query, {})
        return _ListShardResponse(body, headers)

    def _getHttpResponse(self, *request: Any) -> Any:  # noqa: N802 - the SDK's name
        """The SDK retries on a LogException; an error of ours passes through its loop."""
        method, url, params, body, headers = request
        headers["User-Agent"] = self._user_agent
        try:
            answer = self._session.request(
                method,
                url,
                params=params,
                data=body,
                headers=headers,
                timeout=self._timeout,
                allow_redirects=False,
                stream=True,
            )
            content = self._retries.read(answer.raw, self._try.deadline_s, decode=True)
        except (requests.RequestException, HTTPError) as error:
            self._raise_unreachable(error)
        return answer.status_code, content, answer.headers

    def _raise_unreachable(self, error: Exception) -> NoReturn:
        cause = error.args[0] if isinstance(error, requests.RequestException) and error.args else error
        if isinstance(cause, MaxRetryError) and cause.reason is not None:
            cause = cause.reason
        if self._is_direct and isinstance(cause, ProxyError):  # the proxy is the service itself
            cause = cause.original_error
        if isinstance(cause, OSError | HTTPException) and not isinstance(cause, requests.RequestException):
            cause = ProtocolError(str(cause) or type(cause).__name__, cause)
        if isinstance(cause, HTTPError):
            raise unreachable(self._configured_endpoint, cause) from cause
        # If requests rejects the request before sending it, it raises a ValueError that may quote a header.
        rejected = isinstance(error, ValueError)
        raise EndpointUnreachable(
            self._configured_endpoint, type(error).__name__, definite=rejected
        ) from None

    def _sendRequest(self, *request: Any, **options: Any) -> Any:  # noqa: N802 - the SDK's name
        try:
            return super()._sendRequest(*request, **options)
        except LogException as error:
            _raise(error)


def _raise(error: Any) -> NoReturn:
    """Raise our error without the SDK's as its cause, because that contains the whole answer."""
    code, message = error.get_error_code(), str(error.get_error_message())
    if code in ("LogRequestError", "BadResponse"):
        code, message = Code.BAD_RESPONSE, f"this is not an answer of SLS: {message[:_MAX_QUOTED_CHARS]}"
    raise LogHubError(code, error.get_resp_status(), message, error.get_request_id()) from None


def _unreadable(error: Exception) -> LogHubError:
    quoted = repr(error)[:_MAX_QUOTED_CHARS]
    return LogHubError(Code.BAD_RESPONSE, 200, f"this is not an answer of SLS: {quoted}")


def converted(value: object, kind: type[T]) -> T:
    try:
        return msgspec.convert(value, kind)
    except msgspec.ValidationError as error:
        raise _unreadable(error) from None
