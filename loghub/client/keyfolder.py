"""The access key as files of one folder, as a mounted Secret has them.

What for: operator and worker read a key that is never on a command line. What it must not know:
who made the folder, requests. Read next: `loghub.worker_contract` (the files' names).
"""

from pathlib import Path

from loghub.client.port import Credentials
from loghub.worker_contract import ACCESS_KEY_ID_FILE, ACCESS_KEY_SECRET_FILE, SECURITY_TOKEN_FILE


def read_key(folder: Path) -> Credentials:
    """The access key in a folder; raises `OSError` where a file of it cannot be read."""
    token = folder / SECURITY_TOKEN_FILE
    return Credentials(
        access_key_id=(folder / ACCESS_KEY_ID_FILE).read_text().strip(),
        access_key_secret=(folder / ACCESS_KEY_SECRET_FILE).read_text().strip(),
        security_token=token.read_text().strip() if token.exists() else "",
    )
