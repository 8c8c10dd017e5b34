/* Bells: several engines asked, and their answers taken, in one call each. Included by _sync.c behind Bell. */
#ifndef UE_RL_BELLS_H
#define UE_RL_BELLS_H

typedef struct {
    PyObject_HEAD
    PyObject *bells;    /* a tuple of Bell */
    Py_buffer into[4];  /* obs, rewards, dones, truncated of all of them, one engine's rows behind the other's */
    int64_t asked_at;
} Bells;

static Bell *bell_at(Bells *self, Py_ssize_t i) { return (Bell *)PyTuple_GET_ITEM(self->bells, i); }

/* Do the Bells' arrays fill those of all engines? A Bell may have been bound to others since. */
static int fits(Bells *self, PyObject *bells)
{
    Py_ssize_t i, k, sizes[4] = {0, 0, 0, 0};
    for (i = 0; i < PyTuple_GET_SIZE(bells); i++) {
        Bell *bell = (Bell *)PyTuple_GET_ITEM(bells, i);
        if (!is_bound(bell)) return 0;
        if (bell->arrays <= TAKEN) return PyErr_SetString(PyExc_ValueError, "a Bell that copies nothing"), 0;
        for (k = 0; k < 4; k++) sizes[k] += bell->bound[TAKEN + k].len;
    }
    for (k = 0; k < 4; k++)
        if (self->into[k].len != sizes[k])
            return PyErr_SetString(PyExc_ValueError, "the arrays of all engines disagree with theirs"), 0;
    return 1;
}

static int is_made(Bells *self)
{
    if (!self->bells) PyErr_SetString(PyExc_RuntimeError, "Bells was not initialised");
    return self->bells != NULL;
}

static int bells_init(PyObject *base, PyObject *args, PyObject *kwargs)
{
    Bells *self = (Bells *)base;
    PyObject *bells, *into[4];
    Py_ssize_t i;
    if (self->bells) return PyErr_SetString(PyExc_RuntimeError, "Bells are initialised once"), -1;
    if (kwargs && PyDict_GET_SIZE(kwargs)) return PyErr_SetString(PyExc_TypeError, "no keywords"), -1;
    if (!PyArg_ParseTuple(args, "O!OOOO", &PyTuple_Type, &bells, into, into + 1, into + 2, into + 3)) return -1;
    for (i = 0; i < PyTuple_GET_SIZE(bells); i++) {
        Bell *bell = (Bell *)PyTuple_GET_ITEM(bells, i);
        if (Py_TYPE(bell)->tp_dealloc != bell_dealloc) return PyErr_SetString(PyExc_TypeError, "a tuple of Bell"), -1;
    }
    if (get_arrays(into, self->into, BOUND + TAKEN, 0xF, 4)) return -1;
    if (!fits(self, bells)) return release_arrays(self->into, 4), -1;
    self->bells = Py_NewRef(bells);
    return 0;
}

static void bells_dealloc(PyObject *base)
{
    Bells *self = (Bells *)base;
    PyTypeObject *type = Py_TYPE(base);
    if (self->bells) release_arrays(self->into, 4);
    Py_CLEAR(self->bells);
    type->tp_free(base);
    Py_DECREF(type);
}

/* May each of them be asked with its rows of `actions`? */
static int may_ask(Bells *self, const Py_buffer *actions)
{
    Py_ssize_t i, numbers = 0;
    for (i = 0; i < PyTuple_GET_SIZE(self->bells); i++) {
        Bell *bell = bell_at(self, i);
        const Py_buffer *mine = &bell->bound[ACTIONS];
        if (!is_bound(bell)) return 0;
        if (!is_ours(&bell->side)) return 0;
        if (!is_as_expected(&bell->side)) return 0;
        if (actions->ndim != 2 || mine->ndim != 2 || actions->shape[1] != mine->shape[1]) return 0;
        numbers += mine->len / 4;
    }
    return actions->len / 4 == numbers && first_bad(actions->buf, NULL, numbers, FROM_HERE) < 0;
}

