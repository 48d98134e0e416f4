/* Entries: encoded for the leader's log, checked in a push or a file. Layouts: dledger/entries/format/entry.py.
 *
 * Both functions return None for what they do not handle (a number beyond NUMBER_MAX, a body that is not bytes, an
 * offset outside a buffer): the caller then runs the function in Python, which accepts it or raises its error. So no
 * error has two texts. The lock of Python is held throughout.
 */

#include "kernels.h"
#include "layouts.h"

#define UNIT_SIZE 32
#define CHAIN_SIZE 28
#define STAMP_SIZE 8

/* See dledger/entries/format/walk.py. */
#define SECTOR_SIZE 512
#define LAST_WHOLE_CHECKSUM (SECTOR_SIZE - 40)
#define END_SIZE 4
#define MARKER 0x04
#define MARKER_MASK 0x0C

#define FIRST_UNITS 64

static uint32_t
chain_of(uint32_t before, uint32_t magic, uint64_t index, uint64_t term, uint32_t body_crc)
{
    uint8_t bytes[CHAIN_SIZE];
    put_u32(bytes, before);
    put_u32(bytes + 4, magic);
    put_u64(bytes + 8, index);
    put_u64(bytes + 16, term);
    put_u32(bytes + 24, body_crc);
    return crc32c(bytes, CHAIN_SIZE);
}

static void
put_unit(uint8_t *unit, uint32_t magic, uint64_t position, uint32_t size, uint64_t index, uint64_t term)
{
    put_u32(unit, magic);
    put_u64(unit + 4, position);
    put_u32(unit + 12, size);
    put_u64(unit + 16, index);
    put_u64(unit + 24, term);
}

/* ------------------------------------------------------------------------------------------------------- encoding */

typedef struct {
    int64_t index, term, position, chain, magic, channel, stamp_at;
} Batch;

/* The bytes of all entries; -1: a body is not for this function. */
static int64_t
size_of_entries(PyObject *bodies, int64_t stamp_at)
{
    int64_t total = 0;
    for (Py_ssize_t i = 0; i < PyTuple_Size(bodies); i++) {
        PyObject *body = PyTuple_GetItem(bodies, i);
        int64_t size = PyBytes_CheckExact(body) ? PyBytes_Size(body) : -1;
        if (size < 0 || size > INT32_MAX - HEADER_SIZE || (stamp_at >= 0 && size - STAMP_SIZE < stamp_at)) {
            return -1;
        }
        total += HEADER_SIZE + size;
        if (total > PY_SSIZE_T_MAX / 2) {
            return -1;
        }
    }
    return total;
}

/* Write the entries, their index units and their positions; return the last chain checksum, or -1 and an exception. */
static int64_t
write_entries(PyObject *bodies, Batch at, uint8_t *entry, uint8_t *unit, PyObject *positions)
{
    for (Py_ssize_t i = 0; i < PyTuple_Size(bodies); i++) {
        PyObject *body = PyTuple_GetItem(bodies, i), *position = PyLong_FromLongLong(at.position);
        if (position == NULL || PyList_SetItem(positions, i, position) < 0) { /* it takes the reference */
            return -1;
        }
        uint32_t body_size = (uint32_t)PyBytes_Size(body), size = HEADER_SIZE + body_size;
        memcpy(entry + HEADER_SIZE, PyBytes_AsString(body), body_size);
        if (at.stamp_at >= 0) {
            put_u64(entry + HEADER_SIZE + at.stamp_at, (uint64_t)at.position + HEADER_SIZE);
        }
        uint32_t body_crc = crc32c(entry + HEADER_SIZE, body_size);
        at.chain = at.chain < 0 ? 0
                                : chain_of((uint32_t)at.chain, (uint32_t)at.magic, (uint64_t)at.index,
                                           (uint64_t)at.term, body_crc);
        put_u32(entry, (uint32_t)at.magic);
        put_u32(entry + 4, size);
        put_u64(entry + 8, (uint64_t)at.index);
        put_u64(entry + 16, (uint64_t)at.term);
        put_u64(entry + 24, (uint64_t)at.position);
        put_u32(entry + 32, (uint32_t)at.channel);
        put_u32(entry + 36, (uint32_t)at.chain);
        put_u32(entry + 40, body_crc);
        put_u32(entry + 44, body_size);
        put_unit(unit, (uint32_t)at.magic, (uint64_t)at.position, size, (uint64_t)at.index, (uint64_t)at.term);
        entry += size;
        unit += UNIT_SIZE;
        at.position += size;
        at.index += 1;
    }
    return at.chain;
}

