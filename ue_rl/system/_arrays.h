/* Arrays that Python passes in: checked once here, so that the loops behind may trust them. */
#ifndef UE_RL_ARRAYS_H
#define UE_RL_ARRAYS_H

#include <Python.h>
#include <stdint.h>
#include <string.h>

typedef struct {
    const char *name, *formats; /* formats: the letters of the struct module that mean this type */
    Py_ssize_t itemsize;
} Dtype;

/* Short names: windows.h has types named FLOAT, UINT8, INT32 and INT64. */
static const Dtype F32 = {"float32", "f", 4};
static const Dtype U8 = {"uint8", "B?", 1};
static const Dtype I32 = {"int32", "il", 4};

/* A C-contiguous, aligned buffer of exactly this type; -1 with TypeError, ValueError or BufferError set. */
static int get_array(PyObject *object, Py_buffer *view, const Dtype *dtype, int writable)
{
    const char *format;
    int flags = PyBUF_C_CONTIGUOUS | PyBUF_FORMAT | (writable ? PyBUF_WRITABLE : 0);
    if (PyObject_GetBuffer(object, view, flags)) return -1;
    format = view->format ? view->format : "B";
    if (*format == '@' || *format == '=') format++;
    if (view->itemsize == dtype->itemsize && *format && !format[1] && strchr(dtype->formats, *format) &&
        (uintptr_t)view->buf % (uintptr_t)dtype->itemsize == 0)
        return 0;
    PyErr_Format(PyExc_TypeError, "expected an aligned array of %s, got one of format '%s'", dtype->name, format);
    PyBuffer_Release(view);
    return -1;
}

static inline void release_arrays(Py_buffer *views, int count)
{
    while (count) PyBuffer_Release(&views[--count]);
}

/* The same of several; bit i of `writable` is for the i-th. On failure none is held. */
static inline int get_arrays(PyObject *const *objects, Py_buffer *views, const Dtype *const *dtypes, unsigned writable,
                             int count)
{
    int held = 0;
    while (held < count && !get_array(objects[held], &views[held], dtypes[held], writable >> held & 1)) held++;
    if (held == count) return 0;
    release_arrays(views, held);
    return -1;
}

#endif
