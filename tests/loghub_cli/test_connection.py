"""Where a command sends its requests: each source, their order, and what is said when one is missing."""

from pathlib import Path

import pytest

from loghub.client.port import Credentials
from loghub.client.target import BadEndpoint
from loghub_cli.connection import BadProfile, ConnectionOptions, Misconfigured, ServiceConnection, connection

ENVIRONMENT = {"LOGHUB_ACCESS_KEY_ID": "envId", "LOGHUB_ACCESS_KEY_SECRET": "envSecret"}
PROFILES = """
default = "cloud"

[profiles.cloud]
endpoint = "https://cn-hangzhou.log.aliyuncs.com"
project = "shop"
access_key_id = "profileId"
access_key_secret = "profileSecret"
security_token = "profileToken"

[profiles.inside]
endpoint = "http://loghub.svc"
credentials_dir = "KEYS"

[profiles.open]
endpoint = "http://logs.example.com"
allow_http = ["*.example.com"]
access_key_id = "profileId"
access_key_secret = "profileSecret"
client = "http"
"""


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """A configuration folder with the profiles, and a folder with a key."""
    write(tmp_path, PROFILES.replace("KEYS", str(tmp_path / "keys")))
    (tmp_path / "keys").mkdir()
    (tmp_path / "keys" / "accessKeyId").write_text("fileId\n")
    (tmp_path / "keys" / "accessKeySecret").write_text("fileSecret\n")
    return tmp_path


def write(home: Path, content: str, mode: int = 0o600) -> Path:
    file = home / "loghub" / "config.toml"
    file.parent.mkdir(exist_ok=True)
    file.write_text(content)
    file.chmod(mode)
    return file


def resolved(home: Path, options: ConnectionOptions | None = None, **environment: str) -> ServiceConnection:
    places = {"XDG_CONFIG_HOME": str(home), "XDG_STATE_HOME": str(home / "state")}
    return connection(options or ConnectionOptions(), places | environment)


def test_the_default_profile_is_used_without_anything_else(home: Path) -> None:
    result = resolved(home)
    assert (result.endpoint, result.project) == ("https://cn-hangzhou.log.aliyuncs.com", "shop")
    assert result.credentials == Credentials(
        access_key_id="profileId", access_key_secret="profileSecret", security_token="profileToken"
    )
    assert result.uses_sdk


def test_an_option_comes_before_the_environment_and_that_before_the_profile(home: Path) -> None:
    environment = ENVIRONMENT | {
        "LOGHUB_ENDPOINT": "http://127.0.0.1:1",
        "LOGHUB_PROJECT": "env",
        "LOGHUB_SECURITY_TOKEN": "envToken",
    }
    result = resolved(home, **environment)
    assert (result.endpoint, result.project, result.uses_sdk) == ("http://127.0.0.1:1", "env", False)
    assert result.credentials == Credentials(
        access_key_id="envId", access_key_secret="envSecret", security_token="envToken"
    )
    options = ConnectionOptions(
        endpoint="http://127.0.0.1:2", project="option", credentials_dir=home / "keys", client="sdk"
    )
    result = resolved(home, options, **environment)
    assert (result.endpoint, result.project, result.uses_sdk) == ("http://127.0.0.1:2", "option", True)
    assert result.credentials.access_key_id == "fileId"


def test_a_profile_is_named_by_an_option_or_the_environment(home: Path) -> None:
    inside = resolved(home, LOGHUB_PROFILE="inside")
    assert (inside.endpoint, inside.project, inside.uses_sdk) == ("http://loghub.svc", None, False)
    assert inside.credentials.access_key_secret == "fileSecret"
    opened = resolved(home, ConnectionOptions(profile="open"), LOGHUB_PROFILE="inside")
    assert (opened.endpoint, opened.uses_sdk) == ("http://logs.example.com", False)


def test_a_region_is_that_of_the_option_the_environment_the_profile_or_the_key(home: Path) -> None:
    options = ConnectionOptions(endpoint="http://127.0.0.1:1", credentials_dir=home / "keys")
    (home / "keys" / "region").write_text("file")
    assert resolved(home, options).credentials.region == "file"
    write(home, PROFILES.replace('project = "shop"', 'region = "profile"'))
    assert resolved(home, options).credentials.region == "profile"
    assert resolved(home, LOGHUB_REGION="env").credentials.region == "env"
    assert (
        resolved(home, ConnectionOptions(region="option"), LOGHUB_REGION="env").credentials.region == "option"
    )


def local_service(home: Path) -> Path:
    """What a service leaves in its state directory."""
    service = home / "state" / "loghub" / "service"
    (service / "data" / "credentials").mkdir(parents=True)
    (service / "data" / "credentials" / "accessKeyId").write_text("localId")
    (service / "data" / "credentials" / "accessKeySecret").write_text("localSecret")
    (service / "address").write_text("0.0.0.0:4711\n")
    return service


CLOUD = "https://cn-hangzhou.log.aliyuncs.com"


