/* The module `dledger.native._kernels`: what costs most per entry or per file, in C. `dledger/native/__init__.py` says
 * which function in Python is the reference of each. VERSION is raised with every change of what a function takes or
 * gives. */

#include "kernels.h"

#define VERSION 10

static PyMethodDef methods[] = {
    {"encode_entries", (PyCFunction)(void (*)(void))encode_entries, METH_FASTCALL, NULL},
    {"walk_entries", (PyCFunction)(void (*)(void))walk_entries, METH_FASTCALL, NULL},
    {"encode_records", (PyCFunction)(void (*)(void))encode_records, METH_FASTCALL, NULL},
    {"find_keys", (PyCFunction)(void (*)(void))find_keys, METH_FASTCALL, NULL},
    {"walk_records", (PyCFunction)(void (*)(void))walk_records, METH_FASTCALL, NULL},
    {"record_columns", (PyCFunction)(void (*)(void))record_columns, METH_FASTCALL, NULL},
    {"check_records", (PyCFunction)(void (*)(void))check_records, METH_FASTCALL, NULL},
    {"locate_records", (PyCFunction)(void (*)(void))locate_records, METH_FASTCALL, NULL},
    {"split_records", (PyCFunction)(void (*)(void))split_records, METH_FASTCALL, NULL},
    {"copy_records", (PyCFunction)(void (*)(void))copy_records, METH_FASTCALL, NULL},
    {"decode_properties", (PyCFunction)(void (*)(void))decode_properties, METH_FASTCALL, NULL},
    {"decode_records", (PyCFunction)(void (*)(void))decode_records, METH_FASTCALL, NULL},
    {"write_files", (PyCFunction)(void (*)(void))write_files, METH_FASTCALL, NULL},
    {"sync_files", (PyCFunction)(void (*)(void))sync_files, METH_FASTCALL, NULL},
    {NULL, NULL, 0, NULL},
};

static int
fill_module(PyObject *module)
{
    choose_checksums();
    return PyModule_AddIntConstant(module, "VERSION", VERSION);
}

static PyModuleDef_Slot slots[] = {
    {Py_mod_exec, (void *)fill_module},
    {0, NULL},
};

static struct PyModuleDef definition = {
    PyModuleDef_HEAD_INIT,
    .m_name = "_kernels",
    .m_methods = methods,
    .m_slots = slots,
};

PyMODINIT_FUNC
PyInit__kernels(void)
{
    return PyModuleDef_Init(&definition);
}
