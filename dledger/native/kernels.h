/* What the kernels share: numbers in bytes (all big-endian), bounds of arguments, checksums. */

#ifndef DLEDGER_KERNELS_H
#define DLEDGER_KERNELS_H

/* The limited API of 3.11: one binary for that version and all later ones. */
#define PY_SSIZE_T_CLEAN
#define Py_LIMITED_API 0x030B0000
#include <Python.h>

#include <stddef.h>
#include <stdint.h>
#include <string.h>

/* Indexes, terms and positions beyond this are left to Python, so that no sum of two of them overflows. */
#define NUMBER_MAX (INT64_C(1) << 62)

static inline void
put_u32(uint8_t *at, uint32_t value)
{
    for (int i = 3; i >= 0; i--, value >>= 8) {
        at[i] = (uint8_t)value;
    }
}

static inline void
put_u64(uint8_t *at, uint64_t value)
{
    for (int i = 7; i >= 0; i--, value >>= 8) {
        at[i] = (uint8_t)value;
    }
}

static inline uint32_t
get_u32(const uint8_t *at)
{
    return (uint32_t)at[0] << 24 | (uint32_t)at[1] << 16 | (uint32_t)at[2] << 8 | at[3];
}

static inline uint64_t
get_u64(const uint8_t *at)
{
    return (uint64_t)get_u32(at) << 32 | get_u32(at + 4);
}

/* Conversions to signed numbers that C leaves to the compiler are written out: two's complement. */
static inline int32_t
get_i32(const uint8_t *at)
{
    uint32_t value = get_u32(at);
    return value <= INT32_MAX ? (int32_t)value : -(int32_t)(UINT32_MAX - value) - 1;
}

static inline int64_t
get_i64(const uint8_t *at)
{
    uint64_t value = get_u64(at);
    return value <= INT64_MAX ? (int64_t)value : -(int64_t)(UINT64_MAX - value) - 1;
}

/* Whether `value` is an int from `min` to `max`; sets no exception. */
static inline int
is_number(PyObject *value, int64_t min, int64_t max, int64_t *result)
{
    int overflow;
    if (!PyLong_Check(value)) {
        return 0;
    }
    *result = PyLong_AsLongLongAndOverflow(value, &overflow);
    return overflow == 0 && *result >= min && *result <= max;
}

/* Returns where `mark` begins in the bytes from `from` on; -1: nowhere. `mark_size` > 0. */
static inline int64_t
find(const char *data, int64_t size, int64_t from, const char *mark, int64_t mark_size)
{
    while (size - from >= mark_size) {
        const char *first = memchr(data + from, mark[0], (size_t)(size - from - mark_size + 1));
        if (first == NULL) {
            return -1;
        }
        if (memcmp(first, mark, (size_t)mark_size) == 0) {
            return first - data;
        }
        from = first - data + 1;
    }
    return -1;
}

/* Take the data of bytes; 0: they are of another type. */
static inline int
take_bytes(PyObject *value, const char **data, Py_ssize_t *size)
{
    if (!PyBytes_CheckExact(value)) {
        return 0;
    }
    *data = PyBytes_AsString(value);
    *size = PyBytes_Size(value);
    return 1;
}

/* Chooses the fastest ways that this processor has; called once. */
void choose_checksums(void);

/* The CRC-32C, and the CRC-32, of `size` bytes. */
uint32_t crc32c(const uint8_t *data, size_t size);
uint32_t crc32(const uint8_t *data, size_t size);

PyObject *encode_entries(PyObject *module, PyObject *const *arguments, Py_ssize_t count);
PyObject *walk_entries(PyObject *module, PyObject *const *arguments, Py_ssize_t count);
PyObject *encode_records(PyObject *module, PyObject *const *arguments, Py_ssize_t count);
PyObject *find_keys(PyObject *module, PyObject *const *arguments, Py_ssize_t count);
PyObject *walk_records(PyObject *module, PyObject *const *arguments, Py_ssize_t count);
PyObject *record_columns(PyObject *module, PyObject *const *arguments, Py_ssize_t count);
PyObject *check_records(PyObject *module, PyObject *const *arguments, Py_ssize_t count);
PyObject *locate_records(PyObject *module, PyObject *const *arguments, Py_ssize_t count);
PyObject *split_records(PyObject *module, PyObject *const *arguments, Py_ssize_t count);
PyObject *copy_records(PyObject *module, PyObject *const *arguments, Py_ssize_t count);
PyObject *decode_properties(PyObject *module, PyObject *const *arguments, Py_ssize_t count);
PyObject *decode_records(PyObject *module, PyObject *const *arguments, Py_ssize_t count);
PyObject *write_files(PyObject *module, PyObject *const *arguments, Py_ssize_t count);
PyObject *sync_files(PyObject *module, PyObject *const *arguments, Py_ssize_t count);

#endif
