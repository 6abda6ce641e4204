"""The commands that the providers would run, without running them."""

import dataclasses
import json
import shutil
from pathlib import Path

import pytest

from tests.cluster import (
    build,
    chart_tools,
    compiling,
    control_plane,
    host,
    images,
    kind,
    mounts,
    node,
    paths,
    provider,
    runs,
)
from tests.cluster.compiling import Recipe
from tests.cluster.control_plane import Plan
from tests.cluster.ip_family import IPV4
from tests.cluster.upstream import Upstream

ROOT = Path(__file__).parents[2]
PLAN = Plan(
    binaries=Path("/bin-folder"),
    folder=Path("/run-folder"),
    family=IPV4,
    address=IPV4.bridge,
    api_port=6443,
    etcd_port=2379,
    etcd_peer_port=2380,
    controller_port=10257,
    scheduler_port=10259,
    kubelet_port=10250,
    proxy_metrics_port=10249,
)


class Recorder:
    """Replaces running a command; ``answers`` by the first two arguments."""

    def __init__(self, answers: dict[str, str] | None = None) -> None:
        self.commands: list[list[str]] = []
        self.answers = answers or {}

    def __call__(self, command: list[str]) -> str:
        self.commands.append(command)
        return self.answers.get(" ".join(command[:2]), "")


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    return tmp_path / "loghub-operator"


# --- the upstream programs -----------------------------------------------------------------------


def test_the_apiserver_can_reach_the_pods() -> None:
    command = control_plane.apiserver(PLAN)
    assert "--enable-aggregator-routing=true" in command
    assert "--kubelet-preferred-address-types=InternalIP" in command


def test_a_standalone_apiserver_starts_no_controllers() -> None:
    alone = Plan(
        binaries=PLAN.binaries,
        folder=PLAN.folder,
        family=IPV4,
        address=IPV4.loopback,
        api_port=6443,
        etcd_port=2379,
        etcd_peer_port=2380,
    )
    command = control_plane.apiserver(alone)
    assert "--disable-admission-plugins=ServiceAccount" in command
    assert not any("kubelet" in word for word in command)


def test_no_component_uses_leader_election() -> None:
    assert "--leader-elect=false" in control_plane.controller_manager(PLAN)
    assert "--leader-elect=false" in control_plane.scheduler(PLAN)


def test_every_path_that_the_node_writes_is_in_the_run_folder() -> None:
    kubelet = json.loads(node.kubelet_config(PLAN))
    assert kubelet["podLogsDir"].startswith("/run-folder/")
    assert "--root-dir=/run-folder/kubelet" in node.kubelet(PLAN)
    assert 'state = "/run-folder/containerd-state"' in node.containerd_config(
        PLAN, root=Path("/image-folder"), with_pods=True
    )
    network = json.loads(node.cni_config(PLAN))
    assert network["plugins"][0]["ipam"]["dataDir"] == "/run-folder/addresses"


def test_without_pods_the_cri_plugin_of_containerd_is_disabled() -> None:
    config = node.containerd_config(PLAN, root=Path("/image-folder"), with_pods=False)
    assert 'disabled_plugins = ["io.containerd.grpc.v1.cri"]' in config


def test_mounts_below_a_folder_are_found_innermost_first() -> None:
    table = (
        "tmpfs /run-folder/a tmpfs rw 0 0\n"
        "proc /proc proc rw 0 0\n"
        "overlay /run-folder/a/deep\\040er overlay rw 0 0\n"
        "tmpfs /run-folder-of-another tmpfs rw 0 0\n"
    )
    assert mounts.below(Path("/run-folder"), table) == ["/run-folder/a/deep er", "/run-folder/a"]


def test_only_containers_of_this_run_are_listed(tmp_path: Path) -> None:
    tasks = tmp_path / "containerd-state" / "io.containerd.runtime.v2.task" / "k8s.io"
    (tasks / "abc").mkdir(parents=True)
    assert host.container_ids(tmp_path) == ["abc"]
    assert host.container_ids(tmp_path / "elsewhere") == []


# --- building ------------------------------------------------------------------------------------


def test_all_programs_are_built_by_one_command() -> None:
    command = build.KUBERNETES.command(Path("/out"))
    assert [word for word in command if word.startswith("k8s.io/kubernetes/cmd/")] == [
        f"k8s.io/kubernetes/cmd/{name}" for name in build.PROGRAMS
    ]
    assert command[-2:] == ["./coredns", "./etcd"]
    assert "gitVersion=v1.36.3" in " ".join(command)


