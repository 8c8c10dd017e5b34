/* What ue_rl/envs and ue_rl/bridges ask for in each step, in one call each. A NumPy function that was not used since a
 * policy acted costs 15 to 35 us, for the caches are cold; a call here touches little.
 *
 * NumPy's own headers are no part of the build: its functions come from the table that its import_array() reads, whose
 * places are part of its binary interface (numpy/_core/code_generators/numpy_api.py); so does Rust's numpy crate.
 */
#ifndef UE_RL_STEPS_H
#define UE_RL_STEPS_H

#include <math.h>
#include "../../system/_arrays.h"

enum { ARRAY_TYPE = 2, DESCR_FROM_TYPE = 45, NEW_FROM_DESCR = 94, SET_BASE_OBJECT = 282 };
enum { NPY_BOOL = 0, NPY_FLOAT32 = 11, NPY_FLOAT64 = 12, NPY_WRITEABLE = 0x0400, MAX_SIZES = 9 };
static const Dtype F64 = {"float64", "d", 8};
static const Dtype I64 = {"int64", "lq", 8};

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

/* An array of these sizes: new memory, or, with `data`, a view into `owner`. */
static PyObject *new_array(void **numpy, int type, int dims, const Py_ssize_t *sizes, const Py_ssize_t *strides,
                           char *data, PyObject *owner)
{
    PyObject *descr = ((DescrFromType)numpy[DESCR_FROM_TYPE])(type), *array;
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
    return new_array(numpy, NPY_FLOAT32, (int)dims, sizes, strides, ((Array *)copy)->data + 4 * first, copy);
}

