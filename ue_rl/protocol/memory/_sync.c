/* What Python cannot do on shared memory, or not fast: atomic words, waiting without the GIL, checked copies.
 *
 * Offsets are bytes into a buffer that the caller keeps mapped. Every function checks range and alignment and raises
 * ValueError; nothing here trusts what the other process has written. ue_rl/protocol/memory/bell.py says what each method of Bell
 * means.
 */
#define PY_SSIZE_T_CLEAN
#if !defined(_WIN32) && !defined(_GNU_SOURCE)
#define _GNU_SOURCE 1 /* -std=c11 hides clock_gettime and syscall */
#endif
#include <Python.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <structmember.h>
#ifndef _WIN32
#include <fcntl.h>
#include <unistd.h>
#endif

#include "../../system/_arrays.h"
#include "_side.h"

typedef struct {
    PyObject_HEAD
    Py_buffer view; /* the segment */
    PyObject *sock;
    int fd; /* a duplicate of sock's, of this Bell's own: -1: none. Nobody else closes it while a call waits on it */
    Side side;
    /* bind(): what `ask` writes and `answer` checks */
    Py_buffer bound[9];
    int arrays; /* in `bound`: 5, or 9 with those that an answer is copied into */
    int busy;     /* calls that wait at this moment, without the GIL */
    int released; /* by another thread, or a signal handler, while they did */
} Bell;

/* The arrays in `bound`: what ask() writes, a step from OBS on, and its copy from TAKEN on. */
enum { ACTIONS, OBS, REWARDS, DONES, TRUNCATED, TAKEN };
static const Dtype *const BOUND[] = {&F32, &F32, &F32, &U8, &U8, &F32, &F32, &U8, &U8};

static char *place(Py_buffer *view, Py_ssize_t offset, Py_ssize_t size)
{
    if (offset >= 0 && offset <= view->len - size && ((uintptr_t)view->buf + (uintptr_t)offset) % (uintptr_t)size == 0)
        return (char *)view->buf + offset;
    PyErr_Format(PyExc_ValueError, "offset %zd is not inside the buffer, or not aligned to %zd bytes", offset, size);
    return NULL;
}

/* Offset 0: there is no such word. */
static char *place_optional(Py_buffer *view, Py_ssize_t offset) { return offset ? place(view, offset, 4) : NULL; }

static uint32_t as_u32(PyObject *number)
{
    unsigned long value = PyLong_AsUnsignedLong(number);
    if (value > 0xFFFFFFFFul && !PyErr_Occurred()) PyErr_SetString(PyExc_OverflowError, "more than 32 bits");
    return (uint32_t)value;
}

/* -- life of a Bell */

/* Another thread may close the socket while this one waits, and the system may give its number to another file. */
static int own_descriptor(Bell *self, PyObject *sock)
{
    int fd = PyObject_AsFileDescriptor(sock);
    if (fd < 0) return -1;
#ifdef _WIN32
    self->fd = fd; /* calls go through the object, which knows that it was closed */
#else
    self->fd = fcntl(fd, F_DUPFD_CLOEXEC, 0);
    if (self->fd < 0) {
        PyErr_SetFromErrno(PyExc_OSError);
        return -1;
    }
#endif
    self->sock = Py_NewRef(sock);
    return 0;
}

