"""The ValidatingAdmissionPolicy of the chart, evaluated by the real apiserver.

Each test installs a release's policy for its own namespaces, one of them with settings of its own.
Groups are created and updated as a user would; nothing is stored unless a test says so.
"""

import asyncio
import json
import re
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from loghub.contract.worker import KUBERNETES
from tests.charts.chart import Chart, Object, RefusedError, Values, as_list, kinds, only
from tests.loghub_operator.support.apiserver import Apiserver
from tests.loghub_operator.support.examples import Document, document
from tests.loghub_operator.support.harness import Stage, make_namespace, stage
from tests.support import wait_until

TEAM = "policy-team"  # with settings of its own
VALUES: Values = {
    "policy": {
        "enabled": True,
        "namespaces": {
            TEAM: {
                "endpoints": ["embedded", "http://logs.team.example:8080", "http://[fd00::7]:8080"],
                "images": ["registry.example.com/team/*"],
                "secrets": ["loghub-*"],
                "serviceAccounts": ["team-worker"],
                "podFields": ["containers", "hostNetwork", "volumes"],
                "volumeTypes": ["emptyDir", "csi"],
                "sparkOnKubernetes": True,
            }
        },
    }
}
POLICY = {"ValidatingAdmissionPolicy", "ValidatingAdmissionPolicyBinding"}
GUARD_S = 120.0
CAPABILITIES = {"capabilities": {"drop": ["ALL"]}}
NO_ESCALATION = {"allowPrivilegeEscalation": False}
SEALED = {
    "allowPrivilegeEscalation": False,
    "capabilities": {"drop": ["ALL"]},
    "runAsNonRoot": True,
    "seccompProfile": {"type": "RuntimeDefault"},
}


def template(**spec: Any) -> Document:
    return {"worker": {"podTemplate": {"spec": spec}}}


def worker(**fields: Any) -> Document:
    return template(containers=[{"name": "worker", **fields}])


def security(**fields: Any) -> Document:
    return worker(securityContext=fields)


def env(secret: str) -> list[Document]:
    return [{"name": "A", "valueFrom": {"secretKeyRef": {"name": secret, "key": "k"}}}]


