"""`docs/migration.md`: every option and call of Kafka's own consumer has a row, as its jar has them."""

import re
import struct
import zipfile
from collections.abc import Iterator
from dataclasses import dataclass, field

import pytest

from tests import kafka
from tests.cluster import require
from tests.house.test_migration import CODE, rows

pytestmark = pytest.mark.tools

PACKAGE = "org/apache/kafka/clients/consumer"
OPTION = re.compile(r"[a-z]+(\.[a-z]+)+\Z")
# Sizes of the entries of a constant pool, by their tags (Java Virtual Machine Specification 4.4).
SIZES = {
    3: 5,
    4: 5,
    5: 9,
    6: 9,
    7: 3,
    8: 3,
    9: 5,
    10: 5,
    11: 5,
    12: 5,
    15: 4,
    16: 3,
    17: 5,
    18: 5,
    19: 3,
    20: 3,
}
TEXT, LONG, DOUBLE, STRING = 1, 5, 6, 8


@dataclass
class JavaClass:
    """What a class file says: the texts of its string constants, and the names of its methods."""

    data: bytes
    at: int = 8
    texts: dict[int, str] = field(default_factory=dict)
    strings: list[int] = field(default_factory=list)

    def number(self, size: int = 2) -> int:
        self.at += size
        return int.from_bytes(self.data[self.at - size : self.at], "big")

    def skip(self, size: int) -> None:
        self.at += size

    def read_constants(self) -> set[str]:
        count, index = self.number(), 1
        while index < count:
            tag = self.data[self.at]
            if tag == TEXT:
                (length,) = struct.unpack_from(">H", self.data, self.at + 1)
                self.texts[index] = self.data[self.at + 3 : self.at + 3 + length].decode()
                self.at += 3 + length
            else:
                if tag == STRING:
                    self.strings.append(struct.unpack_from(">H", self.data, self.at + 1)[0])
                self.at += SIZES[tag]
            index += 2 if tag in (LONG, DOUBLE) else 1
        return {self.texts[string] for string in self.strings}

    def method_names(self) -> Iterator[str]:
        """After the constants."""
        self.skip(6)  # access flags, the class and its parent
        self.skip(2 * self.number())  # interfaces
        for are_methods in (False, True):  # fields come first
            for _ in range(self.number()):
                _, name, _, attributes = (self.number() for _ in range(4))
                for _ in range(attributes):
                    self.skip(2)
                    self.skip(self.number(4))
                if are_methods:
                    yield self.texts[name]


def java_class(name: str) -> JavaClass:
    if reason := kafka.missing():
        require.absent(reason)
    (jar,) = kafka.folder().glob("kafka-clients-*.jar")
    with zipfile.ZipFile(jar) as content:
        return JavaClass(content.read(f"{PACKAGE}/{name}.class"))


def names(section: str) -> set[str]:
    return {name.partition("(")[0] for row in rows(section) for name in CODE.findall(row[0])}


def test_every_option_of_kafkas_consumer_has_a_row() -> None:
    options = {text for text in java_class("ConsumerConfig").read_constants() if OPTION.match(text)}
    assert len(options) > 40
    assert options <= names("Kafka: options")


def test_every_call_of_kafkas_consumer_has_a_row() -> None:
    consumer = java_class("Consumer")
    consumer.read_constants()
    calls = set(consumer.method_names())
    assert {"poll", "wakeup"} < calls
    assert calls <= names("Kafka: calls")
