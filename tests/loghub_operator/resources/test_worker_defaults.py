"""What the administrator sets for the workers of every group, between the operator's own and the object's."""

from typing import Any

import pytest

from loghub_operator.resources.services import project_service
from loghub_operator.resources.statefulset import worker_spec
from loghub_operator.resources.worker_config import worker_config
from loghub_operator.settings import Settings, WorkerDefaults
from tests.loghub_operator.resources.test_builders import PLACEMENT
from tests.loghub_operator.support.examples import Document, resource

CA = {"name": "ca", "configMap": {"name": "company-ca"}}
PLATFORM: Document = {
    "metadata": {"labels": {"team": "platform"}, "annotations": {"note": "x"}},
    "spec": {
        "imagePullSecrets": [{"name": "registry"}],
        "nodeSelector": {"pool": "logs"},
        "tolerations": [{"key": "logs", "operator": "Exists"}],
        "containers": [
            {
                "name": "worker",
                "env": [
                    {"name": "HTTPS_PROXY", "value": "http://proxy:3128"},
                    {"name": "SSL_CERT_FILE", "value": "/etc/company/ca.crt"},
                    {"name": "LOGHUB_STATE_DIR", "value": "/elsewhere"},
                ],
                "volumeMounts": [{"name": "ca", "mountPath": "/etc/company"}],
            }
        ],
        "volumes": [CA],
    },
}


def spec_of(spec: Document | None = None, **defaults: Any) -> Any:
    group = resource(spec)
    config = worker_config(group, PLACEMENT)
    return worker_spec(group, config, image="i", defaults=WorkerDefaults(**defaults))


def pod(spec: Document | None = None, template: Document = PLATFORM) -> Document:
    result: Document = spec_of(spec, pod_template=template).stateful_set["spec"]["template"]
    return result


def variables(template: Document) -> dict[str, str]:
    (container,) = template["spec"]["containers"]
    names = [one["name"] for one in container["env"]]
    assert len(names) == len(set(names))
    return {one["name"]: one.get("value", "") for one in container["env"]}


def test_the_platforms_template_is_merged_over_the_operators() -> None:
    result = pod()
    assert result["metadata"]["labels"]["team"] == "platform"
    assert result["metadata"]["labels"]["app.kubernetes.io/name"] == "loghub-worker"
    spec = result["spec"]
    assert spec["imagePullSecrets"] == [{"name": "registry"}]
    assert spec["nodeSelector"] == {"pool": "logs"}
    assert spec["tolerations"] == [{"key": "logs", "operator": "Exists"}]
    assert variables(result)["HTTPS_PROXY"] == "http://proxy:3128"
    assert CA in spec["volumes"]
    assert {"name": "ca", "mountPath": "/etc/company"} in spec["containers"][0]["volumeMounts"]


def test_what_the_worker_needs_cannot_be_overridden_by_it() -> None:
    assert variables(pod())["LOGHUB_STATE_DIR"] == "/var/lib/loghub/state"


def test_the_objects_own_settings_win() -> None:
    own = {
        "worker": {
            "env": [{"name": "HTTPS_PROXY", "value": "http://own:1"}],
            "podTemplate": {
                "spec": {
                    "nodeSelector": {"pool": "own", "disk": "ssd"},
                    "containers": [{"name": "worker", "env": [{"name": "SSL_CERT_FILE", "value": "/own"}]}],
                }
            },
        }
    }
    result = pod(own)
    assert result["spec"]["nodeSelector"] == {"pool": "own", "disk": "ssd"}
    assert variables(result)["HTTPS_PROXY"] == "http://own:1"
    assert variables(result)["SSL_CERT_FILE"] == "/own"


def test_a_security_context_is_replaced_for_platforms_that_assign_the_user() -> None:
    given = {"runAsNonRoot": True, "seccompProfile": {"type": "RuntimeDefault"}}
    result = pod(template={"spec": {"securityContext": {"$patch": "replace", **given}}})
    assert result["spec"]["securityContext"] == given


def test_defaults_that_are_not_set_change_no_revision() -> None:
    group = resource()
    assert spec_of() == worker_spec(group, worker_config(group, PLACEMENT), image="i")


def test_services_get_the_ip_family_policy_only_if_it_is_set() -> None:
    for policy in ("", "PreferDualStack"):
        (governing,) = [
            one for one in spec_of(ip_family_policy=policy).dependencies if one["kind"] == "Service"
        ]
        of_project = project_service("demo", "loghub", ip_family_policy=policy)
        for service in (governing, of_project):
            assert service["spec"].get("ipFamilyPolicy", "") == policy


def test_scratch_space_is_bounded_and_requested() -> None:
    spec = pod()["spec"]
    scratch = {one["name"]: one["emptyDir"] for one in spec["volumes"] if "emptyDir" in one}
    assert scratch == {"state": {"sizeLimit": "10Gi"}, "tmp": {"sizeLimit": "1Gi"}}
    assert spec["containers"][0]["resources"]["requests"]["ephemeral-storage"] == "1Gi"


def test_a_smaller_limit_of_scratch_space_is_the_request() -> None:
    limited = {"worker": {"resources": {"limits": {"ephemeral-storage": "100Mi"}}}}
    resources = pod(limited)["spec"]["containers"][0]["resources"]
    assert resources["requests"]["ephemeral-storage"] == "100Mi"


def test_the_settings_are_read_from_the_environment() -> None:
    settings = Settings.from_environment(
        {
            "LOGHUB_WORKER_POD_TEMPLATE": '{"spec": {"nodeSelector": {"a": "b"}}}',
            "LOGHUB_IP_FAMILY_POLICY": "PreferDualStack",
        }
    )
    assert settings.worker_defaults.pod_template == {"spec": {"nodeSelector": {"a": "b"}}}
    assert settings.worker_defaults.ip_family_policy == "PreferDualStack"
    assert Settings.from_environment({}).worker_defaults == WorkerDefaults()


@pytest.mark.parametrize("text", ["{", "[]", '{"replicas": 2}', '{"spec": []}'])
def test_what_is_not_a_pod_template_is_rejected_at_the_start(text: str) -> None:
    with pytest.raises(ValueError, match="LOGHUB_WORKER_POD_TEMPLATE"):
        Settings.from_environment({"LOGHUB_WORKER_POD_TEMPLATE": text})


@pytest.mark.parametrize(
    ("name", "value"), [("LOGHUB_IP_FAMILY_POLICY", "Dual"), ("LOGHUB_LOG_LEVEL", "loud")]
)
def test_a_value_that_is_none_of_the_possible_ones_is_rejected(name: str, value: str) -> None:
    with pytest.raises(ValueError, match=f"{name} is {value}, and must be one of"):
        Settings.from_environment({name: value})


def test_the_log_level() -> None:
    assert Settings.from_environment({}).log_level == "info"
    assert Settings.from_environment({"LOGHUB_LOG_LEVEL": "debug"}).log_level == "debug"