# What is requested -> a part of the message; by the defaults of the chart.
DENIED: dict[str, tuple[Document, str]] = {
    "endpoint of another host": (
        {"endpoint": "https://logs.example.com"},
        "spec.endpoint https://logs.example.com is not allowed in namespace {namespace}; "
        "allowed are: embedded, https://*.log.aliyuncs.com",
    ),
    "endpoint of SLS without TLS": (
        {"endpoint": "http://cn-hangzhou.log.aliyuncs.com"},
        "http://cn-hangzhou.log.aliyuncs.com is not allowed",
    ),
    "endpoint that only looks like SLS": (
        {"endpoint": "https://cn-hangzhou-log.aliyuncs.com"},
        "is not allowed",
    ),
    "executors as pods": (
        {"spark": {"master": KUBERNETES}},
        f"spec.spark.master {KUBERNETES} is not allowed in namespace {{namespace}}, because its workers may"
        " make any pod",
    ),
    "privileged": (security(privileged=True), "securityContext"),
    "escalation": (security(allowPrivilegeEscalation=True), "securityContext"),
    "escalation by removal": (security(allowPrivilegeEscalation=None), "securityContext"),
    "a security context removed": (worker(securityContext=None), "securityContext"),
    "a security context replaced": (security(**{"$patch": "replace"}), "securityContext"),
    "root": (security(runAsUser=0), "securityContext"),
    "root allowed": (security(runAsNonRoot=False), "securityContext"),
    "capabilities": (security(capabilities={"drop": ["ALL"], "add": ["SYS_ADMIN"]}), "securityContext"),
    "capabilities kept": (security(capabilities={"drop": []}), "securityContext"),
    "no seccomp": (security(seccompProfile={"type": "Unconfined"}), "securityContext"),
    "proc unmasked": (security(procMount="Unmasked"), "securityContext"),
    "a privileged sidecar": (
        template(containers=[{"name": "other", "image": "i", "securityContext": {"privileged": True}}]),
        "securityContext",
    ),
    "a privileged init container": (
        template(initContainers=[{"name": "other", "image": "i", "securityContext": {"privileged": True}}]),
        "securityContext",
    ),
    "a sidecar without a security context": (
        template(containers=[{"name": "other", "image": "i"}]),
        "securityContext",
    ),
    "an init container that may escalate": (
        template(initContainers=[{"name": "other", "image": "i", "securityContext": CAPABILITIES}]),
        "securityContext",
    ),
    "a sidecar with the capabilities of its image": (
        template(containers=[{"name": "o", "image": "i", "securityContext": NO_ESCALATION}]),
        "securityContext",
    ),
    "a probe of another host, which the node would send": (
        worker(livenessProbe={"httpGet": {"host": "169.254.169.254", "port": 80}}),
        "probe or hook with a host",
    ),
    "a connection to another host": (
        worker(readinessProbe={"tcpSocket": {"host": "10.0.0.1", "port": 6443}}),
        "probe or hook with a host",
    ),
    "a hook to another host": (
        worker(lifecycle={"postStart": {"httpGet": {"host": "10.0.0.1", "port": 80}}}),
        "probe or hook with a host",
    ),
    "the container replaced": (worker(**{"$patch": "replace"}), "$patch"),
    "a host port": (worker(ports=[{"containerPort": 80, "hostPort": 80}]), "hostPort"),
    "the host's network": (template(hostNetwork=True), "hostNetwork"),
    "the host's processes": (template(hostPID=True), "hostPID"),
    "the host's IPC": (template(hostIPC=True), "hostIPC"),
    "a node": (template(nodeName="control-plane"), "nodeName"),
    "the pod's security context": (template(securityContext={"runAsUser": 0}), "securityContext"),
    "the pod's security context removed": (template(securityContext=None), "securityContext"),
    "a pod spec replaced": (template(**{"$patch": "replace"}), "$patch"),
    "a pod template replaced": ({"worker": {"podTemplate": {"$patch": "replace"}}}, "$patch"),
    "a folder of the node": (
        template(volumes=[{"name": "x", "hostPath": {"path": "/"}}]),
        "volumes of type hostPath",
    ),
    "a token as volume": (
        template(volumes=[{"name": "x", "projected": {"sources": [{"serviceAccountToken": {"path": "t"}}]}}]),
        "volumes of type projected",
    ),
    "another service account": (template(serviceAccountName="admin"), "service account admin"),
    "another service account by its old name": (template(serviceAccount="admin"), "service account admin"),
    "a token": (template(automountServiceAccountToken=True), "automountServiceAccountToken"),
}
ALLOWED: dict[str, Document] = {
    "processor": {"pipeline": {"sql": None, "sink": None, "processor": {"factory": "counts:Count"}}},
    "nothing special": {},
    "executors elsewhere": {"spark": {"master": "spark://master:7077"}},
    "SLS": {"endpoint": "https://cn-hangzhou.log.aliyuncs.com"},
    "SLS within a VPC, another spelling": {"endpoint": "https://CN-Hangzhou-intranet.log.aliyuncs.com/"},
    "an image": {"worker": {"image": "anything/at:all"}},
    "a Secret": {"worker": {"env": env("any")}},
    "sizes and places": {
        "worker": {
            "podTemplate": {
                "metadata": {"labels": {"team": "a"}},
                "spec": {
                    "nodeSelector": {"disk": "ssd"},
                    "tolerations": [{"key": "dedicated", "operator": "Exists"}],
                    "affinity": {"nodeAffinity": {}},
                    "imagePullSecrets": [{"name": "registry"}],
                    "volumes": [{"name": "state", "emptyDir": {"sizeLimit": "50Gi"}}],
                },
            }
        }
    },
    "a sidecar": template(containers=[{"name": "other", "image": "i", "securityContext": SEALED}]),
    "a sidecar with what the pod's context lacks": template(
        initContainers=[{"name": "o", "image": "i", "securityContext": {**CAPABILITIES, **NO_ESCALATION}}]
    ),
    "other probes and hooks": worker(
        livenessProbe={"httpGet": None, "tcpSocket": {"port": 9404}},
        readinessProbe={"httpGet": {"host": "", "port": 9404}},
        startupProbe=None,
        lifecycle={"postStart": {"exec": {"command": ["true"]}}, "preStop": None},
    ),
    "no hooks": worker(lifecycle=None),
}
# The same for the namespace with settings of its own.
DENIED_IN_TEAM: dict[str, tuple[Document, str]] = {
    "an endpoint that others may use": (
        {"endpoint": "https://cn-hangzhou.log.aliyuncs.com"},
        "allowed are: embedded, http://logs.team.example:8080, http://[fd00::7]:8080",
    ),
    "a part of its endpoint of IPv6": ({"endpoint": "http://7:8080"}, "is not allowed"),
    "another image": ({"worker": {"image": "evil/worker:1"}}, "image"),
    "another image of a sidecar": (
        template(containers=[{"name": "s", "image": "evil/s:1", "securityContext": SEALED}]),
        "an image that is not allowed",
    ),
    "another key": ({"credentialsSecret": {"name": "bank"}}, "Secret"),
    "another Secret for the sink": (
        {"pipeline": {"sink": {"credentialsSecret": {"name": "bank"}}}},
        "Secret",
    ),
    "another Secret in a variable": ({"worker": {"env": env("bank")}}, "Secret"),
    "another Secret in a variable of the template": (worker(env=env("bank")), "Secret"),
    "another Secret as variables": (worker(envFrom=[{"secretRef": {"name": "bank"}}]), "Secret"),
    "a field that others may use": (template(tolerations=[]), "tolerations"),
    "a volume that others may use": (
        template(volumes=[{"name": "x", "persistentVolumeClaim": {"claimName": "x"}}]),
        "volumes of type persistentVolumeClaim",
    ),
    "another Secret for a volume's driver": (
        template(volumes=[{"name": "x", "csi": {"driver": "d", "nodePublishSecretRef": {"name": "bank"}}}]),
        "Secret",
    ),
    "a volume with a Secret": (
        template(volumes=[{"name": "x", "secret": {"secretName": "loghub-x"}}]),
        "volumes of type secret",
    ),
}
ALLOWED_IN_TEAM: dict[str, Document] = {
    "its endpoint": {"endpoint": "http://logs.team.example:8080"},
    "its endpoint of IPv6": {"endpoint": "http://[FD00::7]:8080"},
    "its image": {"worker": {"image": "registry.example.com/team/worker:1"}},
    "its Secret": {"worker": {"env": env("loghub-x")}},
    "its service account": template(
        serviceAccountName="team-worker", automountServiceAccountToken=True, hostNetwork=True
    ),
    "its executors as pods": {"spark": {"master": KUBERNETES}},
    "its volume": template(volumes=[{"name": "x", "csi": {"driver": "d"}}]),
}


