/* Finds and checks the records of one read: `located_in_python` and `split_in_python` of
 * commitlog/record/record_runs.py, with the checksums of bodies.
 *
 * A record becomes a row: `RecordRow` of commitlog/record/record.py. The lock of Python is released where many bytes
 * are checked, which may have to be read from the disk first.
 */

#include "records.h"

#define ROW_SIZE 9
#define CRC_MASK UINT32_C(0x7FFFFFFF)
/* Bytes of records from which on the lock is released: 16 us of checks, or the number of a usual read. */
#define UNLOCKED_SIZE_MIN (64 << 10)

typedef struct {
    Places places;
    int64_t queue_id, queue_offset, sys_flag;
} Row;

/* Records of a read: their number, the arrays of `Records`, and a row for each. */
typedef struct {
    uint8_t *begins, *ends;
    Row *rows;
    int64_t size;
} Run;

/* Allocate a run of at most `count` records; 0: an exception. */
static int
make_run(Run *run, int64_t count)
{
    run->rows = PyMem_Malloc(((size_t)count + 1) * (sizeof(Row) + 8 + 8));
    if (run->rows == NULL) {
        PyErr_NoMemory();
        return 0;
    }
    run->begins = (uint8_t *)(run->rows + count + 1);
    run->ends = run->begins + 8 * (count + 1);
    run->size = 0;
    return 1;
}

/* Check records up to the first that is not valid; return their number. The outcome of the one after them is that of
 * `check_record`. */
static int64_t
check_run(const Records *records, Row *rows, int *outcome)
{
    uint8_t head[HEAD_SIZE_MAX];
    int64_t row = 0;
    for (*outcome = 1; row < records->count; row++) {
        Places *places = &rows[row].places;
        prefetch_record(records, row);
        *outcome = check_record(records, row, head, places);
        if (*outcome != 1) {
            return row;
        }
        const uint8_t *record = head + records->header_size;
        if (places->body < places->body_end
            && get_u32(record + 8)
                != (crc32(records->data + places->body, (size_t)(places->body_end - places->body)) & CRC_MASK)) {
            *outcome = 0;
            return row;
        }
        rows[row].queue_id = get_i32(record + 12);
        rows[row].queue_offset = get_i64(record + 20);
        rows[row].sys_flag = get_i32(record + 36);
    }
    return row;
}

static PyObject *
row_of(const Row *row, int64_t begin)
{
    const Places *places = &row->places;
    const int64_t numbers[ROW_SIZE] = {
        begin,         places->end,       places->body,  places->body_end,  places->topic,
        places->topic_end, row->queue_id, row->queue_offset, row->sys_flag,
    };
    PyObject *result = PyTuple_New(ROW_SIZE);
    for (int at = 0; result != NULL && at < ROW_SIZE; at++) {
        PyObject *number = PyLong_FromLongLong(numbers[at]);
        if (number == NULL) {
            Py_CLEAR(result);
        }
        else {
            PyTuple_SetItem(result, at, number);
        }
    }
    return result;
}

/* Check the records of a run; return a list of the rows of the valid ones at the start, or NULL: an exception, or for
 * Python, because one is rare and `is_each` is set. */
static PyObject *
checked(Records *records, const Run *run, int is_each)
{
    int outcome;
    int64_t good;
    records->begins = run->begins;
    records->ends = run->ends;
    if (run->size < UNLOCKED_SIZE_MIN) {
        good = check_run(records, run->rows, &outcome);
    }
    else {
        Py_BEGIN_ALLOW_THREADS
        good = check_run(records, run->rows, &outcome);
        Py_END_ALLOW_THREADS
    }
    if (outcome < 0 && is_each) {
        return NULL;
    }
    PyObject *rows = PyList_New((Py_ssize_t)good);
    for (int64_t at = 0; rows != NULL && at < good; at++) {
        PyObject *row = row_of(&run->rows[at], load_i64(run->begins, at));
        if (row == NULL) {
            Py_CLEAR(rows);
        }
        else {
            PyList_SetItem(rows, (Py_ssize_t)at, row);
        }
    }
    return rows;
}

