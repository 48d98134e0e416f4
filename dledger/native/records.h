/* Message records: what their check, and their conversion to columns, share. Layout: commitlog/record/record.py. */

#ifndef DLEDGER_RECORDS_H
#define DLEDGER_RECORDS_H

#include "kernels.h"
#include "layouts.h"

#define HEAD_SIZE_MAX (HEADER_SIZE + FIELDS_SIZE)

/* Buffers that a call has taken. */
#define BUFFERS_MAX 96

typedef struct {
    Py_buffer views[BUFFERS_MAX];
    int count;
} Buffers;

/* Take a buffer of at least `size` bytes; NULL: it is not one, or smaller; no exception is set. */
uint8_t *take_buffer(Buffers *buffers, PyObject *object, int is_written, int64_t size);

/* The size of the buffer that was taken last. */
int64_t last_size(const Buffers *buffers);

/* Release all buffers; return the result, or a new reference of None for NULL without an exception. */
PyObject *finish(Buffers *buffers, PyObject *result);

/* Numbers of arrays: in the machine's byte order, at any address. */
static inline int64_t
load_i64(const uint8_t *array, int64_t at)
{
    int64_t value;
    memcpy(&value, array + 8 * at, 8);
    return value;
}

static inline void
store_i64(uint8_t *array, int64_t at, int64_t value)
{
    memcpy(array + 8 * at, &value, 8);
}

static inline void
store_i32(uint8_t *array, int64_t at, int64_t value)
{
    int32_t narrow = (int32_t)value;
    memcpy(array + 4 * at, &narrow, 4);
}

/* Records of a buffer, unchecked. */
typedef struct {
    const uint8_t *data, *begins, *ends;
    int64_t size, count;  /* bytes of `data`; records */
    int64_t header_size;  /* HEADER_SIZE, or 0 */
    int64_t displacement; /* physical offset - position */
    int is_placed;        /* whether the physical offset is checked */
} Records;

/* Begin and end of body, topic and properties. */
typedef struct {
    int64_t body, body_end, topic, topic_end, properties, end;
} Places;

/* Take buffer, begins and ends; 0: for Python. */
int take_records(Buffers *buffers, Records *records, PyObject *const *arguments);

/* Fetch what the check of a record that follows soon reads. */
void prefetch_record(const Records *records, int64_t row);

/* Check one record. Its header and fields are copied to `head`, and all checks are of the copy.
 * 1: valid; 0: invalid; -1: for Python. */
int check_record(const Records *records, int64_t row, uint8_t *head, Places *places);

#endif
