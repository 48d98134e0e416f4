/* Checks message records at known places, and `good_rows` of commitlog/record/rows.py.
 *
 * `check_records` releases the lock of Python: a call takes up to some milliseconds, and creates no object meanwhile.
 * The buffer may be a file that another process writes to. So a number of it is read once, into a copy, and is compared
 * with the end of the record before it is used: a change meanwhile may be seen in the result, but leads nowhere outside
 * the buffer.
 */

#include "records.h"

#define IPV6_HOSTS (BORN_HOST_IPV6 | STORE_HOST_IPV6)

/* Records that are fetched into the cache ahead of their check, and bytes of a usual record's end. */
#define AHEAD 12
#define LINE 64
#define TAIL_LINES 2

#if defined(__GNUC__)
#define PREFETCH(at) __builtin_prefetch(at)
#else
#define PREFETCH(at) ((void)(at))
#endif

uint8_t *
take_buffer(Buffers *buffers, PyObject *object, int is_written, int64_t size)
{
    static uint8_t nothing;
    Py_buffer *view = &buffers->views[buffers->count];
    if (object == NULL || buffers->count == BUFFERS_MAX
        || PyObject_GetBuffer(object, view, is_written ? PyBUF_WRITABLE : PyBUF_SIMPLE) < 0) {
        PyErr_Clear();
        return NULL;
    }
    buffers->count++;
    return view->len < size ? NULL : view->buf == NULL ? &nothing : view->buf;
}

int64_t
last_size(const Buffers *buffers)
{
    return buffers->views[buffers->count - 1].len;
}

PyObject *
finish(Buffers *buffers, PyObject *result)
{
    while (buffers->count > 0) {
        PyBuffer_Release(&buffers->views[--buffers->count]);
    }
    if (result == NULL && !PyErr_Occurred()) {
        Py_RETURN_NONE;
    }
    return result;
}

int
take_records(Buffers *buffers, Records *records, PyObject *const *arguments)
{
    if ((records->data = take_buffer(buffers, arguments[0], 0, 0)) == NULL) {
        return 0;
    }
    records->size = last_size(buffers);
    if ((records->begins = take_buffer(buffers, arguments[1], 0, 0)) == NULL) {
        return 0;
    }
    records->count = last_size(buffers) / 8;
    return (records->ends = take_buffer(buffers, arguments[2], 0, 8 * records->count)) != NULL;
}

void
prefetch_record(const Records *records, int64_t row)
{
    if (row + AHEAD >= records->count) {
        return;
    }
    int64_t begin = load_i64(records->begins, row + AHEAD), end = load_i64(records->ends, row + AHEAD);
    if (begin < HEADER_SIZE || end > records->size || begin > end || end - begin < HEAD_SIZE_MAX) {
        return;
    }
    for (int64_t at = begin - HEADER_SIZE; at < begin + FIELDS_SIZE; at += LINE) {
        PREFETCH(records->data + at);
    }
    for (int line = 1; line <= TAIL_LINES; line++) {
        PREFETCH(records->data + end - line * LINE);
    }
}

/* Whether the header is that of a client's entry with this record. */
static int
is_header(const uint8_t *header, int64_t physical_offset, int64_t record_size)
{
    return get_u32(header) == ENTRY_NORMAL && get_u32(header + 32) == 0
        && get_i64(header + 24) == physical_offset - HEADER_SIZE && get_i32(header + 44) == record_size
        && get_i32(header + 4) == record_size + HEADER_SIZE;
}

int
check_record(const Records *records, int64_t row, uint8_t *head, Places *places)
{
    int64_t begin = load_i64(records->begins, row), end = load_i64(records->ends, row);
    if (begin < records->header_size || end < begin || end > records->size) {
        return -1;
    }
    if (end - begin < RECORD_SIZE_MIN) {
        return 0;
    }
    const uint8_t *record = head + records->header_size, *at = records->data + begin;
    if (records->header_size) {
        memcpy(head, at - HEADER_SIZE, HEAD_SIZE_MAX);
    }
    else {
        memcpy(head, at, FIELDS_SIZE);
    }
    uint32_t magic = get_u32(record + 4);
    int is_v2 = magic == MAGIC_V2;
    int64_t size = get_i32(record), physical_offset = get_i64(record + 28), body_size = get_i32(record + 84);
    if ((!is_v2 && magic != MAGIC_V1) || size != end - begin
        || (records->is_placed && physical_offset != begin + records->displacement)
        || (records->is_placed && records->header_size && !is_header(head, physical_offset, size))) {
        return 0;
    }
    if (get_u32(record + 36) & IPV6_HOSTS) {
        return -1;
    }
    places->body = begin + FIELDS_SIZE;
    places->end = end;
    if (body_size < 0 || body_size > end - places->body - 3 - is_v2) {
        return 0;
    }
    places->body_end = places->body + body_size;
    places->topic = places->body_end + 1 + is_v2;
    at = records->data + places->body_end;
    int topic_size = is_v2 ? at[0] << 8 | at[1] : at[0];
    /* The sign bit: a negative size. */
    if (topic_size > (is_v2 ? INT16_MAX : INT8_MAX) || topic_size > end - places->topic - 2) {
        return 0;
    }
    places->topic_end = places->topic + topic_size;
    places->properties = places->topic_end + 2;
    at = records->data + places->topic_end;
    int properties_size = at[0] << 8 | at[1];
    return properties_size <= INT16_MAX && properties_size == end - places->properties;
}

/* `good_rows` of commitlog/record/rows.py: the number of valid records at the start, or None. */
PyObject *
check_records(PyObject *module, PyObject *const *arguments, Py_ssize_t count)
{
    (void)module;
    Buffers buffers = {.count = 0};
    Records records = {.is_placed = 1};
    uint8_t *heads, *positions;
    int64_t has_headers;
    if (count != 7) {
        PyErr_SetString(PyExc_TypeError, "check_records takes 7 arguments");
        return NULL;
    }
    if (!is_number(arguments[3], -NUMBER_MAX, NUMBER_MAX, &records.displacement)
        || !is_number(arguments[4], 0, 1, &has_headers) || !take_records(&buffers, &records, arguments)) {
        return finish(&buffers, NULL);
    }
    records.header_size = has_headers ? HEADER_SIZE : 0;
    int64_t head_size = records.header_size + FIELDS_SIZE, row = 0;
    if ((heads = take_buffer(&buffers, arguments[5], 1, head_size * records.count)) == NULL
        || (positions = take_buffer(&buffers, arguments[6], 1, 4 * 8 * records.count)) == NULL) {
        return finish(&buffers, NULL);
    }
    int outcome = 1;
    Py_BEGIN_ALLOW_THREADS
    for (; row < records.count; row++) {
        Places places;
        prefetch_record(&records, row);
        outcome = check_record(&records, row, heads + row * head_size, &places);
        if (outcome != 1) {
            break;
        }
        store_i64(positions, row, places.body);
        store_i64(positions, records.count + row, places.body_end);
        store_i64(positions, 2 * records.count + row, places.topic);
        store_i64(positions, 3 * records.count + row, places.topic_end);
    }
    Py_END_ALLOW_THREADS
    return finish(&buffers, outcome < 0 ? NULL : PyLong_FromLongLong(row));
}
