/* Message records to columns: `decode_rows` of pipeline/columns/decoder.py, for records that have the usual form.
 *
 * None for any that has not: Python then reads all of them. For the lock of Python, and for buffers that change, see
 * records.c. What is checked beyond a record's lengths (UTF-8, separators) is checked in a copy: in the output, or in a
 * buffer for the properties of one message.
 */

#include "records.h"
#include "texts.h"

#define COLUMNS_MAX 16
#define HOSTS_MAX 2
#define US_A_MS 1000
#define ENTRY_CRC_AT 40
#define INDEX_AT 8

/* Parts of a record; body and properties as they are stored. */
enum { BODY, TOPIC, PROPERTIES, PARTS };

typedef struct {
    int64_t position; /* in the head */
    uint8_t *out;
} Column;

typedef struct {
    Column columns[COLUMNS_MAX];
    int64_t count;
} Columns;

typedef struct {
    int64_t position;
    Texts texts;
} Hosts;

/* All of one call. */
typedef struct {
    Buffers buffers;
    Records records;
    int64_t first_index;                    /* -1: not checked */
    int64_t is_crc_checked;
    const uint8_t *refused_topic;           /* of records that are no messages */
    int64_t refused_size;
    Columns ints, longs, times;
    Hosts hosts[HOSTS_MAX];
    int64_t hosts_count;
    Texts parts[PARTS];                     /* body, topic, properties */
    Properties properties;
    HostTexts host_texts;
} Decoding;

/* --------------------------------------------------------------------------------------------------------- one row */

static void
write_fields(const Decoding *all, int64_t row, const uint8_t *head)
{
    for (int64_t number = 0; number < all->ints.count; number++) {
        store_i32(all->ints.columns[number].out, row, get_i32(head + all->ints.columns[number].position));
    }
    for (int64_t number = 0; number < all->longs.count; number++) {
        store_i64(all->longs.columns[number].out, row, get_i64(head + all->longs.columns[number].position));
    }
}

/* Milliseconds to microseconds; 0: one is out of range. */
static int
write_times(const Decoding *all, int64_t row, const uint8_t *head)
{
    for (int64_t number = 0; number < all->times.count; number++) {
        int64_t value = get_i64(head + all->times.columns[number].position);
        if (value > INT64_MAX / US_A_MS || value < -(INT64_MAX / US_A_MS)) {
            return 0;
        }
        store_i64(all->times.columns[number].out, row, value * US_A_MS);
    }
    return 1;
}

static int
write_texts(Decoding *all, int64_t row, const uint8_t *head, const Places *places)
{
    const uint8_t *data = all->records.data, *end = data + all->records.size;
    const int64_t begins[PARTS] = {places->body, places->topic, places->properties};
    const int64_t ends[PARTS] = {places->body_end, places->topic_end, places->end};
    for (int number = 0; number < PARTS; number++) {
        Texts *part = &all->parts[number];
        if (part->offsets != NULL
            && !add_text(part, row, data + begins[number], ends[number] - begins[number], end)) {
            return 0;
        }
    }
    for (int64_t number = 0; number < all->hosts_count; number++) {
        Hosts *hosts = &all->hosts[number];
        if (!add_host(&hosts->texts, row, &all->host_texts, get_u64(head + hosts->position))) {
            return 0;
        }
    }
    return !has_outputs(&all->properties)
        || split_properties(&all->properties, row, data + places->properties, places->end - places->properties,
                            end);
}

/* Whether this is a record of the topic that is refused, or the entry is not the one that is expected. */
static int
is_other(const Decoding *all, int64_t row, const uint8_t *head, const Places *places)
{
    const uint8_t *record = all->records.data + places->body - FIELDS_SIZE;
    int64_t topic_size = places->topic_end - places->topic;
    if (all->refused_size > 0 && topic_size == all->refused_size
        && memcmp(all->records.data + places->topic, all->refused_topic, (size_t)topic_size) == 0) {
        return 1;
    }
    if (all->first_index >= 0 && get_i64(head + INDEX_AT) != all->first_index + row) {
        return 1;
    }
    if (!all->is_crc_checked) {
        return 0;
    }
    uint32_t crc = get_u32(head + ENTRY_CRC_AT);
    return crc == 0 || crc != crc32c(record, (size_t)(places->end - places->body + FIELDS_SIZE));
}

