"""What a cluster's network gives: addresses of the chosen family, and names of projects."""

from ipaddress import ip_address

from tests.cluster import ip_family
from tests.cluster.kubectl import Kubectl
from tests.cluster.stack import SERVICE_NAMESPACE


def every_address_is_of_the_chosen_family(kubectl: Kubectl) -> None:
    pods = [one["ip"] for pod in kubectl.list("pod") for one in pod["status"].get("podIPs", [])]
    services = [one for service in kubectl.list("service") for one in service["spec"]["clusterIPs"]]
    addresses = [one for one in (*pods, *services) if one != "None"]
    assert {ip_address(one).version for one in addresses} == {ip_family.chosen().version}


def the_project_has_a_name(kubectl: Kubectl, project: str, *, pod: str, namespace: str) -> None:
    """The pod resolves it to the Service that the operator has made."""
    service = kubectl.get("service", project, SERVICE_NAMESPACE)
    assert service is not None
    code = f"import socket; print(socket.getaddrinfo('{project}.{SERVICE_NAMESPACE}.svc', 80)[0][4][0])"
    said = kubectl.run("exec", pod, "-n", namespace, "--", "python", "-c", code)
    assert said.strip() == service["spec"]["clusterIP"]