static PyObject *copy_parts(PyObject *self, PyObject *const *args, Py_ssize_t nargs)
{
    PyObject *copy = NULL, *parts, *found = NULL;
    Py_buffer rows;
    void **numpy = numpy_table();
    if (!numpy) return NULL;
    if (nargs != 2 || !PyTuple_Check(args[1]))
        return PyErr_Format(PyExc_TypeError, "expected (rows, tuple of parts)");
    if (get_array(args[0], &rows, &F32, 0)) return NULL;
    parts = args[1];
    if (rows.ndim == 2)
        copy = new_array(numpy, NPY_FLOAT32, 2, rows.shape, NULL, NULL, NULL);
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

/* write_choices(actions, choices): see kernels_writing.py */
static PyObject *write_choices(PyObject *self, PyObject *const *args, Py_ssize_t nargs)
{
    static const Dtype *const dtypes[] = {&I64, &I64};
    Py_buffer views[2];
    PyObject *rows = NULL;
    Py_ssize_t sizes[2], i, n;
    void **numpy = numpy_table();
    if (!numpy) return NULL;
    if (nargs != 2) return PyErr_Format(PyExc_TypeError, "write_choices takes 2 arguments");
    if (get_arrays(args, views, dtypes, 0, 2)) return NULL;
    n = views[0].len / 8, sizes[1] = views[1].len / 24;
    if (views[1].ndim != 2 || views[1].shape[0] != 3 || !sizes[1] || n % sizes[1]) {
        PyErr_SetString(PyExc_ValueError, "actions and choices disagree");
    } else {
        const int64_t *action = views[0].buf, *first = views[1].buf, *end = first + sizes[1], *add = end + sizes[1];
        sizes[0] = n / sizes[1];
        rows = new_array(numpy, NPY_FLOAT32, 2, sizes, NULL, NULL, NULL);
        for (i = 0; rows && i < n; i++) {
            Py_ssize_t column = i % sizes[1];
            if (action[i] < first[column] || action[i] >= end[column]) break;
            ((float *)((Array *)rows)->data)[i] = (float)(action[i] + add[column]);
        }
        if (rows && i < n) {
            Py_DECREF(rows);
            rows = PyLong_FromSsize_t(i);
        }
    }
    release_arrays(views, 2);
    return rows;
}

/* find_no_choice(actions, low, high): see kernels_writing.py */
static PyObject *find_no_choice(PyObject *self, PyObject *const *args, Py_ssize_t nargs)
{
    static const Dtype *const dtypes[] = {&F32, &F32, &F32};
    Py_buffer views[3];
    Py_ssize_t i, n, width, found = -1;
    if (nargs != 3) return PyErr_Format(PyExc_TypeError, "find_no_choice takes 3 arguments");
    if (get_arrays(args, views, dtypes, 0, 3)) return NULL;
    n = views[0].len / 4, width = views[1].len / 4;
    if (views[2].len != views[1].len || (n && (!width || n % width))) {
        PyErr_SetString(PyExc_ValueError, "actions and choices disagree");
    } else {
        const float *action = views[0].buf, *low = views[1].buf, *high = views[2].buf;
        for (i = 0; i < n && found < 0; i++) {
            float value = action[i], from = low[i % width];
            if (from != -INFINITY && !(value >= from && value <= high[i % width] && value == rintf(value))) found = i;
        }
    }
    release_arrays(views, 3);
    return PyErr_Occurred() ? NULL : PyLong_FromSsize_t(found);
}

/* take_step(obs, rewards, dones, returns, started, of, now, limit): see kernels_writing.py */
static PyObject *take_step(PyObject *self, PyObject *const *args, Py_ssize_t nargs)
{
    static const Dtype *const dtypes[] = {&F32, &F32, &U8, &F64, &I64, &U8};
    static const int types[] = {NPY_FLOAT32, NPY_FLOAT32, NPY_BOOL, NPY_FLOAT64};
    enum { SEEN, REWARD, DONE, RETURN, STARTED, OF, TAKEN_ARRAYS };
    Py_buffer views[TAKEN_ARRAYS];
    PyObject *given[4] = {NULL}, *ended = NULL, *step = NULL;
    Py_ssize_t n, i;
    long long now, limit;
    void **numpy = numpy_table();
    if (!numpy) return NULL;
    if (nargs != TAKEN_ARRAYS + 2) return PyErr_Format(PyExc_TypeError, "take_step takes 8 arguments");
    now = PyLong_AsLongLong(args[TAKEN_ARRAYS]), limit = PyLong_AsLongLong(args[TAKEN_ARRAYS + 1]);
    memset(views, 0, sizeof views); /* without obs or of: of no object */
    for (i = 0; !PyErr_Occurred() && i < TAKEN_ARRAYS; i++)
        if ((i != SEEN && i != OF) || args[i] != Py_None) get_array(args[i], views + i, dtypes[i], 0);
    if (PyErr_Occurred()) goto done;
    n = views[DONE].len;
    if (views[REWARD].len != 4 * n || views[RETURN].len != 8 * n || views[STARTED].len != 8 * n ||
        (views[OF].obj && views[OF].len != n) || (views[SEEN].obj && views[SEEN].ndim != 2)) {
        PyErr_SetString(PyExc_ValueError, "the arrays disagree about the number of rows");
        goto done;
    }
    for (i = SEEN; i <= RETURN; i++)
        if (views[i].obj && !(given[i] = new_array(numpy, types[i], i == SEEN ? 2 : 1, i == SEEN ? views[i].shape : &n,
                                                   NULL, NULL, NULL)))
            goto done;
    if ((ended = PyList_New(0))) {
        const uint8_t *dones = views[DONE].buf, *of = views[OF].obj ? views[OF].buf : NULL;
        const int64_t *started = views[STARTED].buf;
        float *rewards = (float *)((Array *)given[REWARD])->data;
        uint8_t *over = (uint8_t *)((Array *)given[DONE])->data;
        double *returns = (double *)((Array *)given[RETURN])->data;
        if (views[SEEN].obj) memcpy(((Array *)given[SEEN])->data, views[SEEN].buf, (size_t)views[SEEN].len);
        memcpy(rewards, views[REWARD].buf, (size_t)n * 4);
        for (i = 0; i < n; i++) over[i] = dones[i] || (limit >= 0 && now - started[i] >= limit);
        for (i = 0; of && i < n; i++)
            if (!of[i]) rewards[i] = 0, over[i] = 0;
        for (i = 0; i < n; i++) returns[i] = ((double *)views[RETURN].buf)[i] + rewards[i];
        for (i = 0; i < n && !PyErr_Occurred(); i++) {
            PyObject *row = over[i] ? PyLong_FromSsize_t(i) : NULL;
            if (row) PyList_Append(ended, row);
            Py_XDECREF(row);
        }
        if (!PyErr_Occurred())
            step = Py_BuildValue("OOOOO", given[SEEN] ? given[SEEN] : Py_None, given[REWARD], given[DONE],
                                 given[RETURN], ended);
    }
done:
    Py_XDECREF(ended);
    for (i = SEEN; i <= RETURN; i++) Py_XDECREF(given[i]);
    for (i = 0; i < TAKEN_ARRAYS; i++) PyBuffer_Release(views + i);
    return step;
}

#endif
