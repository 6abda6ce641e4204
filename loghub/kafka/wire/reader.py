"""A position in the bytes of one frame, with the bounds that every field is checked against.

A length is compared with the bytes that are left before anything is allocated, so a frame cannot take
memory in proportion to a length that it only claims. The number of array elements in one frame is bounded
as well, since an element of two bytes becomes an object of a hundred.
"""

from loghub.kafka.wire.errors import MalformedFrame

Buffer = bytes | bytearray | memoryview

# A Metadata answer for 100,000 partitions has about half as many.
MAX_ELEMENTS = 1_000_000
# A request that creates 1,000 topics and assigns 10,000 partitions has 21,000. The event loop decodes it in
# some microseconds each, while everybody waits: a million took it three seconds.
MAX_REQUEST_ELEMENTS = 1 << 15


class Reader:
    """Reads one frame from its begin to its end. ``at`` is the index of the next byte."""

    __slots__ = ("at", "elements_left", "end", "max_elements", "view")

    def __init__(self, frame: Buffer, *, max_elements: int = MAX_ELEMENTS) -> None:
        self.view = memoryview(frame)
        self.at = 0
        self.end = len(self.view)
        self.max_elements = self.elements_left = max_elements

    def take(self, size: int) -> int:
        """Where the next ``size`` bytes begin; the position moves behind them. Raises MalformedFrame."""
        at = self.at
        if size < 0 or at + size > self.end:
            raise MalformedFrame(f"{size} bytes announced at byte {at}, and {self.end - at} are left")
        self.at = at + size
        return at

    def bytes_of(self, size: int) -> memoryview:
        """The next ``size`` bytes, not copied. Raises MalformedFrame."""
        at = self.take(size)
        return self.view[at : at + size]

    def enter_array(self, count: int, element_size: int) -> None:
        """Check the length of an array whose elements take at least ``element_size`` bytes each.

        Raises MalformedFrame if the bytes left cannot hold it, or the frame has too many elements.
        """
        if count < 0 or count * element_size > self.end - self.at:
            raise MalformedFrame(
                f"an array of {count} elements at byte {self.at} passes the end of the frame"
            )
        self.elements_left -= count
        if self.elements_left < 0:
            raise MalformedFrame(f"more than {self.max_elements} array elements in one frame")

    def finish(self) -> None:
        """Raises MalformedFrame if bytes are left: the peer has another layout in mind."""
        if self.at != self.end:
            raise MalformedFrame(f"{self.end - self.at} bytes follow the message")