def requested(spec: Document, namespace: str) -> Document:
    """An object as a user would write it: a null in its pod template is in it, where it removes a default."""
    group = document(spec, namespace=namespace)
    if "podTemplate" in spec.get("worker", {}):
        group["spec"]["worker"]["podTemplate"] = spec["worker"]["podTemplate"]
    return group


def only_policy(objects: list[Object]) -> list[Object]:
    return [one for one in objects if one["kind"] in POLICY]


def answers(server: Apiserver, groups: dict[str, Document]) -> dict[str, str]:
    """What is said of each; nothing if it is allowed. One kubectl for all of them: many take a minute."""
    names = {f"case-{number}": name for number, name in enumerate(groups)}
    objects = [
        {**group, "metadata": {**group["metadata"], "name": case}}
        for case, group in zip(names, groups.values(), strict=True)
    ]
    said = server.run("create", "--dry-run=server", "-f", "-", "-o", "name", text=as_list(objects))
    result = dict.fromkeys(groups, "")
    for message in re.split(r"^(?=Error|Warning)", said.stderr, flags=re.MULTILINE):
        if message:
            (case,) = re.findall(r'"(case-[0-9]+)"', message)
            result[names[case]] += message
    created = {line.rpartition("/")[2] for line in said.stdout.splitlines()}
    assert created == {case for case, name in names.items() if not result[name]}
    return result


@contextmanager
def installed(chart: Chart, server: Apiserver, values: Values, *namespaces: str) -> Iterator[None]:
    """In these namespaces only, for the other tests of this apiserver have no policy."""
    release = f"policy-{uuid.uuid4().hex[:8]}"
    rendered = chart.render({**values, "watchNamespaces": list(namespaces)}, release=release)
    objects = as_list(only_policy(rendered))
    done = server.run("apply", "--server-side", "-f", "-", text=objects)
    assert (done.returncode, done.stderr) == (0, "")
    bad = document({"endpoint": "https://denied.example"}, namespace=namespaces[0])

    def is_in_force() -> bool:
        """The policy is watched by the apiserver, which applies it a moment after it was written."""
        return "denied.example is not allowed" in answers(server, {"bad": bad})["bad"]

    try:
        wait_until(is_in_force, "the policy to be in force", guard_s=GUARD_S)
        yield
    finally:
        server.run("delete", "-f", "-", text=objects)


