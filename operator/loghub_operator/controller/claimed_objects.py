"""The objects that this operator may manage, of those that it watches."""

from loghub_operator.clients.kube import Document, Kind, Kube
from loghub_operator.leader.namespace_claims import NamespaceClaims


class ManagedElsewhere(Exception):  # noqa: N818 - no error: it is another operator's
    """Another operator manages the object."""

    def __init__(self, operator: str, document: Document) -> None:
        super().__init__(f"it is managed by {operator}")
        self.operator = operator
        self.document = document


class ClaimedObjects:
    """Reads objects; the claim of their namespace is made or renewed by that."""

    def __init__(self, kube: Kube, claims: NamespaceClaims) -> None:
        self._kube = kube
        self._claims = claims

    async def get(self, kind: Kind, namespace: str, name: str) -> Document | None:
        """None: it does not exist. Raises `KubeError` and `ManagedElsewhere`."""
        document = await self._kube.get(kind, namespace, name)
        if document is not None and (operator := await self._claims.other(namespace)):
            raise ManagedElsewhere(operator, document)
        return document
