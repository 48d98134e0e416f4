/* Dispatch: records are found by their sizes, and become columns for queues and index.
 *
 * Layouts: dledger/entries/format/entry.py, commitlog/record/record.py. As in entries.c: None for what a function does
 * not handle, and the lock of Python is held throughout. Columns are in the machine's byte order, for NumPy.
 */

#include "kernels.h"
#include "layouts.h"

#define IPV6_EXTRA 12
#define PREPARED 0x04
#define ROLLBACK 0x0C
#define INNER_BATCH 0x80
#define RECORDS_MAX (1 << 20)

static const char SCHEDULE_TOPIC[] = "SCHEDULE_TOPIC_XXXX";

/* ---------------------------------------------------------------------------------------------------------- walking */

/* The size of the record at `at`, whose entry, if `header_size` is 48, is a client's; 0: there is none before `end`. */
static int64_t
record_size_at(const uint8_t *at, int64_t left, int64_t header_size)
{
    if (left < header_size + RECORD_SIZE_MIN) {
        return 0;
    }
    const uint8_t *record = at + header_size;
    int64_t size = get_i32(record);
    uint32_t magic = get_u32(record + 4);
    if ((magic != MAGIC_V1 && magic != MAGIC_V2) || size < RECORD_SIZE_MIN || size > left - header_size) {
        return 0;
    }
    if (header_size > 0
        && (get_u32(at) != ENTRY_NORMAL || get_u32(at + 32) != 0 || get_i32(at + 4) != size + header_size)) {
        return 0;
    }
    return size;
}

/* The hot loop of `walk` of commitlog/record/scan.py: (starts, sizes, the position after the last record), or None. */
PyObject *
walk_records(PyObject *module, PyObject *const *arguments, Py_ssize_t count)
{
    (void)module;
    int64_t position, end, limit, count_max, header_size;
    Py_buffer buffer;
    if (count != 6) {
        PyErr_SetString(PyExc_TypeError, "walk_records takes 6 arguments");
        return NULL;
    }
    if (!is_number(arguments[1], 0, NUMBER_MAX, &position) || !is_number(arguments[2], 0, NUMBER_MAX, &end)
        || !is_number(arguments[3], 0, NUMBER_MAX, &limit) || !is_number(arguments[4], 0, NUMBER_MAX, &count_max)
        || !is_number(arguments[5], 0, HEADER_SIZE, &header_size)
        || (header_size != 0 && header_size != HEADER_SIZE)) {
        Py_RETURN_NONE;
    }
    if (PyObject_GetBuffer(arguments[0], &buffer, PyBUF_SIMPLE) < 0) {
        return NULL;
    }
    if (end > buffer.len) {
        PyBuffer_Release(&buffer);
        Py_RETURN_NONE;
    }
    PyObject *starts = PyList_New(0), *sizes = PyList_New(0), *result = NULL;
    int is_good = starts != NULL && sizes != NULL;
    for (; is_good && count_max > 0 && position < limit && position < end; count_max--) {
        int64_t size = record_size_at((const uint8_t *)buffer.buf + position, end - position, header_size);
        if (size == 0) {
            break;
        }
        PyObject *start = PyLong_FromLongLong(position + header_size), *bytes = PyLong_FromLongLong(size);
        is_good = start != NULL && bytes != NULL && PyList_Append(starts, start) == 0
            && PyList_Append(sizes, bytes) == 0;
        Py_XDECREF(bytes);
        Py_XDECREF(start);
        position += header_size + size;
    }
    PyBuffer_Release(&buffer);
    if (is_good) {
        result = Py_BuildValue("OOL", starts, sizes, (long long)position);
    }
    Py_XDECREF(sizes);
    Py_XDECREF(starts);
    return result;
}

/* ---------------------------------------------------------------------------------------------------------- columns */

typedef struct {
    const uint8_t *data;
    int64_t size;
} Text;

typedef struct {
    Text topic;
    int32_t queue_id;
    uint32_t topic_hash; /* Java's, of the topic and the separator of keys */
} Queue;

/* What the columns need of one record. */
typedef struct {
    Queue queue;
    int64_t queue_offset, store_timestamp;
    uint32_t sys_flag;
    Text properties, tags, unique_key, keys;
} Record;

/* Rows of the result, the queues, and a table of them by their hashes. */
typedef struct {
    int64_t *physical_offsets, *queue_offsets, *tags_codes, *store_timestamps;
    int32_t *sizes, *queue_numbers;
    uint8_t *is_queued;
    Queue *queues;
    int32_t *table; /* number of a queue + 1; 0: free */
    int64_t table_size, queues_count, last; /* `last`: number of the queue of the row before */
    int32_t *key_hashes;
    int64_t *key_rows;
    int64_t keys_count, keys_capacity;
} Columns;

