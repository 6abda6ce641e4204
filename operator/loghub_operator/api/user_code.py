"""Where the Python code of a pipeline comes from: ``configMap`` and ``volumeClaim``."""

from typing import Annotated, ClassVar

from pydantic import Field

from loghub_operator.api import patterns
from loghub_operator.api.fields import ObjectName, RelativePath
from loghub_operator.api.validation import ApiModel, Rule

EntryName = Annotated[str, Field(min_length=3, max_length=256, pattern=patterns.FUNCTION)]


class ConfigMapCode(ApiModel):
    """Python files from a ConfigMap in this namespace, one file per key. A change restarts the workers."""

    name: ObjectName = Field(description="Name of the ConfigMap.")


class VolumeCode(ApiModel):
    """Python files from a folder of a PersistentVolumeClaim in this namespace, mounted read-only."""

    name: ObjectName = Field(description="Name of the PersistentVolumeClaim.")
    path: RelativePath | None = Field(
        default=None, description="Folder inside the volume. Default: its root."
    )


class UserCode(ApiModel):
    """What is named as module:name, in a ConfigMap, on a volume or in the worker's image."""

    RULES: ClassVar[tuple[Rule, ...]] = (
        Rule(
            cel="!(has(self.configMap) && has(self.volumeClaim))",
            message=(
                "configMap and volumeClaim must not both be set; with neither, the code is in the worker's"
                " image"
            ),
            holds=lambda self: self.config_map is None or self.volume_claim is None,
        ),
    )

    config_map: ConfigMapCode | None = None
    volume_claim: VolumeCode | None = None

    @property
    def entry(self) -> str:
        """What is called, as module:name."""
        raise NotImplementedError

    @property
    def module_file(self) -> str:
        """The key of the ConfigMap with the module."""
        return f"{self.entry.partition(':')[0]}.py"
