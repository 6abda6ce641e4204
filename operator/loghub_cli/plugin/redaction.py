"""Takes secrets out of objects and texts that leave the cluster. Pure.

A report is sent to others, so what may be a secret is left out rather than what must be one: the value of a
field whose name speaks of a secret, of an environment variable that is not the worker's own, and in any text
what follows such a name or looks like a key, a token or a password in a URL. Secrets are never read.
"""

import json
import re
from collections.abc import Mapping

REDACTED = "REDACTED"
_WORDS = (
    r"secret|passw(?:or)?d|passphrase|\bpwd\b|token|credential|api[-_.]?key|access[-_.]?key|account[-_.]?key"
    r"|private[-_.]?key|signing[-_.]?key|\bsas\b|authorization|cookie|signature|jaas"
)
_SPEAKS_OF_SECRET = re.compile(_WORDS, re.IGNORECASE)
# Fields that name a Secret or a place, and have none of it.
_IS_A_REFERENCE = re.compile(r"(?:Name|Names|Ref|Dir|Path|File|namespace|name|kind|mountPath)$")
_OWN_VARIABLE = re.compile(r"LOGHUB_(?!.*(?:SECRET|TOKEN|KEY_ID|PASSWORD))")
_PATTERNS: tuple[tuple[re.Pattern[str], str], ...] = (
    (
        re.compile(
            r"-----BEGIN [A-Z ]*PRIVATE KEY-----.*?(?:-----END [A-Z ]*PRIVATE KEY-----|\Z)", re.DOTALL
        ),
        REDACTED,
    ),
    # The password of a URL, with the user.
    (re.compile(r"(?<=://)[^/\s:@]+:[^/\s@]+(?=@)"), REDACTED),
    # Of a header all that follows.
    (re.compile(r"(?i)(authorization|cookie)([\"']?\s*[:=]\s*)[^\r\n\"']+"), rf"\1\2{REDACTED}"),
    (re.compile(r"(?i)\b(bearer|basic)\s+[\w.~+/=-]{6,}"), rf"\1 {REDACTED}"),
    # A name that speaks of a secret, and its value: in quotes, or up to a blank.
    (
        re.compile(
            rf"(?i)([\w.-]*(?:{_WORDS})[\w.-]*[\"']?\s*(?:=>|[:=])\s*)(\"[^\"\n]*\"|'[^'\n]*'|[^\s,;&}}\"']+)"
        ),
        rf"\1{REDACTED}",
    ),
    # Access keys of clouds, tokens of STS, JSON web tokens, tokens of code hosts.
    (re.compile(r"\b(?:LTAI|STS\.|AKIA|ASIA|CAIS)[\w+/=.-]{10,}"), REDACTED),
    (re.compile(r"\beyJ[\w-]{8,}\.[\w-]+(?:\.[\w-]*)?"), REDACTED),
    (re.compile(r"\b(?:gh[pousr]_|glpat-|xox[abprs]-|sk-)[\w-]{10,}"), REDACTED),
    # What is as long as the secret of an access key, 30 characters, and as mixed. A cursor has 28.
    (
        re.compile(r"(?<![\w+/])(?=[\w+/]*[a-z])(?=[\w+/]*[A-Z])(?=[\w+/]*\d)[A-Za-z0-9+/]{30,}={0,2}"),
        REDACTED,
    ),
)
# Copies of the object, of which a field would be left over.
_LEFT_OUT = frozenset({"managedFields", "kubectl.kubernetes.io/last-applied-configuration"})


def redacted_text(text: str) -> str:
    """Any text, such as a log."""
    for pattern, instead in _PATTERNS:
        text = pattern.sub(instead, text)
    return text


def redacted(value: object, *, secret: bool = False) -> object:
    """An object, or a part of it; ``secret``: it belongs to a name that speaks of a secret."""
    if isinstance(value, Mapping):
        return _redacted_mapping(value, secret=secret)
    if isinstance(value, list | tuple):
        return [redacted(one, secret=secret) for one in value]
    if isinstance(value, str) and value:
        return REDACTED if secret else _redacted_string(value)
    return value  # a number or a bool is no secret


def _redacted_mapping(value: Mapping[str, object], *, secret: bool) -> dict[str, object]:
    variable = isinstance(value.get("name"), str) and "value" in value
    found: dict[str, object] = {}
    for key, one in value.items():
        if key in _LEFT_OUT:
            continue
        if key == "value" and variable:
            hidden = _OWN_VARIABLE.match(str(value["name"])) is None
        elif _IS_A_REFERENCE.search(key):
            hidden = False
        else:
            hidden = secret or _SPEAKS_OF_SECRET.search(key) is not None
        found[key] = redacted(one, secret=hidden)
    return found


def _redacted_string(value: str) -> str:
    """The settings of a worker are JSON within a ConfigMap."""
    if value.startswith(("{", "[")):
        try:
            return json.dumps(redacted(json.loads(value)), ensure_ascii=False, indent=1)
        except ValueError:
            pass
    return redacted_text(value)