static int
is_text(Text text, const char *expected, int64_t size)
{
    return text.size == size && memcmp(text.data, expected, (size_t)size) == 0;
}

/* Finds the last non-empty TAGS, UNIQ_KEY and KEYS. See `decode_properties` of commitlog/record/properties.py. */
static void
find_properties(Record *record)
{
    const uint8_t *at = record->properties.data, *end = at + record->properties.size;
    while (at < end) {
        const uint8_t *part_end = memchr(at, 2, (size_t)(end - at));
        if (part_end == NULL) {
            part_end = end;
        }
        const uint8_t *name_end = memchr(at, 1, (size_t)(part_end - at));
        if (name_end != NULL && name_end + 1 < part_end) {
            Text name = {at, name_end - at}, value = {name_end + 1, part_end - name_end - 1};
            if (is_text(name, "TAGS", 4)) {
                record->tags = value;
            } else if (is_text(name, "UNIQ_KEY", 8)) {
                record->unique_key = value;
            } else if (is_text(name, "KEYS", 4)) {
                record->keys = value;
            }
        }
        at = part_end + 1;
    }
}

/* Reads a record; 0: it is not valid, or not for this function. Checks: `_try_rows` of commitlog/record/rows.py. */
static int
read_record(const uint8_t *at, int64_t size, int64_t physical_offset, Record *record)
{
    if (size < RECORD_SIZE_MIN) {
        return 0;
    }
    uint32_t magic = get_u32(at + 4);
    record->sys_flag = get_u32(at + 36);
    int64_t is_v2 = magic == MAGIC_V2, born_extra = record->sys_flag & BORN_HOST_IPV6 ? IPV6_EXTRA : 0,
            extra = born_extra + (record->sys_flag & STORE_HOST_IPV6 ? IPV6_EXTRA : 0);
    if ((!is_v2 && magic != MAGIC_V1) || get_i32(at) != size || get_i64(at + 28) != physical_offset
        || size < RECORD_SIZE_MIN + extra + is_v2) {
        return 0;
    }
    int64_t body_begin = FIELDS_SIZE + extra, body_size = get_i32(at + body_begin - 4);
    if (body_size < 0 || body_size > size - 3 - is_v2 - body_begin) {
        return 0;
    }
    const uint8_t *topic = at + body_begin + body_size;
    int64_t topic_size = topic[0];
    if (is_v2) {
        topic_size = topic_size << 8 | topic[1];
    }
    topic += 1 + is_v2;
    int64_t left = size - (topic - at) - LENGTH_SIZE;
    if (topic_size > (is_v2 ? INT16_MAX : INT8_MAX) || topic_size > left) {
        return 0;
    }
    const uint8_t *properties = topic + topic_size + LENGTH_SIZE;
    int64_t properties_size = (int64_t)properties[-2] << 8 | properties[-1];
    if (properties_size > INT16_MAX || properties_size != left - topic_size) {
        return 0;
    }
    record->queue = (Queue){{topic, topic_size}, get_i32(at + 12), 0};
    record->queue_offset = get_i64(at + 20);
    record->store_timestamp = get_i64(at + 56 + born_extra);
    record->properties = (Text){properties, properties_size};
    record->tags = record->unique_key = record->keys = (Text){properties, 0};
    find_properties(record);
    return 1;
}

static int
is_same_queue(const Queue *one, const Queue *other)
{
    return one->queue_id == other->queue_id && one->topic.size == other->topic.size
        && memcmp(one->topic.data, other->topic.data, (size_t)one->topic.size) == 0;
}

/* The number of a queue, which is new or not; -1: not for this function. There is always a free place in the table. */
static int64_t
number_of(Columns *columns, Queue *queue)
{
    /* Often that of the message before. */
    if (columns->queues_count > 0 && is_same_queue(&columns->queues[columns->last], queue)) {
        queue->topic_hash = columns->queues[columns->last].topic_hash;
        return columns->last;
    }
    if (!hash_ascii(&queue->topic_hash, queue->topic.data, queue->topic.size)
        || is_text(queue->topic, SCHEDULE_TOPIC, sizeof SCHEDULE_TOPIC - 1)) {
        return -1;
    }
    queue->topic_hash = queue->topic_hash * JAVA_FACTOR + '#';
    uint64_t place = ((uint64_t)queue->topic_hash << 32 | (uint32_t)queue->queue_id) * UINT64_C(0x9E3779B97F4A7C15);
    for (place >>= 20;; place++) {
        int32_t *found = &columns->table[place & (uint64_t)(columns->table_size - 1)];
        if (*found == 0) {
            columns->queues[columns->queues_count++] = *queue;
            *found = (int32_t)columns->queues_count;
        }
        if (is_same_queue(&columns->queues[*found - 1], queue)) {
            columns->last = *found - 1;
            return columns->last;
        }
    }
}