static int bell_init(PyObject *base, PyObject *args, PyObject *kwargs)
{
    static char *names[] = {"buffer", "own_seq", "peer_seq", "own_flag", "peer_flag", "peer_ring",
                            "sock", "spin_us", "futex", NULL};
    Bell *self = (Bell *)base;
    PyObject *buffer, *sock = Py_None;
    Py_ssize_t own_seq, peer_seq, own_flag = 0, peer_flag = 0, peer_ring = 0;
    double spin_us = 50.0;
    int futex = 1;
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "Onn|nnnOdp", names, &buffer, &own_seq, &peer_seq, &own_flag,
                                     &peer_flag, &peer_ring, &sock, &spin_us, &futex))
        return -1;
    if (self->view.obj) {
        PyErr_SetString(PyExc_RuntimeError, "a Bell is initialised once");
        return -1;
    }
    self->fd = -1;
    if (PyObject_GetBuffer(buffer, &self->view, PyBUF_WRITABLE)) return -1;
    self->side.own_seq = place(&self->view, own_seq, 8);
    if (!PyErr_Occurred()) self->side.peer_seq = place(&self->view, peer_seq, 8);
    if (!PyErr_Occurred()) self->side.own_flag = place_optional(&self->view, own_flag);
    if (!PyErr_Occurred()) self->side.peer_flag = place_optional(&self->view, peer_flag);
    if (!PyErr_Occurred()) self->side.peer_ring = place_optional(&self->view, peer_ring);
    if (PyErr_Occurred()) {
        PyBuffer_Release(&self->view);
        return -1;
    }
    if (sock != Py_None && own_descriptor(self, sock)) {
        PyBuffer_Release(&self->view);
        return -1;
    }
    begin_side(&self->side, futex, (int64_t)(spin_us * 1000));
    return 0;
}

static void unbind(Bell *self)
{
    release_arrays(self->bound, self->arrays);
    self->arrays = 0;
    self->side.answered = self->side.holder = NULL;
}

static void let_go(Bell *self)
{
    unbind(self);
    PyBuffer_Release(&self->view);
    if (self->sock) {
#ifndef _WIN32
        close(self->fd);
#endif
        self->fd = -1;
    }
    Py_CLEAR(self->sock);
}

static PyObject *bell_release(PyObject *base, PyObject *unused)
{
    Bell *self = (Bell *)base;
    if (self->busy) self->released = 1;
    else let_go(self);
    Py_RETURN_NONE;
}

static void bell_dealloc(PyObject *base)
{
    PyTypeObject *type = Py_TYPE(base);
    let_go((Bell *)base);
    type->tp_free(base);
    Py_DECREF(type);
}

static int usable(Bell *self)
{
    if (self->view.obj && !self->released) return 1;
    PyErr_SetString(PyExc_ValueError, "this Bell was released");
    return 0;
}

/* -- publishing */

static int ring_socket(Bell *self)
{
#ifdef _WIN32
    PyObject *sent = PyObject_CallMethod(self->sock, "send", "y", "\1");
    Py_XDECREF(sent);
    if (sent) return 0;
    if (!PyErr_ExceptionMatches(PyExc_BlockingIOError) && !PyErr_ExceptionMatches(PyExc_TimeoutError)) return -1;
    PyErr_Clear();
#else
    /* A full socket is full of doorbells, and a dead peer is named by the next wait. */
    (void)!send(self->fd, "\1", 1, MSG_DONTWAIT | MSG_NOSIGNAL);
#endif
    return 0;
}

static int ring_peer(Bell *self)
{
    return wake_peer(&self->side) && self->fd >= 0 ? ring_socket(self) : 0;
}

static PyObject *bell_publish(PyObject *base, PyObject *unused)
{
    Bell *self = (Bell *)base;
    uint64_t value;
    if (!usable(self)) return NULL;
    value = increment64(self->side.own_seq);
    return ring_peer(self) ? NULL : PyLong_FromUnsignedLongLong(value);
}

static PyObject *bell_nudge(PyObject *base, PyObject *unused)
{
    Bell *self = (Bell *)base;
    if (!usable(self) || ring_peer(self)) return NULL;
    Py_RETURN_NONE;
}

static PyObject *bell_peek(PyObject *base, PyObject *unused)
{
    Bell *self = (Bell *)base;
    return usable(self) ? PyLong_FromUnsignedLongLong(load64(self->side.peer_seq)) : NULL;
}

/* -- waiting */

/* Blocks until a doorbell comes or the socket's timeout (set_slice in bell.py) is over. 1: the peer closed the socket;
 * -1: an exception is set. On Windows this needs the GIL. */
