/* Small files: a group of them opened and written, or synced, in one call. Reference: store/fs/linux/files.py.
 *
 * The lock of Python is released while the system works, so the caller's other threads run. `write_files` stops at the
 * first file that it cannot write; the caller then writes that one in Python, which raises its error. So no error has
 * two texts. Only for Linux; elsewhere both functions return None, and Python does everything.
 */

#define _FILE_OFFSET_BITS 64
#include "kernels.h"

#ifdef __linux__

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <sys/stat.h>
#include <unistd.h>

/* Files of one call, and threads that sync them. */
#define FILES_MAX 4096
#define HELPERS_MAX 15

/* ------------------------------------------------------------------------------------------------------- writing */

typedef struct {
    PyObject *path;    /* bytes */
    Py_buffer data;    /* a buffer is held while `data.obj` is not NULL */
    int64_t position, allocated_size;
    int descriptor;    /* -1: there is no such file, or it was not reached */
} Write;

/* Take over one (path, position, data, allocated_size); 1: it is complete, 0: not for this function, -1: exception. */
static int
take_write(PyObject *item, Write *write)
{
    if (!PyTuple_Check(item) || PyTuple_Size(item) != 4
        || !is_number(PyTuple_GetItem(item, 1), 0, NUMBER_MAX, &write->position)
        || !is_number(PyTuple_GetItem(item, 3), 1, NUMBER_MAX, &write->allocated_size)) {
        return 0;
    }
    if (!PyUnicode_FSConverter(PyTuple_GetItem(item, 0), &write->path)) {
        return -1;
    }
    return PyObject_GetBuffer(PyTuple_GetItem(item, 2), &write->data, PyBUF_SIMPLE) < 0 ? -1 : 1;
}

/* Write all bytes to an open file, with blocks for them; whether everything has worked. */
static int
write_to(int descriptor, const Write *write)
{
    struct stat status;
    const char *data = write->data.buf;
    int64_t left = write->data.len, position = write->position;
    if (fstat(descriptor, &status) < 0 || !S_ISREG(status.st_mode) || left > status.st_size
        || position > status.st_size - left || write->allocated_size > status.st_size - position
        || posix_fallocate(descriptor, position, write->allocated_size) != 0) {
        return 0;
    }
    while (left > 0) {
        ssize_t done = pwrite(descriptor, data, (size_t)left, position);
        if (done <= 0) {
            return 0;
        }
        data += done;
        position += done;
        left -= done;
    }
    return 1;
}

/* Write files up to the first failure; return how many were written or are missing. Runs without the lock. */
static Py_ssize_t
write_until_failure(Write *writes, const char *const *paths, Py_ssize_t count)
{
    for (Py_ssize_t i = 0; i < count; i++) {
        /* Not blocking: a FIFO would wait for its reader. */
        int descriptor = open(paths[i], O_RDWR | O_CLOEXEC | O_NONBLOCK);
        if (descriptor < 0) {
            if (errno == ENOENT) {
                continue;
            }
            return i;
        }
        if (!write_to(descriptor, &writes[i])) {
            close(descriptor);
            return i;
        }
        writes[i].descriptor = descriptor;
    }
    return count;
}

/* The descriptors of the first `count` writes, None for a missing file; on an exception NULL, and all are closed. */
static PyObject *
descriptors_of(const Write *writes, Py_ssize_t count)
{
    PyObject *found = PyList_New(count);
    for (Py_ssize_t i = 0; found != NULL && i < count; i++) {
        PyObject *each = Py_None;
        if (writes[i].descriptor >= 0) {
            each = PyLong_FromLong(writes[i].descriptor);
        } else {
            Py_INCREF(each);
        }
        if (each == NULL || PyList_SetItem(found, i, each) < 0) { /* it takes the reference */
            Py_CLEAR(found);
        }
    }
    for (Py_ssize_t i = 0; found == NULL && i < count; i++) {
        if (writes[i].descriptor >= 0) {
            close(writes[i].descriptor);
        }
    }
    return found;
}

