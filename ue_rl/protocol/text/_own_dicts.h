/* own_dicts: a dict for each env, for ue_rl/envs/vec_env.py: one that was given out before, where nobody has kept it. */
#ifndef UE_RL_OWN_DICTS_H
#define UE_RL_OWN_DICTS_H

#include <Python.h>

static PyObject *own_dicts(PyObject *self, PyObject *const *args, Py_ssize_t nargs)
{
    PyObject *given;
    (void)self;
    if (nargs != 3 || !PyList_Check(args[0]))
        return PyErr_Format(PyExc_TypeError, "own_dicts takes a list of dicts, a key and a value");
    given = PyList_New(PyList_GET_SIZE(args[0]));
    for (Py_ssize_t i = 0; given && i < PyList_GET_SIZE(given); i++) {
        PyObject *own = PyList_GET_ITEM(args[0], i), *name = NULL, *value = NULL;
        Py_ssize_t first = 0;
        if (Py_REFCNT(own) == 1 && PyDict_CheckExact(own) && PyDict_GET_SIZE(own) == 1)
            PyDict_Next(own, &first, &name, &value); /* half the time of looking the key up */
        if (name == args[1] && value == args[2]) { /* nobody else holds it, and nobody has changed it */
            Py_INCREF(own);
            PyList_SET_ITEM(given, i, own);
        } else {
            own = PyDict_New();
            if (own) PyList_SET_ITEM(given, i, own);
            if (!own || PyDict_SetItem(own, args[1], args[2])) {
                Py_CLEAR(given);
            } else {
                Py_INCREF(own);
                PyList_SetItem(args[0], i, own);
            }
        }
    }
    return given;
}

#endif