static int block_on_socket(Bell *self, uint64_t seq, uint32_t pos)
{
    int outcome = 0;
    store32(self->side.own_flag, ON_SOCKET);
    full_fence();
    if (!moved(&self->side, seq, pos)) {
#ifdef _WIN32
        PyObject *got = PyObject_CallMethod(self->sock, "recv", "i", 64);
        if (got) outcome = PyBytes_Check(got) && PyBytes_GET_SIZE(got) == 0;
        else if (PyErr_ExceptionMatches(PyExc_TimeoutError) || PyErr_ExceptionMatches(PyExc_BlockingIOError))
            PyErr_Clear();
        else if (PyErr_ExceptionMatches(PyExc_OSError)) outcome = 1, PyErr_Clear();
        else outcome = -1;
        Py_XDECREF(got);
#else
        char bells[64];
        ssize_t got = recv(self->fd, bells, sizeof bells, 0);
        outcome = got == 0 || (got < 0 && errno != EINTR && errno != EAGAIN && errno != EWOULDBLOCK);
#endif
    }
    store32(self->side.own_flag, AWAKE);
    /* what the peer published before it closed still counts */
    return outcome == 1 && moved(&self->side, seq, pos) ? 0 : outcome;
}

/* Bell.wait. 0 with an exception set: interrupted, or the peer closed its socket. */
static int wait_held(Bell *self, uint64_t seq, uint32_t pos, long slice)
{
    Side *side = &self->side;
    int outcome = 0, sleeps = 0;
    int on_socket = side->own_flag && self->fd >= 0;
    side->waits++;
    if (!moved_at_once(side, seq, pos)) {
        Py_BEGIN_ALLOW_THREADS
        sleeps = spin_or_block(side, seq, pos, slice, on_socket);
#ifndef _WIN32
        if (sleeps && on_socket) outcome = block_on_socket(self, seq, pos);
#endif
        if (sleeps) look_at_cores(&side->cores, now_ns());
        Py_END_ALLOW_THREADS
        side->sleeps += (unsigned)sleeps;
#ifdef _WIN32
        if (sleeps && on_socket) outcome = block_on_socket(self, seq, pos);
#endif
    }
    if (outcome < 0 || PyErr_CheckSignals()) return 0;
    if (outcome) PyErr_SetString(PyExc_ConnectionResetError, "the peer closed its socket");
    return !outcome;
}

/* As wait_held. The memory stays mapped until the wait is over, where another thread or a signal handler releases
 * it. */
static int wait_for(Bell *self, uint64_t seq, uint32_t pos, long slice)
{
    int fine;
    self->busy++;
    fine = wait_held(self, seq, pos, slice);
    self->busy--;
    if (!self->released) return fine;
    if (!self->busy) {
        PyObject *type, *value, *trace;
        PyErr_Fetch(&type, &value, &trace);
        let_go(self);
        PyErr_Restore(type, value, trace);
    }
    if (fine) PyErr_SetString(PyExc_ValueError, "this Bell was released");
    return 0;
}

static PyObject *bell_wait(PyObject *base, PyObject *const *args, Py_ssize_t nargs)
{
    Bell *self = (Bell *)base;
    uint64_t seq;
    uint32_t pos;
    long slice;
    if (!usable(self)) return NULL;
    if (nargs < 1 || nargs > 3) return PyErr_Format(PyExc_TypeError, "wait takes 1 to 3 arguments");
    seq = PyLong_AsUnsignedLongLong(args[0]);
    pos = nargs > 1 ? as_u32(args[1]) : 0;
    slice = nargs > 2 ? PyLong_AsLong(args[2]) : 100;
    if (PyErr_Occurred() || !wait_for(self, seq, pos, slice)) return NULL;
    return PyLong_FromUnsignedLongLong(load64(self->side.peer_seq));
}

/* -- a whole step of the trainer's in two calls */

/* Of obs, rewards, dones and truncated: an exception is set where they are not of the same envs. */
static int disagree(const Py_buffer *step)
{
    if (step[1].len / 4 == step[2].len && step[2].len == step[3].len) return 0;
    PyErr_SetString(PyExc_ValueError, "rewards, dones and truncated disagree");
    return 1;
}