static int
decode_all(Decoding *all)
{
    uint8_t head[HEAD_SIZE_MAX];
    Places places;
    for (int64_t row = 0; row < all->records.count; row++) {
        prefetch_record(&all->records, row);
        if (check_record(&all->records, row, head, &places) != 1 || is_other(all, row, head, &places)
            || !write_times(all, row, head) || !write_texts(all, row, head, &places)) {
            return 0;
        }
        write_fields(all, row, head);
    }
    const Texts *topics = &all->parts[TOPIC];
    return (topics->offsets == NULL || are_utf8(topics, all->records.count))
        && are_properties_utf8(&all->properties, all->records.count);
}

/* ------------------------------------------------------------------------------------------------------- arguments */

/* The item of a tuple; NULL: there is none, or it is no tuple; no exception is set. */
static PyObject *
item(PyObject *tuple, int64_t number)
{
    return tuple != NULL && PyTuple_Check(tuple) && number < PyTuple_Size(tuple)
        ? PyTuple_GetItem(tuple, (Py_ssize_t)number)
        : NULL;
}

static int64_t
size_of(PyObject *tuple)
{
    return tuple != NULL && PyTuple_Check(tuple) ? PyTuple_Size(tuple) : 0;
}

static int
is_position(PyObject *value, const Decoding *all, int64_t width, int64_t *result)
{
    return value != NULL && is_number(value, 0, all->records.header_size + FIELDS_SIZE - width, result);
}

static int
take_columns(Decoding *all, Columns *columns, PyObject *given, int64_t width)
{
    columns->count = size_of(given);
    for (int64_t number = 0; number < columns->count; number++) {
        if (number == COLUMNS_MAX) {
            return 0;
        }
        Column *column = &columns->columns[number];
        PyObject *pair = item(given, number);
        if (!is_position(item(pair, 0), all, width, &column->position)
            || (column->out = take_buffer(&all->buffers, item(pair, 1), 1, width * all->records.count)) == NULL) {
            return 0;
        }
    }
    return 1;
}

static int
take_texts(Decoding *all, Texts *texts, PyObject *offsets, PyObject *data, int64_t count_min)
{
    if ((texts->offsets = take_buffer(&all->buffers, offsets, 1, 4 * (count_min + 1))) == NULL) {
        return 0;
    }
    texts->count_max = last_size(&all->buffers) / 4 - 1;
    if ((texts->data = take_buffer(&all->buffers, data, 1, 0)) == NULL) {
        return 0;
    }
    texts->capacity = last_size(&all->buffers) < INT32_MAX ? last_size(&all->buffers) : INT32_MAX;
    texts->at = 0;
    store_i32(texts->offsets, 0, 0);
    return 1;
}

static int
take_hosts(Decoding *all, PyObject *given)
{
    all->hosts_count = size_of(given);
    for (int64_t number = 0; number < all->hosts_count; number++) {
        PyObject *of = item(given, number);
        if (number == HOSTS_MAX || !is_position(item(of, 0), all, 8, &all->hosts[number].position)
            || !take_texts(all, &all->hosts[number].texts, item(of, 1), item(of, 2), all->records.count)) {
            return 0;
        }
    }
    return 1;
}

static int
take_properties(Decoding *all, PyObject *wanted, PyObject *map)
{
    Properties *properties = &all->properties;
    int64_t rows = all->records.count, bitmap_size = (rows + 7) / 8;
    properties->wanted_count = size_of(wanted);
    for (int64_t number = 0; number < properties->wanted_count; number++) {
        PyObject *of = item(wanted, number);
        Wanted *each = &properties->wanted[number];
        if (number == WANTED_NAMES_MAX || (each->name = take_buffer(&all->buffers, item(of, 0), 0, 0)) == NULL) {
            return 0;
        }
        each->name_size = last_size(&all->buffers);
        if ((each->validity = take_buffer(&all->buffers, item(of, 1), 1, bitmap_size)) == NULL
            || !take_texts(all, &each->values, item(of, 2), item(of, 3), rows)) {
            return 0;
        }
        memset(each->validity, 0, (size_t)bitmap_size);
    }
    if (size_of(map) == 0) {
        return 1;
    }
    if ((properties->firsts = take_buffer(&all->buffers, item(map, 0), 1, 4 * (rows + 1))) == NULL) {
        return 0;
    }
    store_i32(properties->firsts, 0, 0);
    return take_texts(all, &properties->names, item(map, 1), item(map, 2), 0)
        && take_texts(all, &properties->values, item(map, 3), item(map, 4), 0);
}