static PyObject *bells_ask(PyObject *base, PyObject *source)
{
    Bells *self = (Bells *)base;
    Py_buffer actions;
    const char *from;
    Py_ssize_t i;
    int may;
    if (!is_made(self)) return NULL;
    if (get_array(source, &actions, &F32, 0)) return NULL;
    from = actions.buf;
    may = may_ask(self, &actions);
    for (i = 0; may && i < PyTuple_GET_SIZE(self->bells); i++) {
        Bell *bell = bell_at(self, i);
        if (!is_bound(bell)) break; /* released by another thread: to ring a doorbell may let go of the GIL */
        memcpy(bell->bound[ACTIONS].buf, from, (size_t)bell->bound[ACTIONS].len);
        from += bell->bound[ACTIONS].len;
        count_request(&bell->side);
        if (ring_peer(bell)) PyErr_Clear(); /* a peer that has gone is named by the wait for its answer */
    }
    PyBuffer_Release(&actions);
    self->asked_at = now_ns();
    return PyErr_Occurred() ? NULL : PyBool_FromLong(may);
}

static void give_out(Bells *self)
{
    Py_ssize_t i, at[4] = {0, 0, 0, 0};
    int k;
    for (i = 0; i < PyTuple_GET_SIZE(self->bells); i++)
        for (k = 0; k < 4; k++) {
            const Py_buffer *taken = &bell_at(self, i)->bound[TAKEN + k];
            memcpy((char *)self->into[k].buf + at[k], taken->buf, (size_t)taken->len);
            at[k] += taken->len;
        }
}

/* Seconds from the request to each answer, which is waited for and taken, in `took`. 1: fine; 0: one of them is for its
 * connection to see to; -1: an exception is set. */
static int answers(Bells *self, PyObject *positions, int64_t stop, PyObject *took)
{
    int64_t now = now_ns();
    Py_ssize_t i, bad;
    for (i = 0; i < PyTuple_GET_SIZE(took); i++) {
        Bell *bell = bell_at(self, i);
        uint32_t pos = as_u32(PyTuple_GET_ITEM(positions, i));
        PyObject *seconds;
        if (PyErr_Occurred() || !is_bound(bell)) return -1;
        if (!is_as_expected(&bell->side)) {
            int64_t left = (stop - now) / 1000000;
            if (!wait_for(bell, bell->side.expected - 1, pos, left > 1 ? (long)left : 1)) return -1;
            now = now_ns();
        }
        if (!has_answered(&bell->side, pos) || take_bound(bell, &bad)) return 0;
        if (!(seconds = PyFloat_FromDouble((double)(now - self->asked_at) * 1e-9))) return -1;
        PyTuple_SET_ITEM(took, i, seconds);
    }
    /* another thread may have released one while a later one was waited for */
    return fits(self, self->bells) ? 1 : -1;
}

static PyObject *bells_answer(PyObject *base, PyObject *const *args, Py_ssize_t nargs)
{
    Bells *self = (Bells *)base;
    PyObject *took, *positions;
    int fine;
    long slice;
    if (!is_made(self)) return NULL;
    if (nargs != 2 || !PyList_Check(args[0]) || PyList_GET_SIZE(args[0]) != PyTuple_GET_SIZE(self->bells))
        return PyErr_Format(PyExc_TypeError, "answer takes a list of positions and a slice");
    slice = PyLong_AsLong(args[1]);
    if (PyErr_Occurred() || !(positions = PyList_AsTuple(args[0]))) return NULL; /* a list may change meanwhile */
    if (!(took = PyTuple_New(PyTuple_GET_SIZE(positions)))) return Py_DECREF(positions), NULL;
    fine = answers(self, positions, now_ns() + (int64_t)slice * 1000000, took);
    Py_DECREF(positions);
    if (fine > 0) {
        give_out(self);
        return took;
    }
    Py_DECREF(took);
    if (fine < 0) return NULL;
    Py_RETURN_NONE;
}

static PyMethodDef bells_methods[] = {
    {"ask", bells_ask, METH_O, DOC("ask($self, actions, /)", "Asks all of them, or none: False.")},
    FAST("answer", bells_answer, DOC("answer($self, positions, slice_ms, /)", "Seconds of each answer, or None.")),
    {NULL, NULL, 0, NULL}};
static const char bells_doc[] = DOC("Bells(bells, obs, rewards, dones, truncated, /)", "See ue_rl/protocol/memory/bell.py.");
static PyType_Slot bells_slots[] = {{Py_tp_doc, (void *)bells_doc},     {Py_tp_init, bells_init},
                                    {Py_tp_dealloc, bells_dealloc},     {Py_tp_methods, bells_methods},
                                    {Py_tp_new, PyType_GenericNew},     {0, NULL}};
static PyType_Spec bells_spec = {"ue_rl.protocol.memory._sync.Bells", sizeof(Bells), 0, Py_TPFLAGS_DEFAULT, bells_slots};

#endif