static Step step_of(const Py_buffer *step)
{
    Step of = {step[0].buf, step[1].buf, step[2].buf, step[3].buf, step[0].len / 4, step[2].len};
    return of;
}

/* See bad_step; of the bound step. */
static int take_bound(Bell *self, Py_ssize_t *bad)
{
    Step given = step_of(self->bound + OBS), taken;
    if (self->arrays <= TAKEN) return bad_step(&given, NULL, bad);
    taken = step_of(self->bound + TAKEN);
    return bad_step(&given, &taken, bad);
}

/* 0, or (kind, index); see bad_step. */
static PyObject *what_is_bad(int kind, Py_ssize_t index)
{
    return kind ? Py_BuildValue("(in)", kind, index) : PyLong_FromLong(0);
}

static PyObject *bell_bind(PyObject *base, PyObject *args)
{
    Bell *self = (Bell *)base;
    PyObject *arrays[9], *taken = Py_None; /* actions, obs, rewards, dones, truncated, and the last four once more */
    Py_ssize_t answered, holder = 0;
    unsigned int holder_is = 0;
    int count = TAKEN, i;
    if (!usable(self)) return NULL;
    if (!PyArg_ParseTuple(args, "OOOOOn|nIO", arrays, arrays + 1, arrays + 2, arrays + 3, arrays + 4, &answered,
                          &holder, &holder_is, &taken))
        return NULL;
    if (self->busy) return PyErr_Format(PyExc_RuntimeError, "another thread waits on this Bell");
    if (taken != Py_None) {
        if (!PyTuple_Check(taken) || PyTuple_GET_SIZE(taken) != 4)
            return PyErr_Format(PyExc_TypeError, "taken is None, or a tuple of four arrays");
        for (i = 0; i < 4; i++) arrays[count++] = PyTuple_GET_ITEM(taken, i);
    }
    unbind(self);
    if (get_arrays(arrays, self->bound, BOUND, 1 << ACTIONS | (taken == Py_None ? 0 : 0xFu << TAKEN), count)) return NULL;
    self->arrays = count;
    if (disagree(self->bound + OBS)) goto wrong;
    for (i = OBS; i + 4 < count; i++)
        if (self->bound[i].len != self->bound[i + 4].len) {
            PyErr_SetString(PyExc_ValueError, "a step and what it is copied into disagree");
            goto wrong;
        }
    self->side.holder = place_optional(&self->view, holder);
    if (!PyErr_Occurred()) self->side.answered = place(&self->view, answered, 8);
    if (PyErr_Occurred()) goto wrong;
    self->side.holder_is = holder_is;
    self->side.expected = load64(self->side.peer_seq);
    Py_RETURN_NONE;
wrong:
    unbind(self);
    return NULL;
}

static int is_bound(Bell *self)
{
    if (!usable(self)) return 0;
    if (!self->side.answered) PyErr_SetString(PyExc_ValueError, "this Bell is not bound to arrays");
    return self->side.answered != NULL;
}

static int same_shape(const Py_buffer *one, const Py_buffer *other)
{
    int i = 0;
    while (i < one->ndim && i < other->ndim && one->shape[i] == other->shape[i]) i++;
    return i == one->ndim && i == other->ndim;
}

enum { ASKED = -1, UNASKED = -2, NOT_OURS = -3 };

