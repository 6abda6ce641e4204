"""The permissions of a user of one namespace by the chart's roles, in that namespace and in another one.

Checked by the real apiserver, whose authorizer answers for groups, their status, the metrics that an
autoscaler reads, and Secrets.
"""

import asyncio

import pytest

from loghub.clock import SystemClock
from loghub_operator.autoscaling.external_metrics import User
from loghub_operator.autoscaling.external_metrics_server import AccessReviewer
from loghub_operator.clients.kube import AioKube, KubeError, configured
from tests.charts.chart import Chart, Object, Values, as_list, only
from tests.charts.test_namespaced import kubeconfig_of
from tests.charts.test_rights import RBAC, allowed_of, question
from tests.loghub_operator.support.apiserver import Apiserver
from tests.loghub_operator.support.examples import document

HOME, OWN, OTHER = "users-home", "users-shop", "users-bank"
RELEASE = "users-loghub-operator"
METRICS: Values = {"externalMetrics": {"enabled": True}}
VIEWER, EDITOR, SCALER, NOBODY = "a-viewer", "an-editor", "a-scaler", "nobody"
USERS = (VIEWER, EDITOR, SCALER, NOBODY)
GROUPS, LAG = "loghubconsumergroups.loghub.dev", "loghub_lag_seconds.external.metrics.k8s.io"
READ, WRITE = {VIEWER, EDITOR}, {EDITOR}
# (verb, what, namespace; "" is all namespaces) -> who may.
ROWS: dict[tuple[str, str, str], set[str]] = {
    ("list", GROUPS, OWN): READ,
    ("watch", GROUPS, OWN): READ,
    ("get", f"{GROUPS}/access", OWN): READ,
    ("get", f"{GROUPS}/access:scale", OWN): READ,
    ("create", GROUPS, OWN): WRITE,
    ("patch", f"{GROUPS}/access", OWN): WRITE,
    ("delete", f"{GROUPS}/access", OWN): WRITE,
    ("update", f"{GROUPS}/access:scale", OWN): WRITE,
    # Only the operator writes what it reports.
    ("patch", f"{GROUPS}/access:status", OWN): set(),
    ("update", f"{GROUPS}/access:status", OWN): set(),
    ("list", LAG, OWN): {SCALER},
    # Not by our roles: Kubernetes' own say who reads these.
    ("get", "secrets/loghub-credentials", OWN): set(),
    ("list", "secrets", OWN): set(),
    ("list", GROUPS, OTHER): set(),
    ("list", GROUPS, ""): set(),
    ("watch", GROUPS, OTHER): set(),
    ("watch", GROUPS, ""): set(),
    ("get", f"{GROUPS}/access", OTHER): set(),
    ("get", f"{GROUPS}/access:status", OTHER): set(),
    ("get", f"{GROUPS}/access:scale", OTHER): set(),
    ("create", GROUPS, OTHER): set(),
    ("patch", f"{GROUPS}/access", OTHER): set(),
    ("update", f"{GROUPS}/access:scale", OTHER): set(),
    ("patch", f"{GROUPS}/access:status", OTHER): set(),
    ("delete", f"{GROUPS}/access", OTHER): set(),
    ("list", LAG, OTHER): set(),
    ("list", LAG, ""): set(),
    ("get", "secrets/loghub-credentials", OTHER): set(),
    ("list", "secrets", OTHER): set(),
    ("list", "secrets", ""): set(),
}


def binding(user: str, role: str, *, kind: str = "ClusterRole") -> Object:
    return {
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "RoleBinding",
        "metadata": {"name": user, "namespace": OWN},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": kind, "name": role},
        "subjects": [{"kind": "User", "apiGroup": "rbac.authorization.k8s.io", "name": user}],
    }


def lag_reader() -> Object:
    """As an autoscaler that a team runs in its own namespace."""
    rule = {"apiGroups": ["external.metrics.k8s.io"], "resources": ["*"], "verbs": ["get", "list"]}
    metadata = {"name": "lag-reader", "namespace": OWN}
    return {
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "Role",
        "metadata": metadata,
        "rules": [rule],
    }


