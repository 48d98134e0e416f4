/* Puts: records built from the columns of a put, and the keys of its messages. Layout: commitlog/record/record.py.
 *
 * As in entries.c: None for what a function does not handle, and the lock of Python is held throughout.
 */

#include "kernels.h"
#include "layouts.h"

#define BORN_HOST_AT 48
#define IPV4_SIZE 8
#define IPV6_SIZE 20
#define PROPERTIES_SIZE_MAX 32767
#define CRC_MASK 0x7FFFFFFF

static const char CRC_MARK[] = "__CRC32#\x01"; /* of a property CRC, which Python removes */

/* ---------------------------------------------------------------------------------------------------------- records */

enum { QUEUE_ID, QUEUE_OFFSET, FLAG, SYS_FLAG, BORN_TIMESTAMP, RECONSUME_TIMES, PREPARED, CHECKSUM, NUMBERS };

static const struct {
    int64_t min, max;
} bounds[NUMBERS] = {
    [QUEUE_ID] = {0, INT32_MAX},           [QUEUE_OFFSET] = {INT64_MIN, INT64_MAX},
    [FLAG] = {INT32_MIN, INT32_MAX},       [SYS_FLAG] = {INT32_MIN, INT32_MAX},
    [BORN_TIMESTAMP] = {INT64_MIN, INT64_MAX}, [RECONSUME_TIMES] = {INT32_MIN, INT32_MAX},
    [PREPARED] = {INT64_MIN, INT64_MAX},   [CHECKSUM] = {0, UINT32_MAX},
};

typedef struct {
    PyObject *bodies, *properties, *numbers[NUMBERS]; /* tuples; of `numbers` also one int for all records */
    const char *topic, *born_host, *store_host;
    Py_ssize_t count, topic_size, born_host_size, store_host_size;
    int64_t magic, store_timestamp, body_size_max, may_carry_effects;
} Columns;

/* Takes a tuple of `count` elements from a sequence; 0: it has another number of them, or an exception is set. */
static int
take_column(PyObject *values, Py_ssize_t count, PyObject **column)
{
    *column = PySequence_Tuple(values);
    return *column != NULL && (count < 0 || PyTuple_Size(*column) == count);
}

static int
is_host(Py_ssize_t size)
{
    return size == IPV4_SIZE || size == IPV6_SIZE;
}

/* 0: the arguments are not for this function, or an exception is set. */
static int
take_columns(PyObject *const *arguments, Columns *columns)
{
    if (!take_column(arguments[0], -1, &columns->bodies)) {
        return 0;
    }
    columns->count = PyTuple_Size(columns->bodies);
    if (!take_column(arguments[1], columns->count, &columns->properties) || !PyTuple_Check(arguments[2])
        || PyTuple_Size(arguments[2]) != NUMBERS) {
        return 0;
    }
    for (int i = 0; i < NUMBERS; i++) {
        PyObject *values = PyTuple_GetItem(arguments[2], i);
        if (PyLong_Check(values)) {
            Py_INCREF(values);
            columns->numbers[i] = values;
        } else if (!take_column(values, columns->count, &columns->numbers[i])) {
            return 0;
        }
    }
    return is_number(arguments[3], INT32_MIN, INT32_MAX, &columns->magic)
        && take_bytes(arguments[4], &columns->topic, &columns->topic_size)
        && take_bytes(arguments[5], &columns->born_host, &columns->born_host_size)
        && take_bytes(arguments[6], &columns->store_host, &columns->store_host_size)
        && is_number(arguments[7], INT64_MIN, INT64_MAX, &columns->store_timestamp)
        && is_number(arguments[8], 0, INT32_MAX / 2, &columns->body_size_max)
        && is_number(arguments[9], 0, 1, &columns->may_carry_effects) && is_host(columns->born_host_size)
        && is_host(columns->store_host_size) && columns->topic_size <= PROPERTIES_SIZE_MAX + LENGTH_SIZE;
}