@pytest.mark.parametrize("has_profile", [False, True])
@pytest.mark.parametrize("environment", [{}, {"LOGHUB_ENDPOINT": CLOUD}, {"LOGHUB_PROFILE": "cloud"}])
def test_a_state_directory_that_an_option_names_comes_before_environment_and_profile(
    tmp_path: Path, has_profile: bool, environment: dict[str, str]
) -> None:
    """Otherwise a `logstore delete` that is meant for it goes to the cloud."""
    named = ConnectionOptions(state_dir=local_service(tmp_path).parent)
    if has_profile or "LOGHUB_PROFILE" in environment:
        write(tmp_path, PROFILES)
    result = resolved(tmp_path, named, **ENVIRONMENT, **environment)
    assert (result.endpoint, result.credentials.access_key_id) == ("http://127.0.0.1:4711", "localId")
    with pytest.raises(Misconfigured, match="leave one of them out"):
        resolved(tmp_path, ConnectionOptions(state_dir=named.state_dir, endpoint=CLOUD), **ENVIRONMENT)


def test_the_service_of_this_machine_is_found_with_its_own_key(tmp_path: Path) -> None:
    service = local_service(tmp_path)
    result = resolved(tmp_path, LOGHUB_PROJECT="demo", **ENVIRONMENT)
    assert (result.endpoint, result.project) == ("http://127.0.0.1:4711", "demo")
    assert result.credentials.access_key_id == "localId", "the key for a cloud is not sent to it"
    named = resolved(tmp_path, ConnectionOptions(state_dir=service.parent))
    assert named.endpoint == result.endpoint


@pytest.mark.parametrize(
    ("options", "environment", "message"),
    [
        (ConnectionOptions(profile="none"), {}, "has no profile 'none'; it has: cloud, inside, open"),
        (ConnectionOptions(config=Path("/nowhere.toml")), {}, "there is no config file /nowhere.toml"),
        (
            ConnectionOptions(credentials_dir=Path("/nowhere")),
            {},
            "No such file or directory: /nowhere/accessKeyId",
        ),
        (ConnectionOptions(), {"LOGHUB_ACCESS_KEY_ID": "x"}, "LOGHUB_ACCESS_KEY_ID is set without the other"),
        (ConnectionOptions(endpoint="http://logs.example.org"), ENVIRONMENT, "--allow-http logs.example.org"),
    ],
    ids=["profile", "config", "keys", "half a key", "exposed"],
)
def test_a_mistake_is_reported_with_its_remedy(
    home: Path, options: ConnectionOptions, environment: dict[str, str], message: str
) -> None:
    with pytest.raises((Misconfigured, BadProfile)) as error:
        resolved(home, options, **environment)
    assert message in error.value.format_message()
    assert error.value.exit_code == 2


def test_what_is_missing_is_named_with_every_way_to_give_it(tmp_path: Path) -> None:
    with pytest.raises(Misconfigured, match="or start one on this machine with `loghub up`"):
        resolved(tmp_path)
    with pytest.raises(Misconfigured, match="set LOGHUB_ACCESS_KEY_ID and LOGHUB_ACCESS_KEY_SECRET, or name"):
        resolved(tmp_path, ConnectionOptions(endpoint="http://127.0.0.1:1"))
    place = resolved(tmp_path, ConnectionOptions(endpoint="http://127.0.0.1:1"), **ENVIRONMENT)
    with pytest.raises(Misconfigured, match="--project, LOGHUB_PROJECT or a profile"), place.open():
        pass
    with pytest.raises(BadEndpoint):
        resolved(tmp_path, ConnectionOptions(endpoint="ftp://x"), **ENVIRONMENT)


@pytest.mark.parametrize("mode", [0o644, 0o660, 0o604])
def test_a_config_file_that_others_can_read_is_refused(home: Path, mode: int) -> None:
    file = write(home, PROFILES, mode)
    with pytest.raises(BadProfile, match=f"mode {mode:04o}.*chmod 600 {file}"):
        resolved(home)


def test_a_config_file_that_cannot_be_read_is_reported(tmp_path: Path) -> None:
    with pytest.raises(BadProfile, match="cannot be read: Is a directory"):
        resolved(tmp_path, ConnectionOptions(config=tmp_path))


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("x = ", "is not TOML"),
        ("colour = 'red'", "unknown settings: colour"),
        ("default = 'a'\n[profiles.a]\nsecret = 'x'", "unknown settings: secret; known: access_key_id"),
        ("default = 'a'\n[profiles.a]\nendpoint = 1", "endpoint must be text in quotes"),
        ("default = 'a'\n[profiles.a]\nallow_http = 'x'", "allow_http must be a list"),
        ("default = 'a'\n[profiles.a]\nclient = 'x'", "client must be auto, sdk or http"),
        ("default = 'a'\n[profiles.a]\naccess_key_id = 'x'", "belong together"),
        ("default = 'a'\n[profiles]\na = 1", "is not a table"),
        ("default = 'a'\nprofiles = 1", "has no profile 'a'; it has: none"),
        ("default = 1", "has no profile 1"),
        ("#" * (1 << 20) + "##", "has more than 1048576 bytes"),
    ],
)
def test_an_invalid_config_file_is_reported(tmp_path: Path, content: str, message: str) -> None:
    write(tmp_path, content)
    with pytest.raises(BadProfile, match=message):
        resolved(tmp_path)


def test_no_representation_shows_a_secret(home: Path) -> None:
    assert "Secret" not in repr(resolved(home))
