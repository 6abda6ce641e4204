"""The versions of an object that ``kubectl get -w -o json`` prints, one JSON document after the other."""

import json
from collections.abc import Iterator

from tests.loghub_operator.support.examples import Document


def documents(text: str) -> Iterator[Document]:
    """Each one; a last one that is cut off is left out."""
    decoder, rest = json.JSONDecoder(), text.lstrip()
    while rest:
        try:
            value, end = decoder.raw_decode(rest)
        except ValueError:
            return
        yield value
        rest = rest[end:].lstrip()
