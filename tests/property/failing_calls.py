"""System calls that fail for files with certain names: a file `NAME.fdatasync.5` cannot be synced, with errno 5.

For the native module, which no patch of `os` reaches: a library that is loaded before that of the system. Python's own
calls pass it, too.
"""

import os
import subprocess
from pathlib import Path

import pytest

LIBRARY = r"""
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/types.h>
#include <unistd.h>

static int fault_of(const char *path, const char *call)
{
    const char *name = strrchr(path, '/'), *found = name == NULL ? NULL : strstr(name, call);
    return found != NULL && found[-1] == '.' ? atoi(found + strlen(call) + 1) : 0;
}

static int fault_at(int descriptor, const char *call)
{
    char link[64], path[4096];
    snprintf(link, sizeof link, "/proc/self/fd/%d", descriptor);
    ssize_t size = readlink(link, path, sizeof path - 1);
    path[size > 0 ? size : 0] = 0;
    return fault_of(path, call);
}

#define OPEN(name) \
    int name(const char *path, int flags, ...) \
    { \
        va_list rest; \
        va_start(rest, flags); \
        mode_t mode = flags & O_CREAT ? va_arg(rest, mode_t) : 0; \
        va_end(rest); \
        if ((errno = fault_of(path, "open"))) return -1; \
        return ((int (*)(const char *, int, ...))dlsym(RTLD_NEXT, #name))(path, flags, mode); \
    }
#define PWRITE(name) \
    ssize_t name(int descriptor, const void *data, size_t size, off_t at) \
    { \
        if ((errno = fault_at(descriptor, "pwrite"))) return -1; \
        if (fault_at(descriptor, "short")) size = size > 7 ? 7 : size; \
        return ((ssize_t (*)(int, const void *, size_t, off_t))dlsym(RTLD_NEXT, #name))(descriptor, data, size, at); \
    }
#define FALLOCATE(name) \
    int name(int descriptor, off_t at, off_t size) \
    { \
        int fault = fault_at(descriptor, "posix_fallocate"); \
        return fault ? fault : ((int (*)(int, off_t, off_t))dlsym(RTLD_NEXT, #name))(descriptor, at, size); \
    }

OPEN(open)
OPEN(open64)
PWRITE(pwrite)
PWRITE(pwrite64)
FALLOCATE(posix_fallocate)
FALLOCATE(posix_fallocate64)

int fdatasync(int descriptor)
{
    if ((errno = fault_at(descriptor, "fdatasync"))) return -1;
    return ((int (*)(int))dlsym(RTLD_NEXT, "fdatasync"))(descriptor);
}
"""


def build_failing_calls(folder: Path) -> dict[str, str]:
    """Return the environment of a process whose calls fail; skip the test where there is no compiler."""
    source, library = folder / "failing.c", folder / "failing.so"
    source.write_text(LIBRARY, encoding="ascii")
    command = [os.environ.get("CC", "cc"), "-shared", "-fPIC", "-o", str(library), str(source), "-ldl"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False)
    except OSError:
        pytest.skip("no C compiler")
    assert done.returncode == 0, done.stderr
    return {**os.environ, "LD_PRELOAD": str(library)}