def test_the_version_that_is_stamped_is_the_version_that_is_pinned() -> None:
    assert f"k8s.io/kubernetes {build.VERSION}" in (paths.TOOLS / "go.mod").read_text()


def test_another_pinned_version_has_another_folder(tmp_path: Path) -> None:
    for name in build.KUBERNETES.inputs:
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text("a")
    recipe = dataclasses.replace(build.KUBERNETES, source=tmp_path)
    before = recipe.key()
    (tmp_path / "go.sum").write_text("b")
    assert recipe.key() != before


def test_an_interrupted_build_does_not_count(cache: Path) -> None:
    build.folder().mkdir(parents=True)
    for name in (*build.PROGRAMS, "coredns"):
        (build.folder() / name).touch()
    assert build.built() is None
    (build.folder() / "etcd").touch()
    assert build.built() == build.folder()


def test_a_second_build_waits_for_the_first(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compiling, "GUARD_S", 0.1)
    assert not compiling.in_progress(chart_tools.HELM)
    with runs.locked(chart_tools.HELM.lock(), guard_s=1, what="a build"):
        assert compiling.in_progress(chart_tools.HELM)
        with pytest.raises(TimeoutError, match=r"compiling helm v4"):
            compiling.ensure(chart_tools.HELM)


@pytest.mark.parametrize("recipe", [chart_tools.HELM, chart_tools.ACTIONLINT], ids=lambda one: one.what)
def test_the_chart_tools_are_pinned_in_modules_of_their_own(recipe: Recipe) -> None:
    said = (recipe.source / "go.mod").read_text()
    assert f"tool {recipe.arguments[0]}\n" in said
    assert recipe.command(Path("/out"))[-3:] == ["-o", "/out/", recipe.arguments[0]]
    assert recipe.folder().name.startswith(recipe.programs[0])


def test_helm_uses_the_libraries_of_the_clusters_kubernetes() -> None:
    # Else they would be compiled twice: minutes instead of seconds.
    libraries = build.VERSION.replace("v1.", "v0.")
    said = (chart_tools.HELM.source / "go.mod").read_text()
    assert f"k8s.io/client-go {libraries}" in said
    assert f"helm.sh/helm/v4 {chart_tools.HELM_VERSION}" in said


@pytest.mark.parametrize(
    ("said", "used"),
    [
        ("v3.14.0+gc309b6f", True),
        ("v3.9.4+gdbc6d8e", False),
        ("v4.2.4+gunknown", True),
        ("", False),
        ("v2.17", False),
    ],
)
def test_the_users_helm_is_used_from_a_minimum_version_on(said: str, used: bool) -> None:
    assert chart_tools.is_new_enough(said) is used


