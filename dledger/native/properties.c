/* Properties of one message: `decode_properties` of commitlog/record/properties.py. */

#include "kernels.h"

#define NAME_END 0x01
#define PROPERTY_END 0x02

/* Set a property, as the last one: of equal names the last counts; 0: an exception.
 *
 * A separator is never part of a character, not even of an invalid one, so parts can be decoded alone. */
static int
set_property(PyObject *properties, const char *name, Py_ssize_t name_size, const char *value, Py_ssize_t value_size)
{
    PyObject *name_text = PyUnicode_DecodeUTF8(name, name_size, "replace");
    PyObject *value_text = name_text == NULL ? NULL : PyUnicode_DecodeUTF8(value, value_size, "replace");
    int is_set = 0;
    if (value_text != NULL) {
        int is_repeated = PyDict_Contains(properties, name_text);
        is_set = is_repeated >= 0 && (!is_repeated || PyDict_DelItem(properties, name_text) == 0)
            && PyDict_SetItem(properties, name_text, value_text) == 0;
    }
    Py_XDECREF(name_text);
    Py_XDECREF(value_text);
    return is_set;
}

/* A dictionary of names and values; None for anything but bytes. */
PyObject *
decode_properties(PyObject *module, PyObject *const *arguments, Py_ssize_t count)
{
    (void)module;
    char *at;
    Py_ssize_t size;
    if (count != 1) {
        PyErr_SetString(PyExc_TypeError, "decode_properties takes 1 argument");
        return NULL;
    }
    if (!PyBytes_Check(arguments[0])) {
        Py_RETURN_NONE;
    }
    PyObject *properties = PyDict_New();
    if (properties == NULL || PyBytes_AsStringAndSize(arguments[0], &at, &size) < 0) {
        Py_XDECREF(properties);
        return NULL;
    }
    const char *end = at + size;
    while (at < end) {
        const char *part_end = memchr(at, PROPERTY_END, (size_t)(end - at));
        if (part_end == NULL) {
            part_end = end;
        }
        const char *name_end = memchr(at, NAME_END, (size_t)(part_end - at));
        if (name_end != NULL && name_end > at && part_end - name_end > 1
            && !set_property(properties, at, name_end - at, name_end + 1, part_end - name_end - 1)) {
            Py_DECREF(properties);
            return NULL;
        }
        at += part_end - at + 1;
    }
    return properties;
}
