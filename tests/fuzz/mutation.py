"""Changes of inputs without a fuzzer: for the short runs of the default gate, which have a fixed seed."""

from collections.abc import Iterator, Sequence
from random import Random

SIZE_MAX = 4096
_LENGTHS = (0, 1, 2, 4, 8)
_VALUES = (0, 1, 0x7F, 0x80, 0xFF, 0x7FFF, 0xFFFF, 0x7FFFFFFF, 0xFFFFFFFF, (1 << 63) - 1, (1 << 64) - 1)


def changed_inputs(inputs: Sequence[bytes], random: Random, count: int) -> Iterator[bytes]:
    """Yield `count` inputs, each a changed one of `inputs`."""
    for _ in range(count):
        data = bytearray(random.choice(inputs))
        for _ in range(random.randint(1, 4)):
            random.choice(_CHANGES)(data, inputs, random)
        yield bytes(data[:SIZE_MAX])


def _flip_bit(data: bytearray, _: Sequence[bytes], random: Random) -> None:
    if data:
        data[random.randrange(len(data))] ^= 1 << random.randrange(8)


def _put_number(data: bytearray, _: Sequence[bytes], random: Random) -> None:
    size = random.choice(_LENGTHS[1:])
    position = random.randint(0, len(data))
    value = random.choice(_VALUES) & ((1 << 8 * size) - 1)
    data[position : position + size] = value.to_bytes(size, random.choice(("big", "little")))


def _cut(data: bytearray, _: Sequence[bytes], random: Random) -> None:
    position = random.randint(0, len(data))
    del data[position : position + random.choice(_LENGTHS) * random.randint(0, 9)]


def _repeat(data: bytearray, _: Sequence[bytes], random: Random) -> None:
    begin, end = sorted((random.randint(0, len(data)), random.randint(0, len(data))))
    data[begin:begin] = data[begin:end] * random.randint(1, 3)


def _splice(data: bytearray, inputs: Sequence[bytes], random: Random) -> None:
    other = random.choice(inputs)
    data[random.randint(0, len(data)) :] = other[random.randint(0, len(other)) :]


_CHANGES = (_flip_bit, _flip_bit, _put_number, _cut, _repeat, _splice)