def test_the_certificate_bundle_is_mounted_for_the_image_build_only(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("PIP_CERT", "/etc/bundle.crt")
    monkeypatch.delenv("PIP_INDEX_URL", raising=False)
    command = images.build_command(
        recipe=Path("/d"), context=Path("/c"), image="i", target="worker", base="b"
    )
    assert command[command.index("--volume") + 1] == "/etc/bundle.crt:/etc/bundle.crt:ro"
    assert "PIP_CERT=/etc/bundle.crt" in command
    assert command[command.index("--target") :][:2] == ["--target", "worker"]
    assert not any("PIP_INDEX_URL" in word for word in command)


def test_the_cache_key_of_an_image_depends_on_its_sources_only(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(paths, "REPOSITORY", tmp_path)
    for name in ("Dockerfile", ".dockerignore"):
        shutil.copy2(ROOT / name, tmp_path)
    for file, followers in {
        "worker/loghub_worker/worker.py": ["worker"],
        "service/loghub_service/engine.py": ["service"],
        "loghub/client/port.py": ["operator", "worker"],
        "loghub/wire/names.py": ["service", "operator", "worker"],
        "operator/loghub_operator/plan/planner.py": ["operator"],
        "operator/loghub_cli/main.py": [],
        "operator/loghub_operator/plan/__pycache__/planner.pyc": [],
        "locks/operator.txt": ["operator"],
        "README.md": [],
    }.items():
        before = {target: images.key(target) for target in images.TARGETS}
        (tmp_path / file).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / file).write_text("new")
        after = {target: images.key(target) for target in images.TARGETS}
        assert [target for target in before if before[target] != after[target]] == followers, file


# --- kind ----------------------------------------------------------------------------------------


def test_kind_creates_a_cluster_and_builds_and_loads_images(cache: Path) -> None:
    recorder = Recorder()
    cluster = kind.Kind(recorder).up()
    programs = [command[:3] for command in recorder.commands]
    assert programs == [
        ["kind", "delete", "cluster"],
        ["kind", "create", "cluster"],
        ["docker", "build", "--target"],
        ["docker", "build", "--target"],
        ["docker", "build", "--target"],
        ["kind", "load", "docker-image"],
    ]
    create, load = recorder.commands[1], recorder.commands[-1]
    assert create[create.index("--kubeconfig") + 1] == str(cluster.kubeconfig)
    assert set(cluster.images.values()) <= set(load)
    built = {command[command.index("--tag") + 1] for command in recorder.commands[2:5]}
    assert built == set(cluster.images.values())
    assert all(command[-1] == str(paths.REPOSITORY) for command in recorder.commands[2:5])


def test_kind_shows_the_volumes_folder_to_the_node(cache: Path) -> None:
    cluster = kind.Kind(Recorder()).up()
    config = json.loads((cache / "run" / "kind" / "kind.yaml").read_text())
    observed = config["nodes"][0]["extraMounts"][0]
    assert observed == {"hostPath": str(cluster.volumes), "containerPath": cluster.volumes_on_node}
    assert cluster.volumes.is_dir()


def test_kind_uses_a_running_cluster(cache: Path) -> None:
    recorder = Recorder({"kind get": "other\n"})
    provided = kind.Kind(recorder)
    assert provided.running() is None
    created = provided.up()
    recorder.answers["kind get"] = f"other\n{kind.NAME}\n"
    assert provided.running() == created


def test_kind_restarts_the_apiserver_on_its_node(cache: Path) -> None:
    recorder = Recorder()
    kind.Kind(recorder).up().restart_apiserver()
    node = f"{kind.NAME}-control-plane"
    assert recorder.commands[-1] == ["docker", "exec", node, "pkill", "-KILL", "-x", "kube-apiserver"]


def test_kind_down_deletes_the_cluster_and_its_state(cache: Path) -> None:
    recorder = Recorder()
    provided = kind.Kind(recorder)
    provided.up()
    recorder.commands.clear()
    provided.down()
    assert recorder.commands == [["kind", "delete", "cluster", "--name", kind.NAME]]
    assert not provided.folder.exists()


# --- the choice ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("docker", "has_kind", "linux", "root", "chosen"),
    [
        (True, True, True, True, "kind"),
        (True, True, False, False, "kind"),
        (False, True, True, True, "upstream"),
        (True, False, True, True, "upstream"),
        (False, False, True, True, "upstream"),
    ],
)
def test_kind_is_used_if_docker_answers_else_the_upstream_binaries(
    docker: bool, has_kind: bool, linux: bool, root: bool, chosen: str
) -> None:
    assert provider.decide(docker=docker, kind=has_kind, linux=linux, root=root) == chosen


@pytest.mark.parametrize(("docker", "help_with"), [(True, "kind"), (False, "Docker engine")])
def test_without_a_provider_the_message_names_the_options(docker: bool, help_with: str) -> None:
    with pytest.raises(provider.ClusterUnavailableError, match=help_with):
        provider.decide(docker=docker, kind=False, linux=False, root=False)


def test_an_unknown_provider_override_is_rejected(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(provider.OVERRIDE, "minikube")
    with pytest.raises(provider.ClusterUnavailableError, match="kind or upstream"):
        provider.choose()
    monkeypatch.setenv(provider.OVERRIDE, "kind")
    assert provider.choose() == "kind"


def test_leftovers_of_a_cluster_are_not_used_as_one(cache: Path) -> None:
    left = Upstream()
    assert cache in left.folder.parents
    left.folder.mkdir(parents=True)
    plan = dataclasses.asdict(dataclasses.replace(PLAN, folder=left.folder))
    (left.folder / "plan.json").write_text(json.dumps(plan, default=str))
    assert left.running() is None