/* Adds a key of a row; 0: not for this function; -1: an exception is set. */
static int
add_key(Columns *columns, int64_t row, uint32_t topic_hash, Text key)
{
    uint32_t hash = topic_hash;
    if (!hash_ascii(&hash, key.data, key.size)) {
        return 0;
    }
    if (columns->keys_count == columns->keys_capacity) {
        int64_t capacity = 2 * columns->keys_capacity;
        int32_t *hashes = PyMem_Realloc(columns->key_hashes, (size_t)capacity * sizeof *hashes);
        if (hashes != NULL) {
            columns->key_hashes = hashes;
        }
        int64_t *rows = PyMem_Realloc(columns->key_rows, (size_t)capacity * sizeof *rows);
        if (rows != NULL) {
            columns->key_rows = rows;
        }
        if (hashes == NULL || rows == NULL) {
            PyErr_NoMemory();
            return -1;
        }
        columns->keys_capacity = capacity;
    }
    columns->key_hashes[columns->keys_count] = (int32_t)positive_hash(hash);
    columns->key_rows[columns->keys_count++] = row;
    return 1;
}

/* Adds UNIQ_KEY, then KEYS split at each space; the result is that of `add_key`. */
static int
add_keys(Columns *columns, int64_t row, uint32_t topic_hash, const Record *record)
{
    int done = record->unique_key.size > 0 ? add_key(columns, row, topic_hash, record->unique_key) : 1;
    const uint8_t *at = record->keys.data, *end = at + record->keys.size;
    while (done == 1 && at < end) {
        const uint8_t *key_end = memchr(at, ' ', (size_t)(end - at));
        if (key_end == NULL) {
            key_end = end;
        }
        if (key_end > at) {
            done = add_key(columns, row, topic_hash, (Text){at, key_end - at});
        }
        at = key_end + 1;
    }
    return done;
}

/* Adds a row; the result is that of `add_key`. */
static int
add_row(Columns *columns, int64_t row, int64_t physical_offset, int64_t size, Record *record)
{
    int64_t number = number_of(columns, &record->queue);
    uint32_t tags_hash = 0;
    if (number < 0 || !hash_ascii(&tags_hash, record->tags.data, record->tags.size)) {
        return 0;
    }
    columns->physical_offsets[row] = physical_offset;
    columns->sizes[row] = (int32_t)size;
    columns->queue_offsets[row] = record->queue_offset;
    columns->tags_codes[row] = tags_hash <= INT32_MAX ? (int64_t)tags_hash : (int64_t)tags_hash - (INT64_C(1) << 32);
    columns->store_timestamps[row] = record->store_timestamp;
    columns->queue_numbers[row] = (int32_t)number;
    columns->is_queued[row] = (record->sys_flag & (PREPARED | INNER_BATCH)) == 0;
    if ((record->sys_flag & ROLLBACK) == ROLLBACK) {
        return 1;
    }
    return add_keys(columns, row, record->queue.topic_hash, record);
}

/* Reads all records; the result is that of `add_key`. */
static int
read_records(Columns *columns, const Py_buffer *buffer, PyObject *starts, PyObject *sizes, int64_t base_offset)
{
    for (Py_ssize_t row = 0; row < PyTuple_Size(starts); row++) {
        int64_t start, size;
        Record record;
        if (!is_number(PyTuple_GetItem(starts, row), 0, buffer->len, &start)
            || !is_number(PyTuple_GetItem(sizes, row), 0, buffer->len - start, &size) || size > INT32_MAX
            || !read_record((const uint8_t *)buffer->buf + start, size, base_offset + start, &record)) {
            return 0;
        }
        int done = add_row(columns, row, base_offset + start, size, &record);
        if (done != 1) {
            return done;
        }
    }
    return 1;
}

static PyObject *
list_of_queues(const Columns *columns)
{
    PyObject *queues = PyList_New((Py_ssize_t)columns->queues_count);
    for (int64_t i = 0; queues != NULL && i < columns->queues_count; i++) {
        const Queue *queue = &columns->queues[i];
        PyObject *pair = Py_BuildValue("s#i", (const char *)queue->topic.data, (Py_ssize_t)queue->topic.size,
                                       (int)queue->queue_id);
        if (pair == NULL || PyList_SetItem(queues, (Py_ssize_t)i, pair) < 0) {
            Py_DECREF(queues);
            return NULL;
        }
    }
    return queues;
}

