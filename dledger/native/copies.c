/* The messages that replace records which wait: `copied_in_python` of commitlog/record/copied_records.py.
 *
 * As in puts.c: the lock of Python is held, and what is rare is left to Python: the rows before it are returned.
 */

#include "kernels.h"
#include "layouts.h"

#define ROW_SIZE 9
#define COPY_SIZE 10
#define DIGITS_MAX 20
#define IPV4_SIZE 8
#define IPV6_HOSTS (BORN_HOST_IPV6 | STORE_HOST_IPV6)
#define NAME_END 0x01
#define PROPERTY_END 0x02

static const char EFFECT[] = "__EFFECT\x01";
static const char REAL_TOPIC[] = "REAL_TOPIC";
static const char REAL_QUEUE_ID[] = "REAL_QID";

enum { BEGIN, END, BODY, BODY_END, TOPIC, TOPIC_END, QUEUE_ID, QUEUE_OFFSET, SYS_FLAG };

/* Bytes of a buffer. */
typedef struct {
    const char *data;
    Py_ssize_t size;
} Part;

typedef struct {
    const char *buffer;
    int64_t buffer_size, queue_id;
    PyObject *rows, *units; /* tuples of as many */
    Part topic, before_time, before_unit;
    /* The last value of real topic, real queue and born host: mostly that of the next record, too. */
    PyObject *kept[3];
} Copying;

enum { KEPT_TOPIC, KEPT_QUEUE, KEPT_HOST, KEPT };

/* The value of a property, empty if there is none; of equal names the last value that is not empty counts. */
static void
find_real(Part properties, Part *topic, Part *queue)
{
    const char *at = properties.data, *end = at + properties.size;
    topic->size = queue->size = 0;
    topic->data = queue->data = at;
    while (at < end) {
        const char *part_end = memchr(at, PROPERTY_END, (size_t)(end - at));
        part_end = part_end == NULL ? end : part_end;
        const char *name_end = memchr(at, NAME_END, (size_t)(part_end - at));
        if (name_end != NULL && part_end - name_end > 1) {
            size_t size = (size_t)(name_end - at);
            Part *found = NULL;
            if (size == sizeof REAL_TOPIC - 1 && memcmp(at, REAL_TOPIC, size) == 0) {
                found = topic;
            }
            else if (size == sizeof REAL_QUEUE_ID - 1 && memcmp(at, REAL_QUEUE_ID, size) == 0) {
                found = queue;
            }
            if (found != NULL) {
                found->data = name_end + 1;
                found->size = part_end - name_end - 1;
            }
        }
        if (part_end == end) {
            return;
        }
        at = part_end + 1;
    }
}

/* Remove the effect of an earlier record, if it is the last property; 0: it is elsewhere, for Python. */
static int
cut_effect(Part *properties)
{
    const Py_ssize_t mark_size = sizeof EFFECT - 1;
    int64_t begin = find(properties->data, properties->size, 0, EFFECT, mark_size);
    if (begin < 0) {
        return 1;
    }
    const char *end = memchr(properties->data + begin, PROPERTY_END, (size_t)(properties->size - begin));
    if ((begin > 0 && properties->data[begin - 1] != PROPERTY_END)
        || (end != NULL && end + 1 != properties->data + properties->size)) {
        return 0;
    }
    properties->size = (Py_ssize_t)begin;
    return 1;
}

/* Write a number in decimal digits, which is not negative; return their number. */
static Py_ssize_t
put_decimal(char *at, int64_t value)
{
    char digits[DIGITS_MAX];
    Py_ssize_t size = 0;
    do {
        digits[size++] = (char)('0' + value % 10);
        value /= 10;
    } while (value > 0);
    for (Py_ssize_t digit = 0; digit < size; digit++) {
        at[digit] = digits[size - 1 - digit];
    }
    return size;
}

static char *
put_part(char *at, Part part)
{
    memcpy(at, part.data, (size_t)part.size);
    return at + part.size;
}

/* The properties of a copy; NULL: an exception. */
static PyObject *
properties_of(const Copying *copying, Part kept, int64_t time, int64_t unit)
{
    char time_digits[DIGITS_MAX], unit_digits[DIGITS_MAX];
    Part time_text = {time_digits, copying->before_time.size > 0 ? put_decimal(time_digits, time) : 0};
    Part unit_text = {unit_digits, put_decimal(unit_digits, unit)};
    int is_open = kept.size > 0 && kept.data[kept.size - 1] != PROPERTY_END;
    PyObject *properties = PyBytes_FromStringAndSize(
        NULL,
        kept.size + is_open + copying->before_time.size + time_text.size + copying->before_unit.size + unit_text.size
            + 1);
    if (properties == NULL) {
        return NULL;
    }
    char *at = put_part(PyBytes_AsString(properties), kept);
    if (is_open) {
        *at++ = PROPERTY_END;
    }
    at = put_part(put_part(at, copying->before_time), time_text);
    at = put_part(put_part(at, copying->before_unit), unit_text);
    *at = PROPERTY_END;
    return properties;
}

/* A new reference of bytes, which are those of the record before, if they are equal; NULL: an exception. */
static PyObject *
kept_bytes(Copying *copying, int which, Part part)
{
    PyObject *kept = copying->kept[which];
    if (kept == NULL || PyBytes_Size(kept) != part.size
        || memcmp(PyBytes_AsString(kept), part.data, (size_t)part.size) != 0) {
        Py_XDECREF(kept);
        kept = copying->kept[which] = PyBytes_FromStringAndSize(part.data, part.size);
    }
    Py_XINCREF(kept);
    return kept;
}