/* `encode_batch` of dledger/entries/format/entry.py: (data, units, positions, chain_crc), or None. */
PyObject *
encode_entries(PyObject *module, PyObject *const *arguments, Py_ssize_t count)
{
    (void)module;
    Batch at;
    at.stamp_at = -1;
    if (count != 8) {
        PyErr_SetString(PyExc_TypeError, "encode_entries takes 8 arguments");
        return NULL;
    }
    if (!is_number(arguments[1], 0, NUMBER_MAX, &at.index) || !is_number(arguments[2], 0, NUMBER_MAX, &at.term)
        || !is_number(arguments[3], 0, NUMBER_MAX, &at.position)
        || !is_number(arguments[4], -1, UINT32_MAX, &at.chain)
        || !is_number(arguments[5], INT32_MIN, INT32_MAX, &at.magic)
        || !is_number(arguments[6], INT32_MIN, INT32_MAX, &at.channel)
        || (arguments[7] != Py_None && !is_number(arguments[7], 0, INT32_MAX, &at.stamp_at))) {
        Py_RETURN_NONE;
    }
    /* A copy, which no other code can change meanwhile: creating an object may run a finalizer. */
    PyObject *bodies = PySequence_Tuple(arguments[0]);
    if (bodies == NULL) {
        return NULL;
    }
    PyObject *data = NULL, *units = NULL, *positions = NULL, *result = NULL;
    Py_ssize_t bodies_count = PyTuple_Size(bodies);
    int64_t total = size_of_entries(bodies, at.stamp_at);
    if (total < 0 || (bodies_count == 0 && at.chain < 0)) {
        Py_DECREF(bodies);
        Py_RETURN_NONE;
    }
    data = PyBytes_FromStringAndSize(NULL, (Py_ssize_t)total);
    units = PyBytes_FromStringAndSize(NULL, UNIT_SIZE * bodies_count);
    positions = PyList_New(bodies_count);
    if (data != NULL && units != NULL && positions != NULL) {
        int64_t chain = write_entries(bodies, at, (uint8_t *)PyBytes_AsString(data),
                                      (uint8_t *)PyBytes_AsString(units), positions);
        if (chain >= 0) {
            result = Py_BuildValue("OOOL", data, units, positions, (long long)chain);
        }
    }
    Py_XDECREF(positions);
    Py_XDECREF(units);
    Py_XDECREF(data);
    Py_DECREF(bodies);
    return result;
}

/* ------------------------------------------------------------------------------------------------------- checking */

typedef struct {
    const uint8_t *data;
    int64_t size;                       /* of `data` */
    int64_t offset, end;                /* 0 <= offset; end <= size */
    int64_t displacement;               /* position - offset */
    int64_t index, term, chain, marker_at;
    int is_for_codec;                   /* Python has to check the entry at `offset` */
} Walk;

/* An empty entry may have lost its checksums only: see `_may_be_torn` of walk.py. */
static int
may_be_torn(const Walk *walk, int64_t next)
{
    static const uint8_t zeros[END_SIZE];
    return walk->offset % SECTOR_SIZE > LAST_WHOLE_CHECKSUM && walk->size - next >= END_SIZE
        && memcmp(walk->data + next, zeros, END_SIZE) == 0;
}