static int
take_parts(Decoding *all, PyObject *given)
{
    for (int number = 0; number < PARTS; number++) {
        PyObject *of = item(given, number);
        if (size_of(of) > 0 && !take_texts(all, &all->parts[number], item(of, 0), item(of, 1), all->records.count)) {
            return 0;
        }
    }
    return 1;
}

static int
take_all(Decoding *all, PyObject *const *arguments)
{
    PyObject *outputs = arguments[7];
    all->records.is_placed = arguments[3] != Py_None;
    if (!take_records(&all->buffers, &all->records, arguments)
        || (all->records.is_placed && !is_number(arguments[3], -NUMBER_MAX, NUMBER_MAX, &all->records.displacement))
        || !is_number(arguments[4], -1, NUMBER_MAX, &all->first_index)
        || !is_number(arguments[5], 0, 1, &all->is_crc_checked)
        || (all->refused_topic = take_buffer(&all->buffers, arguments[6], 0, 0)) == NULL) {
        return 0;
    }
    all->refused_size = last_size(&all->buffers);
    int64_t has_headers;
    if (item(outputs, 0) == NULL || !is_number(item(outputs, 0), 0, 1, &has_headers)
        || (!has_headers && (all->is_crc_checked || all->first_index >= 0))) {
        return 0;
    }
    all->records.header_size = has_headers ? HEADER_SIZE : 0;
    return take_columns(all, &all->ints, item(outputs, 1), 4) && take_columns(all, &all->longs, item(outputs, 2), 8)
        && take_columns(all, &all->times, item(outputs, 3), 8) && take_hosts(all, item(outputs, 4))
        && take_parts(all, item(outputs, 5)) && take_properties(all, item(outputs, 6), item(outputs, 7));
}

/* ---------------------------------------------------------------------------------------------------------- result */

/* Set the next number of a tuple; 0: an exception is set. */
static int
add_number(PyObject *tuple, Py_ssize_t *at, int64_t value)
{
    PyObject *number = PyLong_FromLongLong(value);
    return number != NULL && PyTuple_SetItem(tuple, (*at)++, number) == 0;
}

/* The bytes that are used of each output: hosts, body, topic, properties; of each property that was looked for the
 * messages that have it and the bytes of its values; all properties, and the bytes of their names and values. */
static PyObject *
sizes_of(const Decoding *all)
{
    const Properties *properties = &all->properties;
    Py_ssize_t at = 0;
    PyObject *result = PyTuple_New((Py_ssize_t)(all->hosts_count + PARTS + 2 * properties->wanted_count + 3));
    int is_good = result != NULL;
    for (int64_t number = 0; is_good && number < all->hosts_count; number++) {
        is_good = add_number(result, &at, all->hosts[number].texts.at);
    }
    for (int number = 0; is_good && number < PARTS; number++) {
        is_good = add_number(result, &at, all->parts[number].at);
    }
    for (int64_t number = 0; is_good && number < properties->wanted_count; number++) {
        is_good = add_number(result, &at, properties->wanted[number].found)
            && add_number(result, &at, properties->wanted[number].values.at);
    }
    is_good = is_good && add_number(result, &at, properties->count) && add_number(result, &at, properties->names.at)
        && add_number(result, &at, properties->values.at);
    if (!is_good) {
        Py_CLEAR(result);
    }
    return result;
}

/* (buffer, begins, ends, displacement or None, first index or -1, is_crc_checked, refused topic, outputs): see
 * `decode_records` of dledger/native/__init__.py. */
PyObject *
decode_records(PyObject *module, PyObject *const *arguments, Py_ssize_t count)
{
    (void)module;
    if (count != 8) {
        PyErr_SetString(PyExc_TypeError, "decode_records takes 8 arguments");
        return NULL;
    }
    /* Some tens of KiB. */
    Decoding *all = PyMem_Calloc(1, sizeof *all);
    if (all == NULL) {
        return PyErr_NoMemory();
    }
    PyObject *result = NULL;
    if (take_all(all, arguments)) {
        int is_done;
        Py_BEGIN_ALLOW_THREADS
        is_done = decode_all(all);
        Py_END_ALLOW_THREADS
        result = is_done ? sizes_of(all) : NULL;
    }
    result = finish(&all->buffers, result);
    PyMem_Free(all);
    return result;
}
