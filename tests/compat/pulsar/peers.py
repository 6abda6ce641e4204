"""The own tests of Pulsar's client for Go, as they are published with the module that ``programs/go`` pins.

They are for a broker on its default ports that lets everybody in; `CHANGES` gives them the address and the
login of another one. `why_not` says which of them need what this service does not have.
"""

import re
import shutil
from collections.abc import Mapping
from pathlib import Path

from tests.cluster import compiling, runs
from tests.compat.peers import GUARD_S, Change, copied, folder_of, run
from tests.compat.pulsar import client_programs

OURS = client_programs.PROGRAMS / "peers" / "aa_address_test.go"
MODULE = "github.com/apache/pulsar-client-go"
CHANGES = (
    Change(
        file="pulsar/helper_for_test.go",
        before='\tserviceURL    = "pulsar://localhost:6650"\n',
        after="",
    ),
    Change(
        file="pulsar/schema_test.go",
        before='lookupURL := "pulsar://localhost:6650"',
        after="lookupURL := serviceURL",
    ),
    Change(
        file="pulsar/consumer_multitopic_test.go",
        before='URL: "pulsar://localhost:6650"',
        after="URL: serviceURL",
    ),
    # In the library, since each test makes its clients itself.
    Change(
        file="pulsar/client_impl.go",
        before="func newClient(options ClientOptions) (Client, error) {\n",
        after=(
            "func newClient(options ClientOptions) (Client, error) {\n"
            "\tif options.Authentication == nil && defaultLogin != nil {\n"
            "\t\toptions.Authentication = defaultLogin()\n"
            "\t}\n"
        ),
    ),
    Change(
        file="pulsar/client_impl.go",
        before="type client struct {\n",
        after="var defaultLogin func() Authentication\n\ntype client struct {\n",
    ),
)
# What a test says that needs more than the binary protocol, or what is refused in words.
NEEDS = {
    "the HTTP API of a Pulsar broker": re.compile(
        r"\b(http(Put|Get|Delete|Do|Lookup)|makeHTTPCall|webServiceURL\w*|adminURL|createNamespace"
        r"|create(Partitioned)?Topic|deleteTopic|topicStats|transactionStats|pulsaradmin|admin\.New)\b"
        r'|"http://'
    ),
    "a broker in a container of its own": re.compile(r"\btestcontainers\b"),
    "encryption, which the service refuses": re.compile(r"\b(Encryption|Decryption|crypto\.)"),
    "transactions, which the service refuses": re.compile(r"\b(NewTransaction|EnableTransaction)\b"),
}
_FUNCTION = re.compile(r"^func (?:\([^)]*\) )?(\w+)\(.*?^}\n", re.MULTILINE | re.DOTALL)


def pulsar_client_go() -> tuple[Path, Path]:
    """The compiled tests and the folder where they run. Raises `RuntimeError`."""
    go = compiling.find_go("the tests of Pulsar's client for Go")
    ours = client_programs.GO.source
    folder = folder_of("pulsar-client-go", (ours / "go.mod").read_text(), OURS, CHANGES)
    with runs.locked(folder.with_suffix(".lock"), guard_s=GUARD_S, what="compiling the tests of a peer"):
        if not folder.exists():
            run([go, "mod", "download", MODULE], ours)
            source = Path(run([go, "list", "-m", "-f", "{{.Dir}}", MODULE], ours).strip())
            part = copied(source, folder, CHANGES)
            shutil.copy(OURS, part / "pulsar")
            run([go, "test", "-c", "-o", "pulsar.test", "./pulsar"], part)
            part.rename(folder)
    return folder / "pulsar.test", folder / "pulsar"


def tests_of(folder: Path, file: str) -> Mapping[str, str]:
    """The tests of a file, and why each cannot run here; empty for those that can."""
    functions: dict[str, str] = {}
    for path in folder.glob("*_test.go"):
        functions |= {found[1]: found[0] for found in _FUNCTION.finditer(path.read_text())}
    names = [found[1] for found in _FUNCTION.finditer((folder / file).read_text())]
    return {name: why_not(name, functions) for name in names if name.startswith("Test")}


def why_not(name: str, functions: Mapping[str, str]) -> str:
    """What the test or a function that it calls needs; empty where it needs nothing."""
    reached, waiting = {name}, [name]
    while waiting:
        body = functions[waiting.pop()]
        for reason, pattern in NEEDS.items():
            if pattern.search(body):
                return reason
        called = set(re.findall(r"\b(\w+)\(", body)) & functions.keys() - reached
        reached |= called
        waiting += called
    return ""