/* Take a row; 0: it is not one of a record of the queue that has this unit. */
static int
take_row(const Copying *copying, Py_ssize_t at, int64_t *row)
{
    PyObject *tuple = PyTuple_GetItem(copying->rows, at);
    int64_t unit;
    if (!PyTuple_Check(tuple) || PyTuple_Size(tuple) != ROW_SIZE
        || !is_number(PyTuple_GetItem(copying->units, at), 0, NUMBER_MAX, &unit)) {
        return 0;
    }
    for (int place = 0; place < ROW_SIZE; place++) {
        if (!is_number(PyTuple_GetItem(tuple, place), -NUMBER_MAX, NUMBER_MAX, &row[place])) {
            return 0;
        }
    }
    return row[BEGIN] >= 0 && row[BODY] - row[BEGIN] >= FIELDS_SIZE && row[BODY_END] >= row[BODY]
        && row[TOPIC] >= row[BODY_END] && row[TOPIC_END] >= row[TOPIC] && row[END] - row[TOPIC_END] >= LENGTH_SIZE
        && row[END] <= copying->buffer_size && row[QUEUE_OFFSET] == unit && row[QUEUE_ID] == copying->queue_id
        && !(row[SYS_FLAG] & IPV6_HOSTS) && row[TOPIC_END] - row[TOPIC] == copying->topic.size
        && memcmp(copying->buffer + row[TOPIC], copying->topic.data, (size_t)copying->topic.size) == 0;
}

/* The copy of one record; NULL: it is for Python, or an exception is set. */
static PyObject *
copy_of(Copying *copying, Py_ssize_t number)
{
    int64_t row[ROW_SIZE];
    if (!take_row(copying, number, row)) {
        return NULL;
    }
    const uint8_t *fields = (const uint8_t *)copying->buffer + row[BEGIN];
    const char *raw = copying->buffer + row[TOPIC_END] + LENGTH_SIZE;
    Part topic, queue, properties = {raw, (Py_ssize_t)(row[END] - row[TOPIC_END] - LENGTH_SIZE)};
    int64_t time = get_i64(fields + 56);
    find_real(properties, &topic, &queue);
    if (time < 0 || !cut_effect(&properties)) {
        return NULL;
    }
    PyObject *parts[COPY_SIZE] = {
        kept_bytes(copying, KEPT_TOPIC, topic),
        PyBytes_FromStringAndSize(copying->buffer + row[BODY], (Py_ssize_t)(row[BODY_END] - row[BODY])),
        kept_bytes(copying, KEPT_QUEUE, queue),
        properties_of(copying, properties, time, row[QUEUE_OFFSET]),
        PyLong_FromLongLong(get_i32(fields + 16)),
        PyLong_FromLongLong(row[SYS_FLAG] | CARRIES_EFFECT),
        PyLong_FromLongLong(get_i64(fields + 40)),
        kept_bytes(copying, KEPT_HOST, (Part){(const char *)fields + 48, IPV4_SIZE}),
        PyLong_FromLongLong(get_i32(fields + 72)),
        PyLong_FromLongLong(get_i64(fields + 76)),
    };
    PyObject *copy = PyTuple_New(COPY_SIZE);
    int is_whole = copy != NULL;
    for (int at = 0; at < COPY_SIZE; at++) {
        if (parts[at] == NULL || copy == NULL) {
            is_whole = 0;
            Py_XDECREF(parts[at]);
        }
        else {
            PyTuple_SetItem(copy, at, parts[at]);
        }
    }
    if (!is_whole) {
        Py_CLEAR(copy);
    }
    return copy;
}

static PyObject *
copies_of(Copying *copying)
{
    PyObject *copies = PyList_New(0);
    for (Py_ssize_t row = 0; copies != NULL && row < PyTuple_Size(copying->rows); row++) {
        PyObject *copy = copy_of(copying, row);
        if (copy == NULL || PyList_Append(copies, copy) < 0) {
            Py_XDECREF(copy);
            break;
        }
        Py_DECREF(copy);
    }
    if (PyErr_Occurred()) {
        Py_CLEAR(copies);
    }
    return copies;
}

static int
take_part(PyObject *value, Part *part)
{
    return take_bytes(value, &part->data, &part->size) && part->size <= INT16_MAX;
}

/* `copied_in_python` of commitlog/record/copied_records.py: a list of the copies of the first records; or None. */
PyObject *
copy_records(PyObject *module, PyObject *const *arguments, Py_ssize_t count)
{
    (void)module;
    Py_buffer view;
    Copying copying = {0};
    PyObject *copies = NULL;
    if (count != 7) {
        PyErr_SetString(PyExc_TypeError, "copy_records takes 7 arguments");
        return NULL;
    }
    if (!take_part(arguments[3], &copying.topic) || !is_number(arguments[4], 0, INT32_MAX, &copying.queue_id)
        || !take_part(arguments[5], &copying.before_time) || !take_part(arguments[6], &copying.before_unit)) {
        Py_RETURN_NONE;
    }
    copying.rows = PySequence_Tuple(arguments[1]);
    copying.units = copying.rows == NULL ? NULL : PySequence_Tuple(arguments[2]);
    if (copying.units != NULL && PyTuple_Size(copying.rows) == PyTuple_Size(copying.units)
        && PyObject_GetBuffer(arguments[0], &view, PyBUF_SIMPLE) == 0) {
        copying.buffer = view.buf;
        copying.buffer_size = (int64_t)view.len;
        copies = copies_of(&copying);
        PyBuffer_Release(&view);
    }
    for (int which = 0; which < KEPT; which++) {
        Py_XDECREF(copying.kept[which]);
    }
    Py_XDECREF(copying.units);
    Py_XDECREF(copying.rows);
    if (copies == NULL && !PyErr_Occurred()) {
        Py_RETURN_NONE;
    }
    return copies;
}