@pytest.fixture(scope="module")
def granted(server: Apiserver, chart: Chart) -> Apiserver:
    spaces: list[Object] = [
        {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}} for name in (HOME, OWN, OTHER)
    ]
    roles = [one for one in chart.render(METRICS, release=RELEASE, namespace=HOME) if one["kind"] in RBAC]
    bound = [
        binding(VIEWER, f"{RELEASE}-view"),
        binding(EDITOR, f"{RELEASE}-edit"),
        lag_reader(),
        binding(SCALER, "lag-reader", kind="Role"),
    ]
    text = as_list([*spaces, *roles, *bound])
    done = server.run("apply", "--server-side", "-f", "-", text=text)
    assert done.returncode == 0, done.stderr
    for namespace in (OWN, OTHER):
        assert server.apply(document(namespace=namespace)) == ""
    return server


@pytest.fixture(scope="module")
def answers(granted: Apiserver) -> dict[tuple[str, str, str], set[str]]:
    """The users to whom the apiserver allows each row."""
    rows = [(user, row) for row in ROWS for user in USERS]
    result: dict[tuple[str, str, str], set[str]] = {row: set() for row in ROWS}
    said = allowed_of(granted, [question(user, row) for user, row in rows])
    for (user, row), allowed in zip(rows, said, strict=True):
        result[row] |= {user} if allowed else set()
    return result


@pytest.mark.parametrize("row", ROWS, ids=" ".join)
def test_a_user_has_the_permission(
    answers: dict[tuple[str, str, str], set[str]], row: tuple[str, str, str]
) -> None:
    assert answers[row] == ROWS[row]


def test_a_user_sees_the_groups_of_the_own_namespace_only(granted: Apiserver) -> None:
    observed = granted.run("get", "lhcg", "-n", OWN, "-o", "name", f"--as={VIEWER}")
    assert observed.stdout.split() == ["loghubconsumergroup.loghub.dev/access"]
    for where in (("-n", OTHER), ("--all-namespaces",)):
        refused = granted.run("get", "lhcg", *where, "-o", "name", f"--as={VIEWER}")
        assert refused.returncode != 0
        assert refused.stdout == ""
        assert f'User "{VIEWER}" cannot list resource "loghubconsumergroups"' in refused.stderr
    for arguments, allowed in ((("-n", OWN), "yes"), (("-n", OTHER), "no")):
        said = granted.run(
            "auth", "can-i", "update", "lhcg", "--subresource=scale", *arguments, f"--as={EDITOR}"
        )
        assert said.stdout.strip() == allowed


def test_the_roles_are_aggregated_into_the_default_ones(chart: Chart) -> None:
    """Its controller adds the rules of these to view, edit and admin, which teams have already."""
    into = "rbac.authorization.k8s.io/aggregate-to-"
    objects = chart.render(METRICS, release=RELEASE, namespace=HOME)
    for name, wanted in (("view", {"view"}), ("edit", {"edit", "admin"})):
        labels = only(objects, "ClusterRole", f"{RELEASE}-{name}")["metadata"]["labels"]
        assert {key.removeprefix(into) for key in labels if key.startswith(into)} == wanted


def test_the_apiserver_authorizes_readers_of_metrics(
    granted: Apiserver, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """With the rights that the chart gives the operator for it, and with them only."""
    config = kubeconfig_of(granted, HOME, tmp_path_factory.mktemp("rights"), account=RELEASE)

    async def ask() -> dict[tuple[str, str], bool]:
        async with AioKube(await configured(str(config))) as kube:
            reviewer = AccessReviewer(kube, SystemClock())
            return {
                (user, namespace): await reviewer.allows(
                    User(user), namespace=namespace, metric="loghub_lag_seconds"
                )
                for user in USERS
                for namespace in (OWN, OTHER)
            }

    assert {rows for rows, allowed in asyncio.run(ask()).items() if allowed} == {(SCALER, OWN)}


def test_without_external_metrics_the_operator_cannot_create_access_reviews(
    granted: Apiserver, chart: Chart, tmp_path_factory: pytest.TempPathFactory
) -> None:
    release = "plain-loghub-operator"
    roles = [one for one in chart.render(release=release, namespace=HOME) if one["kind"] in RBAC]
    done = granted.run("apply", "--server-side", "-f", "-", text=as_list(roles))
    assert done.returncode == 0, done.stderr
    config = kubeconfig_of(granted, HOME, tmp_path_factory.mktemp("plain"), account=release)

    async def ask() -> None:
        async with AioKube(await configured(str(config))) as kube:
            await AccessReviewer(kube, SystemClock()).allows(User(SCALER), namespace=OWN, metric="m")

    with pytest.raises(KubeError, match="cannot create resource"):
        asyncio.run(ask())