/* `OsFiles.write_existing`: the descriptors of the files written, up to the first that failed; or None. */
PyObject *
write_files(PyObject *module, PyObject *const *arguments, Py_ssize_t count)
{
    (void)module;
    if (count != 1) {
        PyErr_SetString(PyExc_TypeError, "write_files takes 1 argument");
        return NULL;
    }
    /* Of its own, so that no other thread changes it while the lock is released. */
    PyObject *items = PySequence_Tuple(arguments[0]), *result = NULL;
    if (items == NULL) {
        return NULL;
    }
    Py_ssize_t files = PyTuple_Size(items);
    Write *writes = files <= FILES_MAX ? PyMem_Calloc((size_t)files + 1, sizeof(Write)) : NULL;
    const char **paths = files <= FILES_MAX ? PyMem_Calloc((size_t)files + 1, sizeof(char *)) : NULL;
    int is_taken = files <= FILES_MAX;
    if (is_taken && (writes == NULL || paths == NULL)) {
        PyErr_NoMemory();
        is_taken = -1;
    }
    for (Py_ssize_t i = 0; is_taken == 1 && i < files; i++) {
        writes[i].descriptor = -1;
        is_taken = take_write(PyTuple_GetItem(items, i), &writes[i]);
        paths[i] = is_taken == 1 ? PyBytes_AsString(writes[i].path) : NULL;
    }
    if (is_taken == 1) {
        Py_ssize_t done;
        Py_BEGIN_ALLOW_THREADS
        done = write_until_failure(writes, paths, files);
        Py_END_ALLOW_THREADS
        result = descriptors_of(writes, done);
    } else if (is_taken == 0) {
        Py_INCREF(Py_None);
        result = Py_None;
    }
    for (Py_ssize_t i = 0; writes != NULL && i < files; i++) {
        Py_XDECREF(writes[i].path);
        if (writes[i].data.obj != NULL) {
            PyBuffer_Release(&writes[i].data);
        }
    }
    PyMem_Free((void *)paths);
    PyMem_Free(writes);
    Py_DECREF(items);
    return result;
}

/* -------------------------------------------------------------------------------------------------------- syncing */

typedef struct {
    Py_ssize_t count, next;    /* `next` is taken atomically */
    const int *descriptors;
    int *errors;
} Syncs;

static void *
sync_some(void *of)
{
    Syncs *syncs = of;
    for (;;) {
        Py_ssize_t i = __atomic_fetch_add(&syncs->next, 1, __ATOMIC_RELAXED);
        if (i >= syncs->count) {
            return NULL;
        }
        int error;
        do {
            error = fdatasync(syncs->descriptors[i]) < 0 ? errno : 0;
        } while (error == EINTR);
        syncs->errors[i] = error;
    }
}

/* Sync in this thread and in `helpers` others, as far as they can be started. */
static void
sync_in_threads(Syncs *syncs, int helpers)
{
    pthread_t threads[HELPERS_MAX];
    int started = 0;
    sigset_t all, before;
    /* Signals are for Python's own threads. */
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    while (started < helpers && pthread_create(&threads[started], NULL, sync_some, syncs) == 0) {
        started++;
    }
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    sync_some(syncs);
    while (started > 0) {
        pthread_join(threads[--started], NULL);
    }
}

/* The list of (number, errno) of the failed syncs, from the syncs that have ended. */
static PyObject *
failures_of(const Syncs *syncs)
{
    PyObject *failures = PyList_New(0);
    for (Py_ssize_t i = 0; failures != NULL && i < syncs->count; i++) {
        if (syncs->errors[i] != 0) {
            PyObject *failure = Py_BuildValue("ni", i, syncs->errors[i]);
            if (failure == NULL || PyList_Append(failures, failure) < 0) {
                Py_CLEAR(failures);
            }
            Py_XDECREF(failure);
        }
    }
    return failures;
}

/* Sync open files in up to `threads_max` threads: the list of (number, errno) of those that failed; or None. */
PyObject *
sync_files(PyObject *module, PyObject *const *arguments, Py_ssize_t count)
{
    (void)module;
    int64_t threads_max, number;
    if (count != 2) {
        PyErr_SetString(PyExc_TypeError, "sync_files takes 2 arguments");
        return NULL;
    }
    if (!PyTuple_CheckExact(arguments[0]) || PyTuple_Size(arguments[0]) > FILES_MAX
        || !is_number(arguments[1], 1, HELPERS_MAX + 1, &threads_max)) {
        Py_RETURN_NONE;
    }
    Py_ssize_t files = PyTuple_Size(arguments[0]);
    int *numbers = PyMem_Calloc(2 * (size_t)files + 1, sizeof(int));
    if (numbers == NULL) {
        return PyErr_NoMemory();
    }
    Syncs syncs = {.count = files, .next = 0, .descriptors = numbers, .errors = numbers + files};
    for (Py_ssize_t i = 0; i < files; i++) {
        if (!is_number(PyTuple_GetItem(arguments[0], i), 0, INT32_MAX, &number)) {
            PyMem_Free(numbers);
            Py_RETURN_NONE;
        }
        numbers[i] = (int)number;
    }
    int64_t threads = threads_max < files ? threads_max : files;
    Py_BEGIN_ALLOW_THREADS
    sync_in_threads(&syncs, threads > 1 ? (int)threads - 1 : 0);
    Py_END_ALLOW_THREADS
    PyObject *failures = failures_of(&syncs);
    PyMem_Free(numbers);
    return failures;
}

#else

PyObject *
write_files(PyObject *module, PyObject *const *arguments, Py_ssize_t count)
{
    (void)module, (void)arguments, (void)count;
    Py_RETURN_NONE;
}

PyObject *
sync_files(PyObject *module, PyObject *const *arguments, Py_ssize_t count)
{
    (void)module, (void)arguments, (void)count;
    Py_RETURN_NONE;
}

#endif