enum { PHYSICAL_OFFSETS, SIZES, QUEUE_OFFSETS, TAGS_CODES, STORE_TIMESTAMPS, QUEUE_NUMBERS, IS_QUEUED, FIXED };
static const size_t widths[FIXED] = {8, 4, 8, 8, 8, 4, 1};

static PyObject *
columns_of(const Py_buffer *buffer, PyObject *starts, PyObject *sizes, int64_t base_offset)
{
    Py_ssize_t count = PyTuple_Size(starts);
    PyObject *fixed[FIXED] = {NULL}, *queues = NULL, *result = NULL;
    void *places[FIXED];
    int is_good = 1;
    for (int i = 0; i < FIXED; i++) {
        fixed[i] = PyBytes_FromStringAndSize(NULL, count * (Py_ssize_t)widths[i]);
        is_good = is_good && fixed[i] != NULL;
        places[i] = fixed[i] == NULL ? NULL : (void *)PyBytes_AsString(fixed[i]);
    }
    Columns columns = {.physical_offsets = places[PHYSICAL_OFFSETS],
                       .sizes = places[SIZES],
                       .queue_offsets = places[QUEUE_OFFSETS],
                       .tags_codes = places[TAGS_CODES],
                       .store_timestamps = places[STORE_TIMESTAMPS],
                       .queue_numbers = places[QUEUE_NUMBERS],
                       .is_queued = places[IS_QUEUED],
                       .table_size = 16,
                       .keys_capacity = 2 * count + 16};
    while (columns.table_size < 2 * count) {
        columns.table_size *= 2;
    }
    columns.queues = PyMem_Malloc((size_t)(count + 1) * sizeof *columns.queues);
    columns.table = PyMem_Calloc((size_t)columns.table_size, sizeof *columns.table);
    columns.key_hashes = PyMem_Malloc((size_t)columns.keys_capacity * sizeof *columns.key_hashes);
    columns.key_rows = PyMem_Malloc((size_t)columns.keys_capacity * sizeof *columns.key_rows);
    if (columns.queues == NULL || columns.table == NULL || columns.key_hashes == NULL || columns.key_rows == NULL) {
        PyErr_NoMemory();
    } else if (is_good && read_records(&columns, buffer, starts, sizes, base_offset) == 1
               && (queues = list_of_queues(&columns)) != NULL) {
        result = Py_BuildValue("OOOOOOOOy#y#", queues, fixed[PHYSICAL_OFFSETS], fixed[SIZES], fixed[QUEUE_OFFSETS],
                               fixed[TAGS_CODES], fixed[STORE_TIMESTAMPS], fixed[QUEUE_NUMBERS], fixed[IS_QUEUED],
                               (const char *)columns.key_hashes,
                               (Py_ssize_t)(columns.keys_count * (int64_t)sizeof *columns.key_hashes),
                               (const char *)columns.key_rows,
                               (Py_ssize_t)(columns.keys_count * (int64_t)sizeof *columns.key_rows));
    }
    PyMem_Free(columns.key_rows);
    PyMem_Free(columns.key_hashes);
    PyMem_Free(columns.table);
    PyMem_Free(columns.queues);
    Py_XDECREF(queues);
    for (int i = 0; i < FIXED; i++) {
        Py_XDECREF(fixed[i]);
    }
    return result;
}

/* `columns` of commitlog/record/columns.py for valid records of clients: the queues as (topic, queue id), and the
 * columns of a DispatchBatch as bytes; or None. */
PyObject *
record_columns(PyObject *module, PyObject *const *arguments, Py_ssize_t count)
{
    (void)module;
    int64_t base_offset;
    Py_buffer buffer;
    if (count != 4) {
        PyErr_SetString(PyExc_TypeError, "record_columns takes 4 arguments");
        return NULL;
    }
    if (!is_number(arguments[3], -NUMBER_MAX, NUMBER_MAX, &base_offset)) {
        Py_RETURN_NONE;
    }
    PyObject *starts = PySequence_Tuple(arguments[1]), *result = NULL;
    PyObject *sizes = starts == NULL ? NULL : PySequence_Tuple(arguments[2]);
    if (sizes != NULL && PyTuple_Size(starts) == PyTuple_Size(sizes) && PyTuple_Size(starts) <= RECORDS_MAX
        && PyObject_GetBuffer(arguments[0], &buffer, PyBUF_SIMPLE) == 0) {
        result = columns_of(&buffer, starts, sizes, base_offset);
        PyBuffer_Release(&buffer);
    }
    Py_XDECREF(sizes);
    Py_XDECREF(starts);
    if (result == NULL && PyErr_Occurred() == NULL) {
        Py_RETURN_NONE;
    }
    return result;
}