/* Returns a new record with physical offset 0; NULL: it is not for this function, or an exception is set. */
static PyObject *
record_of(const Columns *columns, Py_ssize_t row)
{
    int64_t number[NUMBERS];
    const char *body, *properties;
    Py_ssize_t body_size, properties_size;
    for (int i = 0; i < NUMBERS; i++) {
        PyObject *values = columns->numbers[i];
        PyObject *value = PyLong_Check(values) ? values : PyTuple_GetItem(values, row);
        if (!is_number(value, bounds[i].min, bounds[i].max, &number[i])) {
            return NULL;
        }
    }
    if (!take_bytes(PyTuple_GetItem(columns->bodies, row), &body, &body_size)
        || !take_bytes(PyTuple_GetItem(columns->properties, row), &properties, &properties_size)
        || body_size > columns->body_size_max || properties_size > PROPERTIES_SIZE_MAX
        || find(properties, properties_size, 0, CRC_MARK, sizeof CRC_MARK - 1) >= 0) {
        return NULL;
    }
    Py_ssize_t size = FIELDS_SIZE - 2 * IPV4_SIZE + columns->born_host_size + columns->store_host_size + body_size
        + columns->topic_size + LENGTH_SIZE + properties_size;
    PyObject *record = PyBytes_FromStringAndSize(NULL, size);
    if (record == NULL) {
        return NULL;
    }
    uint8_t *at = (uint8_t *)PyBytes_AsString(record);
    uint32_t hosts = (columns->born_host_size == IPV6_SIZE ? BORN_HOST_IPV6 : 0)
        | (columns->store_host_size == IPV6_SIZE ? STORE_HOST_IPV6 : 0);
    uint32_t removed = BORN_HOST_IPV6 | STORE_HOST_IPV6 | (columns->may_carry_effects ? 0 : CARRIES_EFFECT);
    put_u32(at, (uint32_t)size);
    put_u32(at + 4, (uint32_t)columns->magic);
    put_u32(at + 8, (uint32_t)number[CHECKSUM] & CRC_MASK);
    put_u32(at + 12, (uint32_t)number[QUEUE_ID]);
    put_u32(at + 16, (uint32_t)number[FLAG]);
    put_u64(at + 20, (uint64_t)number[QUEUE_OFFSET]);
    put_u64(at + 28, 0);
    put_u32(at + 36, ((uint32_t)number[SYS_FLAG] & ~removed) | hosts);
    put_u64(at + 40, (uint64_t)number[BORN_TIMESTAMP]);
    at += BORN_HOST_AT;
    memcpy(at, columns->born_host, (size_t)columns->born_host_size);
    at += columns->born_host_size;
    put_u64(at, (uint64_t)columns->store_timestamp);
    at += 8;
    memcpy(at, columns->store_host, (size_t)columns->store_host_size);
    at += columns->store_host_size;
    put_u32(at, (uint32_t)number[RECONSUME_TIMES]);
    put_u64(at + 4, (uint64_t)number[PREPARED]);
    put_u32(at + 12, (uint32_t)body_size);
    memcpy(at + 16, body, (size_t)body_size);
    at += 16 + body_size;
    memcpy(at, columns->topic, (size_t)columns->topic_size);
    at += columns->topic_size;
    at[0] = (uint8_t)(properties_size >> 8);
    at[1] = (uint8_t)properties_size;
    memcpy(at + LENGTH_SIZE, properties, (size_t)properties_size);
    return record;
}

/* Returns (records, their sizes); NULL: one is not for this function, or an exception is set. */
static PyObject *
records_of(const Columns *columns)
{
    PyObject *records = PyList_New(columns->count), *sizes = PyList_New(columns->count), *result = NULL;
    Py_ssize_t row = 0;
    for (; records != NULL && sizes != NULL && row < columns->count; row++) {
        PyObject *record = record_of(columns, row);
        PyObject *size = record == NULL ? NULL : PyLong_FromSsize_t(PyBytes_Size(record));
        /* Both take the reference, also where they fail. */
        if (record == NULL || PyList_SetItem(records, row, record) < 0 || size == NULL
            || PyList_SetItem(sizes, row, size) < 0) {
            break;
        }
    }
    if (records != NULL && sizes != NULL && row == columns->count) {
        result = PyTuple_Pack(2, records, sizes);
    }
    Py_XDECREF(sizes);
    Py_XDECREF(records);
    return result;
}