static PyObject *bell_ask(PyObject *base, PyObject *source)
{
    Bell *self = (Bell *)base;
    Py_buffer from, *actions = &self->bound[ACTIONS];
    Py_ssize_t bad = -1;
    if (!is_bound(self)) return NULL;
    if (!is_ours(&self->side)) return PyLong_FromLong(NOT_OURS);
    if (source != Py_None) {
        if (get_array(source, &from, &F32, 0)) return NULL;
        if (same_shape(&from, actions))
            bad = first_bad(from.buf, from.buf == actions->buf ? NULL : actions->buf, from.len / 4, FROM_HERE);
        else
            PyErr_SetString(PyExc_TypeError, "actions must be float32 [num_envs, act_size]");
        PyBuffer_Release(&from);
        if (PyErr_Occurred()) return NULL;
        if (bad >= 0) return PyLong_FromSsize_t(bad);
    }
    if (!is_as_expected(&self->side)) return PyLong_FromLong(UNASKED);
    count_request(&self->side);
    return ring_peer(self) ? NULL : PyLong_FromLong(ASKED);
}

static PyObject *bell_answer(PyObject *base, PyObject *const *args, Py_ssize_t nargs)
{
    Bell *self = (Bell *)base;
    Py_ssize_t bad;
    uint32_t pos;
    long slice;
    if (!is_bound(self)) return NULL;
    if (nargs != 2) return PyErr_Format(PyExc_TypeError, "answer takes 2 arguments");
    pos = as_u32(args[0]);
    slice = PyLong_AsLong(args[1]);
    if (PyErr_Occurred() || !wait_for(self, self->side.expected - 1, pos, slice)) return NULL;
    return PyBool_FromLong(has_answered(&self->side, pos) && take_bound(self, &bad) == 0);
}

static PyObject *bell_take(PyObject *base, PyObject *unused)
{
    Bell *self = (Bell *)base;
    Py_ssize_t bad = -1;
    int kind;
    if (!is_bound(self)) return NULL;
    kind = take_bound(self, &bad);
    return what_is_bad(kind, bad);
}

static PyObject *bell_take_into(PyObject *base, PyObject *array)
{
    Bell *self = (Bell *)base;
    Py_buffer fresh, *into = &self->bound[TAKEN];
    int fits;
    if (!is_bound(self)) return NULL;
    if (self->busy) return PyErr_Format(PyExc_RuntimeError, "another thread waits on this Bell");
    if (self->arrays <= TAKEN) return PyErr_Format(PyExc_ValueError, "this Bell copies nothing");
    if (get_array(array, &fresh, &F32, 1)) return NULL;
    fits = same_shape(&fresh, into);
    PyBuffer_Release(&fresh);
    if (!fits) return PyErr_Format(PyExc_ValueError, "observations of another shape");
    PyBuffer_Release(into);
    if (get_array(array, into, &F32, 1)) { /* there is no place to copy to any more */
        unbind(self);
        return NULL;
    }
    Py_RETURN_NONE;
}

/* The first line of a docstring is the signature that inspect and stubtest read. */
#define DOC(signature, text) signature "\n--\n\n" text
#define FAST(name, function, doc) {name, (PyCFunction)(void (*)(void))function, METH_FASTCALL, doc}
static PyMethodDef bell_methods[] = {
    {"publish", bell_publish, METH_NOARGS,
     DOC("publish($self, /)", "Increments this side's counter, wakes the other side.")},
    {"nudge", bell_nudge, METH_NOARGS, DOC("nudge($self, /)", "Wakes the other side if it sleeps.")},
    {"peek", bell_peek, METH_NOARGS, DOC("peek($self, /)", "The other side's counter.")},
    FAST("wait", bell_wait, DOC("wait($self, seq, pos=0, slice_ms=100, /)", "The other side's counter.")),
    {"bind", bell_bind, METH_VARARGS,
     DOC("bind($self, actions, obs, rewards, dones, truncated, answered_seq, holder=0, holder_is=0, taken=None, /)",
         "What ask writes and answer takes.")},
    {"ask", bell_ask, METH_O,
     DOC("ask($self, actions, /)", "-1: asked; -2: unasked; -3: not ours; else a bad number's index.")},
    FAST("answer", bell_answer, DOC("answer($self, pos, slice_ms, /)", "Is the right answer there?")),
    {"take", bell_take, METH_NOARGS, DOC("take($self, /)", "0, or (kind, index) of the first bad number.")},
    {"take_into", bell_take_into, METH_O,
     DOC("take_into($self, obs, /)", "From now on observations are copied there.")},
    {"release", bell_release, METH_NOARGS, DOC("release($self, /)", "Lets go of buffer and socket.")},
    {NULL, NULL, 0, NULL}};
