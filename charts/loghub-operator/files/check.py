"""`helm test`: checks that the CRD is served and that the operator is healthy.

Runs in a pod of its own with the operator's image, and uses only the standard library. The environment is
set in `templates/tests/check.yaml`.
"""

import json
import os
import ssl
import sys
import time
import urllib.error
import urllib.request
from pathlib import Path

ACCOUNT = Path(os.environ.get("LOGHUB_CHECK_ACCOUNT", "/var/run/secrets/kubernetes.io/serviceaccount"))
API = "/apis/loghub.dev/v1alpha1"
PLURAL = "loghubconsumergroups"
CALL_S = 5.0
PAUSE_S = 1.0


def served_kinds() -> list[str]:
    """Plural names of the resources that the API server serves in the API group; discovery is open to every
    account."""
    host, port = os.environ["KUBERNETES_SERVICE_HOST"], os.environ["KUBERNETES_SERVICE_PORT"]
    address = f"[{host}]" if ":" in host else host
    token = (ACCOUNT / "token").read_text().strip()
    request = urllib.request.Request(
        f"https://{address}:{port}{API}", headers={"Authorization": f"Bearer {token}"}
    )
    trust = ssl.create_default_context(cafile=str(ACCOUNT / "ca.crt"))
    answer = json.loads(_opened(request, urllib.request.HTTPSHandler(context=trust)))
    return [one["name"] for one in answer["resources"]]


def operator_says() -> str:
    """The response of the operator's liveness endpoint."""
    url = os.environ["LOGHUB_CHECK_OPERATOR"]
    return _opened(urllib.request.Request(url), urllib.request.HTTPHandler()).decode()  # noqa: S310


def _opened(request: urllib.request.Request, handler: urllib.request.BaseHandler) -> bytes:
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}), handler)
    with opener.open(request, timeout=CALL_S) as answer:
        return answer.read(1 << 20)


def trouble() -> str:
    """The first check that fails; "" if none does."""
    try:
        if PLURAL not in served_kinds():
            return f"the API server serves {API} without {PLURAL}"
    except (OSError, ValueError, KeyError) as error:
        return f"the CRD is not served: {_message(error)}"
    try:
        operator_says()
    except OSError as error:
        return f"the operator is not healthy: {_message(error)}"
    return ""


def _message(error: Exception) -> str:
    said = error.read(2000).decode(errors="replace") if isinstance(error, urllib.error.HTTPError) else ""
    return f"{error} {said}".strip()


def main() -> int:
    """0 once both checks pass, 1 if they do not pass in time."""
    end_s = time.monotonic() + float(os.environ.get("LOGHUB_CHECK_SECONDS", "60"))
    while found := trouble():
        if time.monotonic() > end_s:
            sys.stdout.write(found + "\n")
            return 1
        time.sleep(PAUSE_S)
    sys.stdout.write(f"{API} is served and the operator is healthy\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