/* `RecordEncoder.encode_each` of commitlog/record/encoder.py for columns: (records, sizes), or None. */
PyObject *
encode_records(PyObject *module, PyObject *const *arguments, Py_ssize_t count)
{
    (void)module;
    Columns columns = {0};
    PyObject *result = NULL;
    if (count != 10) {
        PyErr_SetString(PyExc_TypeError, "encode_records takes 10 arguments");
        return NULL;
    }
    if (take_columns(arguments, &columns)) {
        result = records_of(&columns);
    }
    for (int i = 0; i < NUMBERS; i++) {
        Py_XDECREF(columns.numbers[i]);
    }
    Py_XDECREF(columns.properties);
    Py_XDECREF(columns.bodies);
    if (result == NULL && PyErr_Occurred() == NULL) {
        Py_RETURN_NONE;
    }
    return result;
}

/* ------------------------------------------------------------------------------------------------------------- keys */

typedef struct {
    const char *mark, *prefix;
    Py_ssize_t mark_size, prefix_size;
    int64_t prefix_hash;
} Key;

/* Puts the key in one message's properties, and its hash; 0: it is not for this function, or an exception is set. */
static int
put_key(const Key *kind, PyObject *properties, PyObject *keys, PyObject *hashes, Py_ssize_t row)
{
    const char *data;
    Py_ssize_t size;
    if (!take_bytes(properties, &data, &size)) {
        return 0;
    }
    int64_t begin = find(data, size, 0, kind->mark, kind->mark_size), key_size = 0;
    /* `key_hash` of store/model/java_hash.py. */
    uint32_t hash_value = (uint32_t)kind->prefix_hash;
    if (begin >= 0) {
        if ((begin > 0 && data[begin - 1] != '\x02') || find(data, size, begin + 1, kind->mark, kind->mark_size) >= 0) {
            return 0;
        }
        begin += kind->mark_size;
        const char *end = memchr(data + begin, '\x02', (size_t)(size - begin));
        key_size = end == NULL ? size - begin : end - (data + begin);
        if (!hash_ascii(&hash_value, (const uint8_t *)data + begin, key_size)) {
            return 0;
        }
    }
    PyObject *key = PyBytes_FromStringAndSize(NULL, key_size > 0 ? kind->prefix_size + (Py_ssize_t)key_size : 0);
    if (key == NULL) {
        return 0;
    }
    if (key_size > 0) {
        char *to = PyBytes_AsString(key);
        memcpy(to, kind->prefix, (size_t)kind->prefix_size);
        memcpy(to + kind->prefix_size, data + begin, (size_t)key_size);
    }
    PyObject *hash = PyLong_FromUnsignedLong(key_size > 0 ? positive_hash(hash_value) : 0);
    /* Both take the reference, also where they fail. */
    return PyList_SetItem(keys, row, key) == 0 && hash != NULL && PyList_SetItem(hashes, row, hash) == 0;
}

/* `find_keys_in_python` of commitlog/record/unique_keys.py: (keys, hashes), or None. */
PyObject *
find_keys(PyObject *module, PyObject *const *arguments, Py_ssize_t count)
{
    (void)module;
    Key kind;
    if (count != 4) {
        PyErr_SetString(PyExc_TypeError, "find_keys takes 4 arguments");
        return NULL;
    }
    if (!take_bytes(arguments[1], &kind.mark, &kind.mark_size) || kind.mark_size == 0
        || !take_bytes(arguments[2], &kind.prefix, &kind.prefix_size) || kind.prefix_size > PROPERTIES_SIZE_MAX
        || !is_number(arguments[3], 0, UINT32_MAX, &kind.prefix_hash)) {
        Py_RETURN_NONE;
    }
    PyObject *properties = PySequence_Tuple(arguments[0]), *result = NULL;
    if (properties == NULL) {
        return NULL;
    }
    Py_ssize_t rows = PyTuple_Size(properties), row = 0;
    PyObject *keys = PyList_New(rows), *hashes = PyList_New(rows);
    if (keys != NULL && hashes != NULL) {
        while (row < rows && put_key(&kind, PyTuple_GetItem(properties, row), keys, hashes, row)) {
            row++;
        }
        if (row == rows) {
            result = PyTuple_Pack(2, keys, hashes);
        }
    }
    Py_XDECREF(hashes);
    Py_XDECREF(keys);
    Py_DECREF(properties);
    if (result == NULL && PyErr_Occurred() == NULL) {
        Py_RETURN_NONE;
    }
    return result;
}
