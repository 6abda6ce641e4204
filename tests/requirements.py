"""Which packages an extra of ours installs, as the metadata of the installed packages says."""

from importlib.metadata import Distribution, distribution

from packaging.requirements import Requirement


def packages(
    of: Distribution, extra: str, found: dict[str, Distribution] | None = None
) -> dict[str, Distribution]:
    """The packages that a distribution requires with an extra, at any depth."""
    known = {} if found is None else found
    for text in of.requires or ():
        needed = Requirement(text)
        if needed.marker is not None and not needed.marker.evaluate({"extra": extra}):
            continue
        name = needed.name.lower().replace("_", "-")
        if name not in known:
            known[name] = distribution(name)
            for inner in ("", *needed.extras):
                packages(known[name], inner, known)
    return known