/* Take the records at these offsets up to one that is out of order or beyond the end; 0: for Python. */
static int
place_run(Run *run, Records *records, PyObject *places, PyObject *sizes, int64_t begin, int64_t end)
{
    records->count = 0;
    for (Py_ssize_t at = 0; at < PyList_Size(places); at++) {
        int64_t place, size;
        if (!is_number(PyList_GetItem(places, at), -NUMBER_MAX, NUMBER_MAX, &place)
            || !is_number(PyList_GetItem(sizes, at), -NUMBER_MAX, NUMBER_MAX, &size)) {
            return 0;
        }
        if (place < begin || size <= 0 || size > end - place) {
            return 1;
        }
        store_i64(run->begins, at, place - records->displacement);
        store_i64(run->ends, at, place - records->displacement + size);
        records->count++;
        run->size += size;
        begin = place + size;
    }
    return 1;
}

/* `located_in_python` of commitlog/record/record_runs.py, and the checksums of bodies: a list of rows; or None. */
PyObject *
locate_records(PyObject *module, PyObject *const *arguments, Py_ssize_t count)
{
    (void)module;
    Buffers buffers = {.count = 0};
    Records records = {.is_placed = 1};
    Run run;
    int64_t begin, end, has_headers;
    if (count != 7) {
        PyErr_SetString(PyExc_TypeError, "locate_records takes 7 arguments");
        return NULL;
    }
    PyObject *places = arguments[1], *sizes = arguments[2], *rows = NULL;
    if (!PyList_Check(places) || !PyList_Check(sizes) || PyList_Size(places) != PyList_Size(sizes)
        || !is_number(arguments[3], -NUMBER_MAX, NUMBER_MAX, &records.displacement)
        || !is_number(arguments[4], 0, NUMBER_MAX, &begin) || !is_number(arguments[5], 0, NUMBER_MAX, &end)
        || !is_number(arguments[6], 0, 1, &has_headers)
        || (records.data = take_buffer(&buffers, arguments[0], 0, 0)) == NULL
        || !make_run(&run, (int64_t)PyList_Size(places))) {
        return finish(&buffers, NULL);
    }
    records.size = last_size(&buffers);
    records.header_size = has_headers ? HEADER_SIZE : 0;
    if (place_run(&run, &records, places, sizes, begin, end)) {
        rows = checked(&records, &run, 1);
    }
    PyMem_Free(run.rows);
    return finish(&buffers, rows);
}

/* The position after the record at `at`, by its size; 0: there is none. */
static int64_t
end_of_record(const Records *records, int64_t at)
{
    if (records->size - at < RECORD_SIZE_MIN) {
        return 0;
    }
    int64_t size = get_i32(records->data + at);
    return size < RECORD_SIZE_MIN || size > records->size - at ? 0 : at + size;
}

/* `split_in_python` of commitlog/record/record_runs.py: a list of rows, up to one that is rare or not valid; or None.
 */
PyObject *
split_records(PyObject *module, PyObject *const *arguments, Py_ssize_t count)
{
    (void)module;
    Buffers buffers = {.count = 0};
    Records records = {.is_placed = 0};
    Run run;
    if (count != 1) {
        PyErr_SetString(PyExc_TypeError, "split_records takes 1 argument");
        return NULL;
    }
    if ((records.data = take_buffer(&buffers, arguments[0], 0, 0)) == NULL) {
        return finish(&buffers, NULL);
    }
    records.size = last_size(&buffers);
    for (int64_t at = 0; (at = end_of_record(&records, at)) > 0;) {
        records.count++;
    }
    if (!make_run(&run, records.count)) {
        return finish(&buffers, NULL);
    }
    run.size = records.size;
    int64_t at = 0, found = 0;
    for (int64_t next; found < records.count && (next = end_of_record(&records, at)) > 0; at = next, found++) {
        store_i64(run.begins, found, at);
        store_i64(run.ends, found, next);
    }
    records.count = found;
    PyObject *rows = checked(&records, &run, 0);
    PyMem_Free(run.rows);
    return finish(&buffers, rows);
}
