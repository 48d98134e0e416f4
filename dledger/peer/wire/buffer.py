"""Receive buffer of one peer connection: gets the received bytes, returns all complete frames.

Not here: what the frames mean (`dledger.peer.wire.frames`).

Invariants: the buffer holds at most one frame that is not complete; it grows only to the size that this frame's head
announces, and never beyond the connection's limit; it shrinks again after a large frame. The frame that a head
announces is awaited only if the checksum of head and control part is correct: otherwise a flipped bit in a size would
make the next bytes, up to 16 MiB, part of that frame, and no message would be delivered until then.
"""

from __future__ import annotations

from dledger.peer.wire.frames import (
    CONTROL_SIZE_BYTES_MAX,
    FRAME_HEAD,
    FRAME_SIZE_BYTES_MAX,
    HELLO_FRAME_SIZE_BYTES_MAX,
    BadFrame,
    check_control,
)

# The usual size of one read; a few hundred small frames.
_USUAL_SIZE_BYTES = 256 * 1024
# A larger buffer is freed as soon as it is empty.
_KEPT_SIZE_BYTES_MAX = 2 * 1024 * 1024

Frame = tuple[bytes, bytes]


class FrameBuffer:
    """A growing, bounded buffer for received bytes, which is split into frames; the payload is copied once.

    Until `accept_messages` is called, only frames up to the size of a Hello are accepted.
    """

    __slots__ = ("_begin", "_end", "_frame_size_bytes_max", "_is_checked", "_is_greeted", "_view")

    def __init__(self) -> None:
        # Received and not yet returned: `_view[_begin:_end]`, always less than one frame after `received`. `_end` is
        # below the view's length, so that `free_part` is never empty: asyncio treats an empty buffer as an error.
        self._view = memoryview(bytearray(HELLO_FRAME_SIZE_BYTES_MAX))
        self._begin = 0
        self._end = 0
        self._frame_size_bytes_max = HELLO_FRAME_SIZE_BYTES_MAX
        self._is_greeted = False
        # The checksum of head and control part of the incomplete frame was verified; False when no frame is incomplete.
        self._is_checked = False

    def accept_messages(self, *, has_payloads: bool = True) -> None:
        """Accept messages from now on: the peer has identified itself.

        Args:
            has_payloads: the connection carries pushes and chunks of snapshots; other messages have no payload, and are
                small.
        """
        self._is_greeted = True
        if has_payloads:
            self._frame_size_bytes_max = FRAME_SIZE_BYTES_MAX

    @property
    def size_bytes(self) -> int:
        """Memory of the buffer."""
        return len(self._view)

    @property
    def is_large(self) -> bool:
        """Whether the buffer is larger than the size that every connection may have."""
        return len(self._view) > _USUAL_SIZE_BYTES

    def free_part(self) -> memoryview:
        """Return the free part of the buffer for the next read; never empty."""
        return self._view[self._end :]

    def received(self, size: int) -> list[Frame]:
        """Record that `size` bytes were read into `free_part()`; return the frames (control, payload) now complete.

        Raises:
            BadFrame: a frame's head is out of bounds, or was damaged in transit; close the connection.
        """
        self._end += size
        frames: list[Frame] = []
        wanted = self._split(frames)
        self._make_space(wanted)
        return frames

    def _split(self, frames: list[Frame]) -> int:
        """Move complete frames to `frames`; return the size of the incomplete frame that is left (0 = not known)."""
        view, begin, end = self._view, self._begin, self._end
        unpack_head, head_size, size_max = FRAME_HEAD.unpack_from, FRAME_HEAD.size, self._frame_size_bytes_max
        wanted = 0
        while end - begin >= head_size:
            total_size, control_size = unpack_head(view, begin)
            frame_size = total_size + 4
            if frame_size > size_max or control_size > CONTROL_SIZE_BYTES_MAX or control_size + 4 > total_size:
                raise BadFrame(
                    f"frame head out of bounds: expected at most {size_max} bytes with a control part of at most "
                    f"{CONTROL_SIZE_BYTES_MAX}, found {frame_size} with {control_size}"
                )
            payload_at = begin + head_size + control_size
            if end - begin < frame_size:
                wanted = frame_size
                # A Hello may come from an older version, without a checksum; a connection without a greeting ends soon.
                if not self._is_checked and payload_at <= end and self._is_greeted:
                    check_control(bytes(view[begin + head_size : payload_at]), begin + frame_size - payload_at)
                    self._is_checked = True
                break
            self._is_checked = False
            frames.append((bytes(view[begin + head_size : payload_at]), bytes(view[payload_at : begin + frame_size])))
            begin += frame_size
        self._begin = begin
        return wanted

    def _make_space(self, wanted: int) -> None:
        """Make space for the rest of the incomplete frame: move it to the front, or into a larger buffer."""
        begin, end, capacity = self._begin, self._end, len(self._view)
        left = end - begin
        if left == 0:
            self._begin = self._end = 0
            usual = _USUAL_SIZE_BYTES if self._is_greeted else capacity
            if capacity > _KEPT_SIZE_BYTES_MAX or capacity < usual:
                self._view = memoryview(bytearray(usual))
            return
        wanted = max(wanted, FRAME_HEAD.size)
        if begin + wanted <= capacity and end < capacity:
            return
        target = self._view if wanted <= capacity else memoryview(bytearray(max(wanted, _USUAL_SIZE_BYTES)))
        target[:left] = self._view[begin:end]
        self._view, self._begin, self._end = target, 0, left
