"""What a fuzzer runs: one decoder, with the errors that it may raise."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

CORPUS = Path(__file__).parent / "corpus"


@dataclass(frozen=True)
class Target:
    """One decoder of untrusted bytes.

    Attributes:
        name: of its folder in the corpus.
        run: gets any bytes; every error that it lets through is a finding.
        seeds: good inputs, from which a fuzzer starts.
    """

    name: str
    run: Callable[[bytes], None]
    seeds: Callable[[], Sequence[bytes]]

    def corpus(self) -> list[bytes]:
        """Return the inputs that are kept, in the order of their names."""
        return [path.read_bytes() for path in sorted((CORPUS / self.name).iterdir())]


def text_of(data: bytes) -> str:
    """Return any text for any bytes: gRPC hands over text that is UTF-8."""
    return data.decode("utf-8", "replace")