/* Check one entry; if it is valid write its unit, move on, and return 1. */
static int
take_entry(Walk *walk, uint8_t *unit)
{
    const uint8_t *entry = walk->data + walk->offset, *body = entry + HEADER_SIZE;
    uint32_t magic = get_u32(entry), chain = get_u32(entry + 36), body_crc = get_u32(entry + 40);
    int64_t index = get_i64(entry + 8), term = get_i64(entry + 16), position = walk->offset + walk->displacement;
    int64_t size = get_i32(entry + 4), body_size = get_i32(entry + 44);
    if ((walk->index != -1 && index != walk->index) || index < 0 || term < walk->term || body_size < 0
        || size != body_size + HEADER_SIZE || size > walk->end - walk->offset) {
        return 0;
    }
    int is_own = get_u32(entry + 32) != 0 || magic != ENTRY_NORMAL;
    int is_marked = walk->marker_at >= 0 && walk->marker_at < body_size
        && (body[walk->marker_at] & MARKER_MASK) == MARKER;
    if (is_own || is_marked || index == INT64_MAX) {
        walk->is_for_codec = 1;
        return 0;
    }
    int64_t next = walk->offset + size;
    if ((body_crc != 0 && body_crc != crc32c(body, (size_t)body_size))
        || (chain != 0 && walk->chain >= 0
            && chain != chain_of((uint32_t)walk->chain, magic, (uint64_t)index, (uint64_t)term, body_crc))
        || ((body_crc != 0 || chain != 0) && get_i64(entry + 24) != position)
        || (chain == 0 && body_size == 0 && walk->chain > 0 && may_be_torn(walk, next))) {
        return 0;
    }
    put_unit(unit, magic, (uint64_t)position, (uint32_t)size, (uint64_t)index, (uint64_t)term);
    walk->offset = next;
    walk->index = index + 1;
    walk->term = term;
    walk->chain = chain;
    return 1;
}

/* Check up to `count_max` entries; return their units, or NULL and an exception. */
static PyObject *
take_entries(Walk *walk, int64_t count_max)
{
    uint8_t first[FIRST_UNITS * UNIT_SIZE], *units = first;
    int64_t count = 0, capacity = FIRST_UNITS;
    PyObject *result = NULL;
    while (count < count_max && walk->end - walk->offset >= HEADER_SIZE) {
        if (count == capacity) {
            /* At most two thirds of the bytes that are checked, twice: a valid entry has 48, a unit 32. */
            uint8_t *more = PyMem_Malloc((size_t)(2 * capacity * UNIT_SIZE));
            if (more == NULL) {
                PyErr_NoMemory();
                goto end;
            }
            memcpy(more, units, (size_t)(capacity * UNIT_SIZE));
            if (units != first) {
                PyMem_Free(units);
            }
            units = more;
            capacity *= 2;
        }
        if (!take_entry(walk, units + count * UNIT_SIZE)) {
            break;
        }
        count++;
    }
    result = PyBytes_FromStringAndSize((const char *)units, (Py_ssize_t)(count * UNIT_SIZE));
end:
    if (units != first) {
        PyMem_Free(units);
    }
    return result;
}

/* Clients' entries of `walk` in dledger/entries/format/walk.py, up to the first that it does not accept or that the
 * codec has to check: (units, offset, index, term, chain_crc, is_for_codec), or None. */
PyObject *
walk_entries(PyObject *module, PyObject *const *arguments, Py_ssize_t count)
{
    (void)module;
    Walk walk;
    int64_t position, count_max;
    Py_buffer buffer;
    if (count != 9) {
        PyErr_SetString(PyExc_TypeError, "walk_entries takes 9 arguments");
        return NULL;
    }
    if (!is_number(arguments[1], 0, NUMBER_MAX, &walk.offset) || !is_number(arguments[2], 0, NUMBER_MAX, &walk.end)
        || !is_number(arguments[3], 0, NUMBER_MAX, &position) || !is_number(arguments[4], -1, INT64_MAX, &walk.index)
        || !is_number(arguments[5], INT64_MIN, INT64_MAX, &walk.term)
        || !is_number(arguments[6], -1, UINT32_MAX, &walk.chain)
        || !is_number(arguments[7], 0, NUMBER_MAX, &count_max)
        || !is_number(arguments[8], -1, NUMBER_MAX, &walk.marker_at)) {
        Py_RETURN_NONE;
    }
    if (PyObject_GetBuffer(arguments[0], &buffer, PyBUF_SIMPLE) < 0) {
        return NULL;
    }
    if (walk.end > buffer.len) {
        PyBuffer_Release(&buffer);
        Py_RETURN_NONE;
    }
    walk.data = buffer.buf;
    walk.size = buffer.len;
    walk.displacement = position - walk.offset;
    walk.is_for_codec = 0;
    PyObject *units = take_entries(&walk, count_max), *result = NULL;
    PyBuffer_Release(&buffer);
    if (units != NULL) {
        result = Py_BuildValue("OLLLLO", units, (long long)walk.offset, (long long)walk.index, (long long)walk.term,
                               (long long)walk.chain, walk.is_for_codec ? Py_True : Py_False);
        Py_DECREF(units);
    }
    return result;
}
