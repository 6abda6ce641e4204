"""The service without its native part."""

import pytest

from loghub.wire import native


def without_native_part(patch: pytest.MonkeyPatch) -> None:
    """Leave everything to Python, as where the wheel is not installed."""
    for name, value in vars(native).items():
        if str(getattr(value, "__module__", "")).startswith("loghub_native"):
            patch.setattr(native, name, native.left_to_python)
    patch.setattr(native, "is_installed", False)
    assert native.acked_entries is native.left_to_python
