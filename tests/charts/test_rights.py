"""The operator's permissions, checked by the real apiserver: cluster-wide, and for some namespaces only."""

from typing import Any

import pytest

from tests.charts.chart import Chart, Object, Values, as_list, kinds
from tests.charts.toggles import TOGGLES
from tests.loghub_operator.support.apiserver import Apiserver

HOME, WATCHED, OTHER, PROJECTS = "rights-home", "rights-watched", "rights-other", "rights-projects"
RBAC = ("Role", "RoleBinding", "ClusterRole", "ClusterRoleBinding", "ServiceAccount")
MODES: dict[str, Values] = {
    "everywhere": {"embeddedEndpoint": f"http://{PROJECTS}.svc"},
    "watched": {"embeddedEndpoint": f"http://{PROJECTS}.svc", "watchNamespaces": [WATCHED]},
    "named": {"watchNamespaces": [WATCHED], "rbac": {"secretNames": ["loghub-credentials"]}},
    "everywhere-named": {"rbac": {"secretNames": ["loghub-credentials"]}},
    "pods-everywhere": {"sparkOnKubernetes": {"enabled": True}},
    "pods-watched": {"sparkOnKubernetes": {"enabled": True}, "watchNamespaces": [WATCHED]},
}
# (verb, what, namespace; "" is all namespaces) -> the modes in which it is allowed.
ALL = set(MODES)
CLUSTER = {"everywhere", "everywhere-named", "pods-everywhere"}
PODS = {"pods-everywhere", "pods-watched"}
ROWS: dict[tuple[str, str, str], set[str]] = {
    ("get", "secrets/loghub-credentials", WATCHED): ALL,
    ("get", "secrets/another", WATCHED): {"everywhere", "watched"} | PODS,
    ("get", "secrets/loghub-credentials", OTHER): CLUSTER,
    ("get", "secrets/loghub-credentials", HOME): CLUSTER,
    ("list", "secrets", WATCHED): set(),
    ("get", "secrets/another", OTHER): {"everywhere", "pods-everywhere"},
    ("list", "secrets", OTHER): set(),
    ("list", "secrets", ""): set(),
    ("watch", "secrets", WATCHED): set(),
    ("watch", "secrets", ""): set(),
    ("create", "secrets", WATCHED): set(),
    ("patch", "secrets/loghub-credentials", WATCHED): set(),
    ("delete", "secrets/loghub-credentials", WATCHED): set(),
    ("watch", "loghubconsumergroups.loghub.dev", WATCHED): ALL,
    ("watch", "loghubconsumergroups.loghub.dev", OTHER): CLUSTER,
    ("watch", "loghubconsumergroups.loghub.dev", ""): CLUSTER,
    ("patch", "loghubconsumergroups.loghub.dev/access", WATCHED): ALL,
    ("patch", "loghubconsumergroups.loghub.dev/access:status", WATCHED): ALL,
    ("patch", "loghubconsumergroups.loghub.dev/access:status", OTHER): CLUSTER,
    ("create", "loghubconsumergroups.loghub.dev", WATCHED): set(),
    ("delete", "loghubconsumergroups.loghub.dev/access", WATCHED): set(),
    ("create", "statefulsets.apps", WATCHED): ALL,
    ("create", "statefulsets.apps", OTHER): CLUSTER,
    ("patch", "pods/access-0", WATCHED): ALL,
    ("delete", "pods/access-0", WATCHED): ALL,
    ("delete", "pods/access-0", OTHER): CLUSTER,
    ("list", "pods", HOME): ALL,  # its own, for the label of the one who acts
    ("delete", "pods/another", HOME): CLUSTER,
    ("watch", "pods", WATCHED): ALL,
    ("watch", "pods", OTHER): CLUSTER,
    ("watch", "pods", HOME): CLUSTER,
    ("get", "pods/access-0", WATCHED): set(),
    ("watch", "configmaps", WATCHED): set(),
    ("create", "pods", WATCHED): set(),
    ("get", "services/demo", PROJECTS): CLUSTER | {"watched"},
    ("create", "services", PROJECTS): CLUSTER | {"watched"},
    ("patch", "services/demo", PROJECTS): CLUSTER | {"watched"},
    ("list", "services", PROJECTS): CLUSTER | {"watched"},
    ("delete", "services/demo", PROJECTS): CLUSTER | {"watched"},
    ("watch", "services", PROJECTS): set(),
    # Without a set endpoint no permission is granted for it.
    ("create", "services", "loghub"): CLUSTER,
    ("create", "leases.coordination.k8s.io", HOME): ALL,
    ("patch", "leases.coordination.k8s.io/{release}", HOME): ALL,
    ("patch", "leases.coordination.k8s.io/another", HOME): set(),
    # The claim by which operators know each other; RBAC cannot restrict a creation to a name.
    ("create", "leases.coordination.k8s.io", WATCHED): ALL,
    ("create", "leases.coordination.k8s.io", OTHER): CLUSTER,
    ("get", "leases.coordination.k8s.io/loghub-consumer-groups", WATCHED): ALL,
    ("patch", "leases.coordination.k8s.io/loghub-consumer-groups", WATCHED): ALL,
    ("patch", "leases.coordination.k8s.io/loghub-consumer-groups", OTHER): CLUSTER,
    ("patch", "leases.coordination.k8s.io/another", WATCHED): set(),
    ("delete", "leases.coordination.k8s.io/loghub-consumer-groups", WATCHED): set(),
    ("create", "clusterroles.rbac.authorization.k8s.io", ""): set(),
    ("create", "rolebindings.rbac.authorization.k8s.io", WATCHED): PODS,
    ("create", "rolebindings.rbac.authorization.k8s.io", OTHER): {"pods-everywhere"},
    ("delete", "rolebindings.rbac.authorization.k8s.io/access-workers", WATCHED): set(),
    ("list", "rolebindings.rbac.authorization.k8s.io", WATCHED): set(),
    ("bind", "clusterroles.rbac.authorization.k8s.io/{release}-executors", ""): {"pods-everywhere"},
    ("bind", "roles.rbac.authorization.k8s.io/{release}-executors", WATCHED): {"pods-watched"},
    ("bind", "roles.rbac.authorization.k8s.io/{release}-executors", OTHER): set(),
    ("bind", "clusterroles.rbac.authorization.k8s.io/cluster-admin", ""): set(),
    ("get", "nodes/any", ""): set(),
    ("impersonate", "serviceaccounts/default", WATCHED): set(),
    ("*", "*", WATCHED): set(),
}


