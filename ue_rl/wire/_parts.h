/* copy_parts: rows -> {name: view of a part} of one copy of them, for ue_rl/envs/observations.py.
 *
 * NumPy's own headers are no part of the build: its functions come from the table that its import_array() reads, whose
 * places are part of its binary interface (numpy/_core/code_generators/numpy_api.py); so does Rust's numpy crate.
 */
#ifndef UE_RL_PARTS_H
#define UE_RL_PARTS_H

#include "../system/_arrays.h"

enum { ARRAY_TYPE = 2, DESCR_FROM_TYPE = 45, NEW_FROM_DESCR = 94, SET_BASE_OBJECT = 282 };
enum { NPY_FLOAT32 = 11, NPY_WRITEABLE = 0x0400, MAX_SIZES = 9 };

typedef struct {
    PyObject_HEAD
    char *data;
} Array; /* how every ndarray begins */

typedef PyObject *(*DescrFromType)(int);
typedef PyObject *(*NewFromDescr)(void *, PyObject *, int, const Py_ssize_t *, const Py_ssize_t *, void *, int,
                                  PyObject *);
typedef int (*SetBaseObject)(PyObject *, PyObject *);

static void **numpy_table(void)
{
    static void **table;
    PyObject *module, *capsule;
    if (table) return table;
    module = PyImport_ImportModule("numpy._core._multiarray_umath");
    if (!module && PyErr_ExceptionMatches(PyExc_ImportError)) { /* NumPy 1 */
        PyErr_Clear();
        module = PyImport_ImportModule("numpy.core._multiarray_umath");
    }
    capsule = module ? PyObject_GetAttrString(module, "_ARRAY_API") : NULL;
    if (capsule) table = PyCapsule_GetPointer(capsule, NULL);
    Py_XDECREF(capsule);
    Py_XDECREF(module);
    return table;
}

/* A float32 array of these sizes: new memory, or, with `data`, a view into `owner`. */
static PyObject *float_array(void **numpy, int dims, const Py_ssize_t *sizes, const Py_ssize_t *strides, char *data,
                             PyObject *owner)
{
    PyObject *descr = ((DescrFromType)numpy[DESCR_FROM_TYPE])(NPY_FLOAT32), *array;
    if (!descr) return NULL;
    array = ((NewFromDescr)numpy[NEW_FROM_DESCR])(numpy[ARRAY_TYPE], descr, dims, sizes, strides, data,
                                                  data ? NPY_WRITEABLE : 0, NULL);
    if (array && data) {
        Py_INCREF(owner);
        if (((SetBaseObject)numpy[SET_BASE_OBJECT])(array, owner)) Py_CLEAR(array);
    }
    return array;
}

/* The view of one part, (name, first, shape), of `copy`, float32 [n, size]. */
static PyObject *part_view(void **numpy, PyObject *copy, PyObject *part, Py_ssize_t n, Py_ssize_t size)
{
    Py_ssize_t sizes[MAX_SIZES], strides[MAX_SIZES], first, count = 1, dims, i;
    PyObject *shape = PyTuple_Check(part) && PyTuple_GET_SIZE(part) == 3 ? PyTuple_GET_ITEM(part, 2) : NULL;
    if (!shape || !PyTuple_Check(shape) || (dims = PyTuple_GET_SIZE(shape) + 1) > MAX_SIZES)
        return PyErr_Format(PyExc_TypeError, "a part is (name, first, shape), not %R", part);
    first = PyLong_AsSsize_t(PyTuple_GET_ITEM(part, 1));
    sizes[0] = n, strides[0] = 4 * size;
    for (i = dims - 1; i > 0; i--) {
        sizes[i] = PyLong_AsSsize_t(PyTuple_GET_ITEM(shape, i - 1));
        strides[i] = 4 * count;
        if (sizes[i] < 1 || count > size / sizes[i]) break;
        count *= sizes[i];
    }
    if (PyErr_Occurred()) return NULL;
    if (i > 0 || first < 0 || first > size - count)
        return PyErr_Format(PyExc_ValueError, "a row of %zd numbers has no such part: %R", size, part);
    return float_array(numpy, (int)dims, sizes, strides, ((Array *)copy)->data + 4 * first, copy);
}

static PyObject *copy_parts(PyObject *self, PyObject *const *args, Py_ssize_t nargs)
{
    PyObject *copy = NULL, *parts, *found = NULL;
    Py_buffer rows;
    void **numpy = numpy_table();
    if (!numpy) return NULL;
    if (nargs != 2 || !PyTuple_Check(args[1]))
        return PyErr_Format(PyExc_TypeError, "expected (rows, tuple of parts)");
    if (get_array(args[0], &rows, &FLOAT32, 0)) return NULL;
    parts = args[1];
    if (rows.ndim == 2)
        copy = float_array(numpy, 2, rows.shape, NULL, NULL, NULL);
    else
        PyErr_Format(PyExc_ValueError, "expected rows [n, size], got %d dimensions", rows.ndim);
    if (copy) {
        memcpy(((Array *)copy)->data, rows.buf, (size_t)rows.len);
        found = PyDict_New();
    }
    for (Py_ssize_t i = 0; found && i < PyTuple_GET_SIZE(parts); i++) {
        PyObject *part = PyTuple_GET_ITEM(parts, i);
        PyObject *view = part_view(numpy, copy, part, rows.shape[0], rows.shape[1]);
        if (!view || PyDict_SetItem(found, PyTuple_GET_ITEM(part, 0), view)) Py_CLEAR(found);
        Py_XDECREF(view);
    }
    Py_XDECREF(copy);
    PyBuffer_Release(&rows);
    return found;
}

#endif