static PyMemberDef bell_members[] = {
    {"expected", T_ULONGLONG, offsetof(Bell, side.expected), READONLY, "The peer's counter once it has answered."},
    {"asked", T_ULONGLONG, offsetof(Bell, side.asked), READONLY, "This side's counter of the last ask."},
    {"waits", T_ULONGLONG, offsetof(Bell, side.waits), READONLY, "Calls of wait and answer."},
    {"sleeps", T_ULONGLONG, offsetof(Bell, side.sleeps), READONLY, "Those of them that blocked."},
    {NULL, 0, 0, 0, NULL}};
static const char bell_doc[] = DOC("Bell(buffer, own_seq, peer_seq, own_flag=0, peer_flag=0, peer_ring=0, sock=None, "
                                   "spin_us=50.0, futex=True)", "See ue_rl/protocol/memory/bell.py.");
static PyType_Slot bell_slots[] = {{Py_tp_doc, (void *)bell_doc},
                                   {Py_tp_init, bell_init},
                                   {Py_tp_dealloc, bell_dealloc},
                                   {Py_tp_methods, bell_methods},
                                   {Py_tp_members, bell_members},
                                   {Py_tp_new, PyType_GenericNew},
                                   {0, NULL}};
static PyType_Spec bell_spec = {"ue_rl.protocol.memory._sync.Bell", sizeof(Bell), 0, Py_TPFLAGS_DEFAULT, bell_slots};

#include "_bells.h"

/* -- single words: (buffer, offset, ..) */

typedef enum { LOAD_U32, LOAD_U64, STORE_U32, STORE_U64, INCREMENT_U64, COMPARE_EXCHANGE_U32 } WordCall;

static inline PyObject *on_word(PyObject *const *args, Py_ssize_t nargs, WordCall call)
{
    const int loads = call == LOAD_U32 || call == LOAD_U64;
    const int wide = call == LOAD_U64 || call == STORE_U64 || call == INCREMENT_U64;
    const Py_ssize_t wanted = call == COMPARE_EXCHANGE_U32 ? 4 : call == STORE_U32 || call == STORE_U64 ? 3 : 2;
    Py_buffer view;
    Py_ssize_t offset;
    uint64_t value = 0;
    uint32_t to = 0;
    char *at;
    if (nargs != wanted) return PyErr_Format(PyExc_TypeError, "%zd arguments expected", wanted);
    offset = PyLong_AsSsize_t(args[1]);
    if ((offset < 0 && PyErr_Occurred()) || PyObject_GetBuffer(args[0], &view, PyBUF_SIMPLE)) return NULL;
    at = place(&view, offset, wide ? 8 : 4);
    if (at && !loads && view.readonly) {
        PyErr_SetString(PyExc_ValueError, "the buffer is read-only");
        at = NULL;
    }
    if (at && wanted > 2) value = wide ? PyLong_AsUnsignedLongLong(args[2]) : as_u32(args[2]);
    if (at && wanted > 3 && !PyErr_Occurred()) to = as_u32(args[3]);
    if (!at || (wanted > 2 && PyErr_Occurred())) {
        PyBuffer_Release(&view);
        return NULL;
    }
    switch (call) {
    case LOAD_U32: value = load32(at); break;
    case LOAD_U64: value = load64(at); break;
    case STORE_U32: store32(at, (uint32_t)value); break;
    case STORE_U64: store64(at, value); break;
    case INCREMENT_U64: value = increment64(at); break;
    case COMPARE_EXCHANGE_U32: value = (uint64_t)swap32(at, (uint32_t)value, to); break;
    }
    PyBuffer_Release(&view);
    if (wanted == 3) Py_RETURN_NONE;
    return wanted == 4 ? PyBool_FromLong((long)value) : PyLong_FromUnsignedLongLong(value);
}