def release(mode: str) -> str:
    return f"rights-{mode}-loghub-operator"


def objects_of(chart: Chart, mode: str) -> list[Object]:
    rendered = chart.render(MODES[mode], release=release(mode), namespace=HOME)
    return [one for one in rendered if one["kind"] in RBAC]


@pytest.fixture(scope="module")
def granted(server: Apiserver, chart: Chart) -> Apiserver:
    """The rights of all modes, each for the account of its own release."""
    spaces: list[Object] = [
        {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}}
        for name in (HOME, WATCHED, OTHER, PROJECTS, "loghub")
    ]
    objects = [one for mode in MODES for one in objects_of(chart, mode)]
    done = server.run("apply", "--server-side", "-f", "-", text=as_list([*spaces, *objects]))
    assert done.returncode == 0, done.stderr
    return server


def account(mode: str) -> str:
    return f"system:serviceaccount:{HOME}:{release(mode)}"


def question(user: str, row: tuple[str, str, str]) -> Object:
    """The question of `kubectl auth can-i` about ``resource.group/name:subresource``."""
    verb, what, namespace = row
    resource, _, name = what.partition("/")
    plural, _, group = resource.partition(".")
    name, _, below = name.partition(":")
    metadata = {"verb": verb, "group": group, "resource": plural, "name": name, "namespace": namespace}
    spec = {"user": user, "resourceAttributes": {**metadata, "subresource": below}}
    return {"apiVersion": "authorization.k8s.io/v1", "kind": "SubjectAccessReview", "spec": spec}


