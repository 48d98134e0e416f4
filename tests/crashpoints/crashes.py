"""Passes every possible disk after a crash to a check; some crash again during the check.

Most operations change little of what a crash may leave: equal disks, of which the same is expected, are judged once.
"""

import os
from collections import Counter
from itertools import chain

from tests.crashpoints.images import TORN_IN_A_SECTOR, crash_images, killed

IS_LONG = os.environ.get("DLEDGER_CRASH_POINTS") == "long"


def nothing(_number):
    """Receive an operation and ignore it."""


class Crashes:
    """Counts what it shows.

    Args:
        second_crash_stride: one in this many images is also crashed before each operation of its check.
        stride: of this many images of an operation one is passed on.
        second_stride: the same for the images of a second crash.

    Attributes:
        counts: of operations, images and images of a second crash, and of those among them that were judged before.
        labels: of the image that is being judged; after a second crash, also of the first.
    """

    def __init__(self, second_crash_stride, *, stride=1, second_stride=1):
        self.counts = Counter()
        self.labels = []
        self._second_crash_stride = second_crash_stride
        self._stride = stride
        self._second_stride = second_stride
        # What is expected of the images that were judged last, and their keys.
        self._owed = None
        self._checked = set()

    def see(self, place, disk, check, *, is_end=False, owed=None):
        """Show what a crash may leave of a disk.

        Args:
            place: text about the place, for errors of the check.
            disk: as it is now; it stays so.
            check: called with (image, callback for each operation on it); opens the image, and raises if it is wrong.
            is_end: all images are shown, whatever the stride.
            owed: all that the check compares an image with; None: it is not known, and may be anything each time.
        """
        if owed is None or owed != self._owed:
            self._owed, self._checked = owed, set()
        self.counts["operations"] += 1
        images = chain(crash_images(disk, is_every_byte=IS_LONG), (killed(disk),))
        for image in self._sample(images, self.counts["operations"], 1 if is_end else self._stride):
            self.counts["images"] += 1
            is_crashed_again = self.counts["images"] % self._second_crash_stride == 0
            if not is_crashed_again and not self._is_new(image, self._checked):
                continue
            try:
                self._check(check, image, self._crash_again(image.disk, check) if is_crashed_again else nothing)
            except Exception as error:
                raise AssertionError(f"{place}: {image.label}: {type(error).__name__}: {error}") from error

    def give_up(self, damage):
        """Raise: on a disk that writes sectors atomically, a node keeps its vote through every crash."""
        if not any(TORN_IN_A_SECTOR in label for label in self.labels):
            raise damage.refusal()
        self.counts["votes given up"] += 1
        return TORN_IN_A_SECTOR

    def _check(self, check, image, before_operation):
        self.labels.append(image.label)
        check(image.disk, before_operation)
        self.labels.pop()

    def _crash_again(self, disk, check):
        judged = set()

        def see(number):
            for image in self._sample(crash_images(disk), number, self._second_stride):
                self.counts["images of a second crash"] += 1
                if self._is_new(image, judged):
                    self._check(check, image, nothing)

        return see

    def _is_new(self, image, judged):
        """Note that an image is judged; say whether no equal one was that must give the same."""
        key = (image.key, TORN_IN_A_SECTOR in image.label)
        if image.key is not None and key in judged:
            self.counts["judged before"] += 1
            return False
        judged.add(key)
        return True

    @staticmethod
    def _sample(images, begin, stride):
        """Yield every `stride`-th item, starting at a position that depends on `begin`."""
        return (image for at, image in enumerate(images, begin) if at % stride == 0)