#define WORD_CALL(name, call) \
    static PyObject *name(PyObject *self, PyObject *const *args, Py_ssize_t nargs) \
    { \
        return on_word(args, nargs, call); \
    }
WORD_CALL(load_u32, LOAD_U32)
WORD_CALL(load_u64, LOAD_U64)
WORD_CALL(store_u32, STORE_U32)
WORD_CALL(store_u64, STORE_U64)
WORD_CALL(increment_u64, INCREMENT_U64)
WORD_CALL(compare_exchange_u32, COMPARE_EXCHANGE_U32)

/* -- checked copies, as functions */

static PyObject *first_nonfinite(PyObject *self, PyObject *array)
{
    Py_buffer view;
    Py_ssize_t bad;
    if (get_array(array, &view, &F32, 0)) return NULL;
    bad = first_bad(view.buf, NULL, view.len / 4, FROM_HERE);
    PyBuffer_Release(&view);
    return PyLong_FromSsize_t(bad);
}

static PyObject *copy_finite(PyObject *self, PyObject *const *args, Py_ssize_t nargs)
{
    Py_buffer views[2], *to = views, *from = views + 1;
    Py_ssize_t bad = -1;
    if (nargs != 2) return PyErr_Format(PyExc_TypeError, "copy_finite takes 2 arguments");
    if (get_arrays(args, views, BOUND, 1, 2)) return NULL;
    if (to->len != from->len) PyErr_Format(PyExc_ValueError, "%zd bytes into %zd", from->len, to->len);
    else bad = first_bad(from->buf, from->buf == to->buf ? NULL : to->buf, to->len / 4, FROM_HERE);
    release_arrays(views, 2);
    return PyErr_Occurred() ? NULL : PyLong_FromSsize_t(bad);
}

/* 0, or (kind, index) of the first bad number; see bad_step. */
static PyObject *check_step(PyObject *self, PyObject *const *args, Py_ssize_t nargs)
{
    Py_buffer step[4];
    Py_ssize_t bad = -1;
    int kind = 0;
    if (nargs != 4) return PyErr_Format(PyExc_TypeError, "check_step takes 4 arguments");
    if (get_arrays(args, step, BOUND + OBS, 0, 4)) return NULL;
    if (!disagree(step)) {
        Step given = step_of(step);
        kind = bad_step(&given, NULL, &bad);
    }
    release_arrays(step, 4);
    if (PyErr_Occurred()) return NULL;
    return what_is_bad(kind, bad);
}

enum { COPIES, GIVEN, ENDS, ASKED_ROWS, OVER, THERE, MASK_ARRAYS };

/* Copies masks as flags, 0 or 1. Row * numbers + number of the first that has no choice left, -1 if there is none. */
static Py_ssize_t first_without_choice(const Py_buffer *of, Py_ssize_t rows, Py_ssize_t agents, Py_ssize_t numbers)
{
    const Py_ssize_t size = of[COPIES].len / rows;
    const uint8_t *from = of[GIVEN].buf, *asked = of[ASKED_ROWS].buf, *over = of[OVER].buf, *there = of[THERE].buf;
    uint8_t *to = of[COPIES].buf;
    Py_ssize_t i, row, number;
    for (i = 0; i < of[COPIES].len; i++) to[i] = from[i] != 0;
    COPIED();
    for (row = 0; row < rows; row++) {
        const int32_t *ends = (const int32_t *)of[ENDS].buf + row % agents * numbers;
        Py_ssize_t begin = 0;
        if (!asked[row] || over[row] || !there[row]) continue;
        for (number = 0; number < numbers; begin = ends[number++])
            if (ends[number] > begin && !memchr(to + row * size + begin, 1, (size_t)(ends[number] - begin)))
                return row * numbers + number;
    }
    return -1;
}

