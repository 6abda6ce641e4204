"""Secrets as they lie about in objects and logs, to be found by nobody in a report."""

import json

# Put together here, so that nothing takes this file for a leak.
ID, KEY = "LTAI" + "5tQm1xYz9Wv3Kp7R", "k7Vb2" + "Qw9ZrT4yUx1LmN8pHs6DfG3Jc"
PASSWORD, TOKEN = "hunter2-" + "correct", "CAIS" + "8wF1q6Ft5B2yfSjIr5bS" * 3
WEB_TOKEN = "eyJhbGciOiJIUzI1NiJ9" + ".eyJzdWIiOiJhbm4ifQ.c2lnbmF0dXJl"
CERTIFICATE_KEY = "MIIEvQIBADANBgkqhkiG9w0BAQEFAASC" + "BKcwggSj"
BEGIN, END = (f"-----{word} " + "EC PRIVATE KEY-----" for word in ("BEGIN", "END"))
PLANTED = (ID, KEY, PASSWORD, TOKEN, WEB_TOKEN, CERTIFICATE_KEY)


def planted_log() -> str:
    """Lines as a worker, a client and a careless program write them."""
    message = {
        "event": "the sink refuses",
        "level": "warning",
        "timestamp": "2026-11-27T08:00:00Z",
        "url": f"postgresql://ann:{PASSWORD}@db:5432/logs",
        "exception": f"Traceback\n  ValueError: accessKeySecret={KEY}",
    }
    return "\n".join(
        (
            f"[pod/access-0/worker] {json.dumps(message)}",
            f"[pod/access-0/worker] Authorization: LOG {ID}:c2lnbmF0dXJl",
            f"[pod/access-0/worker] connecting with {{'password': '{PASSWORD}', 'user': 'ann'}}",
            f"[pod/access-0/worker] x-acs-security-token: {TOKEN}",
            f"[pod/access-0/worker] GET /?sig=1 Bearer {WEB_TOKEN}",
            f"[pod/access-0/worker] key {KEY} of the account",
            f"{BEGIN}\n{CERTIFICATE_KEY}\n{END}",
            "",
        )
    )