def allowed_of(server: Apiserver, questions: list[Object]) -> list[bool]:
    """The apiserver's answers, from one call."""
    template = 'jsonpath={.status.allowed}{"\\n"}'
    said = server.run("create", "-f", "-", "-o", template, text=as_list(questions)).stdout.split()
    return [one == "true" for one in said]


@pytest.fixture(scope="module")
def answers(granted: Apiserver) -> dict[tuple[str, str, str], set[str]]:
    """The modes in which the apiserver allows each row."""
    cases = [(mode, row) for row in ROWS for mode in MODES]
    questions = [
        question(account(mode), (verb, what.format(release=release(mode)), namespace))
        for mode, (verb, what, namespace) in cases
    ]
    result: dict[tuple[str, str, str], set[str]] = {row: set() for row in ROWS}
    for (mode, row), allowed in zip(cases, allowed_of(granted, questions), strict=True):
        result[row] |= {mode} if allowed else set()
    return result


@pytest.mark.parametrize("row", ROWS, ids=" ".join)
def test_the_operator_has_the_permission(
    answers: dict[tuple[str, str, str], set[str]], row: tuple[str, str, str]
) -> None:
    assert answers[row] == ROWS[row]


@pytest.mark.parametrize(
    ("arguments", "allowed"),
    [
        (("get", "secret/loghub-credentials", "-n", WATCHED), "yes"),
        (("get", "secret/loghub-credentials", "-n", OTHER), "no"),
        (("list", "secrets", "-n", WATCHED), "no"),
        (("watch", "lhcg", "--all-namespaces"), "no"),
    ],
)
def test_kubectl_agrees(granted: Apiserver, arguments: tuple[str, ...], allowed: str) -> None:
    assert granted.run("auth", "can-i", *arguments, f"--as={account('watched')}").stdout.strip() == allowed


@pytest.mark.parametrize("toggles", [name for name, values in TOGGLES.items() if "watchNamespaces" in values])
def test_a_namespaced_installation_has_no_cluster_role(chart: Chart, toggles: str) -> None:
    objects = chart.render(TOGGLES[toggles])
    assert not kinds(objects) & {"ClusterRole", "ClusterRoleBinding"}
    rights = [one for one in objects if one["kind"] == "Role"]
    spaces = {one["metadata"]["namespace"] for one in rights if _reads_secrets(one)}
    assert spaces == set(TOGGLES[toggles]["watchNamespaces"])


@pytest.mark.parametrize("toggles", TOGGLES)
def test_secrets_can_only_be_read_by_name(chart: Chart, toggles: str) -> None:
    roles = [one for one in chart.render(TOGGLES[toggles]) if one["kind"] in ("Role", "ClusterRole")]
    rules = [rule for one in roles for rule in one["rules"] if _names(rule, "secrets")]
    assert all(rule["verbs"] == ["get"] for rule in rules)
    names: list[str] = TOGGLES[toggles].get("rbac", {}).get("secretNames", [])
    assert all(rule.get("resourceNames", []) == names for rule in rules)


@pytest.mark.parametrize("toggles", TOGGLES)
def test_no_rule_has_a_wildcard(chart: Chart, toggles: str) -> None:
    roles = [one for one in chart.render(TOGGLES[toggles]) if one["kind"] in ("Role", "ClusterRole")]
    for rule in (rule for one in roles for rule in one["rules"]):
        assert "*" not in [*rule["apiGroups"], *rule["resources"], *rule["verbs"]]


def _reads_secrets(role: Object) -> bool:
    return any(_names(rule, "secrets") for rule in role["rules"])


def _names(rule: dict[str, Any], resource: str) -> bool:
    return resource in rule["resources"]