static PyObject *copy_masks(PyObject *self, PyObject *const *args, Py_ssize_t nargs)
{
    static const Dtype *const dtypes[] = {&U8, &U8, &I32, &U8, &U8, &U8};
    Py_buffer of[MASK_ARRAYS];
    Py_ssize_t bad = -1, rows, i, agents = 0, numbers = 0;
    int fits;
    if (nargs != MASK_ARRAYS) return PyErr_Format(PyExc_TypeError, "copy_masks takes %d arguments", MASK_ARRAYS);
    if (get_arrays(args, of, dtypes, 1 << COPIES, MASK_ARRAYS)) return NULL;
    rows = of[ASKED_ROWS].len;
    fits = of[ENDS].ndim == 2 && of[COPIES].ndim == 2 && of[COPIES].shape[0] == rows &&
           of[GIVEN].len == of[COPIES].len && of[OVER].len == rows && of[THERE].len == rows;
    if (fits) agents = of[ENDS].shape[0], numbers = of[ENDS].shape[1];
    fits = fits && rows && agents && rows % agents == 0;
    for (i = 0; fits && i < agents * numbers; i++) {
        const int32_t *end = (const int32_t *)of[ENDS].buf + i;
        fits = *end >= (i % numbers ? end[-1] : 0) && *end <= of[COPIES].len / rows;
    }
    if (fits) bad = first_without_choice(of, rows, agents, numbers);
    release_arrays(of, MASK_ARRAYS);
    if (!fits) return PyErr_Format(PyExc_ValueError, "masks, ends and rows disagree");
    return PyLong_FromSsize_t(bad);
}

static PyMethodDef methods[] = {
    FAST("load_u32", load_u32, DOC("load_u32($module, buffer, offset, /)", "Acquire.")),
    FAST("load_u64", load_u64, DOC("load_u64($module, buffer, offset, /)", "Acquire.")),
    FAST("store_u32", store_u32, DOC("store_u32($module, buffer, offset, value, /)", "Release.")),
    FAST("store_u64", store_u64, DOC("store_u64($module, buffer, offset, value, /)", "Release.")),
    FAST("increment_u64", increment_u64,
         DOC("increment_u64($module, buffer, offset, /)", "Adds 1, sequentially consistent; the new value.")),
    FAST("compare_exchange_u32", compare_exchange_u32,
         DOC("compare_exchange_u32($module, buffer, offset, expected, new, /)", "Did it hold `expected`?")),
    {"first_nonfinite", first_nonfinite, METH_O,
     DOC("first_nonfinite($module, array, /)", "Index of the first NaN or infinity, or -1.")},
    FAST("copy_finite", copy_finite,
         DOC("copy_finite($module, to, from_, /)", "Copies float32s; index of the first NaN or infinity, or -1.")),
    FAST("copy_masks", copy_masks,
         DOC("copy_masks($module, to, from_, ends, asked, over, there, /)",
             "Copies flags as 0 or 1; row * numbers + number of the first asked one without a choice, or -1.")),
    FAST("check_step", check_step,
         DOC("check_step($module, obs, rewards, dones, truncated, /)", "0, or (kind, index) of the first bad number.")),
    {NULL, NULL, 0, NULL}};

static int exec_module(PyObject *module)
{
    PyType_Spec *const specs[] = {&bell_spec, &bells_spec};
    int failed = 0, i;
    for (i = 0; !failed && i < 2; i++) {
        PyObject *type = PyType_FromSpec(specs[i]);
        failed = type == NULL || PyModule_AddType(module, (PyTypeObject *)type);
        Py_XDECREF(type);
    }
    return failed ? -1 : PyModule_AddIntConstant(module, "HAS_FUTEX", HAS_FUTEX);
}

static PyModuleDef_Slot slots[] = {{Py_mod_exec, exec_module}, {0, NULL}};
static PyModuleDef module_def = {PyModuleDef_HEAD_INIT, "_sync", "See ue_rl/protocol/memory/bell.py.",
                                0, methods, slots, NULL, NULL, NULL};

PyMODINIT_FUNC PyInit__sync(void) { return PyModuleDef_Init(&module_def); }