def test_what_the_policy_denies_and_allows(chart: Chart, server: Apiserver) -> None:
    """In one test, since each installation of the policy takes the apiserver a moment."""
    server.must("create", "namespace", TEAM)
    others = make_namespace(server)
    cases = ((DENIED, ALLOWED, others), (DENIED_IN_TEAM, ALLOWED_IN_TEAM, TEAM))
    with installed(chart, server, VALUES, others, TEAM):
        for denied, allowed, namespace in cases:
            groups = {name: requested(spec, namespace) for name, (spec, _) in denied.items()}
            for name, said in answers(server, groups).items():
                part = denied[name][1].format(namespace=namespace)
                assert part in said, f"{name}: {said}"
                assert "ask the administrator to allow it in policy.namespaces" in said, name
            groups = {name: requested(spec, namespace) for name, spec in allowed.items()}
            assert answers(server, groups) == dict.fromkeys(allowed, "")


def test_an_update_is_denied_and_what_the_operator_writes_is_not(
    chart: Chart, server: Apiserver, tmp_path: Path
) -> None:
    """Also for an object that is older than the policy: it runs, scales, and can be deleted."""

    async def story(on: Stage) -> None:
        def patch(value: Document) -> str:
            arguments = ("patch", "lhcg", "access", "-n", on.namespace, "--type=merge", "-p")
            return server.run(*arguments, json.dumps(value)).stderr

        await on.apply({"deletionPolicy": "Delete", **template(hostPID=True)})
        with installed(chart, server, VALUES, on.namespace):
            on.start_operator()
            await on.until_phase("Running", "1/1")
            assert "must not set hostPID" in await asyncio.to_thread(patch, {"spec": {"suspend": True}})
            assert await asyncio.to_thread(patch, {"metadata": {"labels": {"team": "a"}}}) == ""
            scale = ("scale", "lhcg", "access", "-n", on.namespace, "--replicas=2")
            await asyncio.to_thread(server.must, *scale)
            await on.until_phase("Running", "2/2")
            await on.remove()
            await on.until_deleted()

    stage(server, tmp_path, story, operator=False)


def test_no_pod_template_at_all(chart: Chart, server: Apiserver) -> None:
    namespace = make_namespace(server)
    groups = {
        "template": document(template(nodeSelector={"a": "b"}), namespace=namespace),
        "none": document(namespace=namespace),
    }
    values: Values = {"policy": {"enabled": True, "default": {"allowPodTemplate": False}}}
    with installed(chart, server, values, namespace):
        said = answers(server, groups)
    assert f"spec.worker.podTemplate is not allowed in namespace {namespace}" in said["template"]
    assert said["none"] == ""


def test_the_policy_is_not_installed_by_default(chart: Chart) -> None:
    assert not kinds(chart.render()) & POLICY


def test_only_watched_namespaces_are_restricted(chart: Chart) -> None:
    objects = chart.render({**VALUES, "watchNamespaces": ["a", TEAM]})
    selector = only(objects, "ValidatingAdmissionPolicyBinding")["spec"]["matchResources"]
    (expression,) = selector["namespaceSelector"]["matchExpressions"]
    assert (expression["operator"], expression["values"]) == ("In", ["a", TEAM])
    (binding,) = (one for one in chart.render(VALUES) if one["kind"].endswith("PolicyBinding"))
    assert "matchResources" not in binding["spec"]


def test_a_policy_that_only_warns(chart: Chart) -> None:
    objects = chart.render({"policy": {"enabled": True, "validationActions": ["Warn", "Audit"]}})
    assert only(objects, "ValidatingAdmissionPolicyBinding")["spec"]["validationActions"] == ["Warn", "Audit"]


@pytest.mark.parametrize(
    ("values", "place"),
    [
        ({"default": {"endpoints": ["https://a b"]}}, "endpoints/0"),
        ({"default": {"images": ["(x)+"]}}, "images/0"),
        ({"default": {"hostPID": True}}, "hostPID"),
        ({"namespaces": {"a": {"podField": []}}}, "podField"),
        ({"namespaces": {"A B": {}}}, "A B"),
        ({"validationActions": ["Deny", "Warn"]}, "validationActions"),
        ({"validationActions": []}, "validationActions"),
    ],
)
def test_invalid_settings_are_rejected(chart: Chart, values: Values, place: str) -> None:
    with pytest.raises(RefusedError, match=place.replace("/", "[./]")):
        chart.render({"policy": {"enabled": True, **values}})
