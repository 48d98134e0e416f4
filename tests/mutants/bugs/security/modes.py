"""Planted bugs of file modes: other users of the machine can read data."""

import store.fs.linux.modes
from tests.mutants.mutant import Mutant, Tests

MODES = "tests/unit/store/fs/test_linux_files.py::test_new_files_are_for_their_owner_or_the_group_of_a_shared_directory"
RULE = "data is for its owner alone"


def modes_of_data_let_others_read(patch):
    patch.setattr(store.fs.linux.modes, "_FILE_MODE", 0o644)


def modes_of_data_follow_any_directory_of_a_group(patch):
    patch.setattr(store.fs.linux.modes, "_SHARED_BITS", 0o050)


MUTANTS = (
    Mutant(modes_of_data_let_others_read, RULE, Tests(MODES)),
    Mutant(modes_of_data_follow_any_directory_of_a_group, RULE, Tests(MODES)),
)
