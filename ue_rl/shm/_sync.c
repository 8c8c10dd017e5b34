/* Shared-memory counters, waiting and checked copies: what Python cannot do (atomics, waiting without the GIL) or not fast.
 *
 * Offsets are bytes into a buffer that the caller keeps mapped. Every function checks range and alignment and raises
 * ValueError; nothing here trusts what the other process has written. ue_rl/shm/sync_pure.py is the twin in Python.
 */
#define PY_SSIZE_T_CLEAN
#if !defined(_WIN32) && !defined(_GNU_SOURCE)
#define _GNU_SOURCE 1 /* -std=c11 hides clock_gettime and syscall */
#endif
#include <Python.h>
#include <stdint.h>
#include <string.h>

#include "_atomics.h"
#include "_checks.h"

static int floats(PyObject *object, Py_buffer *view, int flags)
{
    if (PyObject_GetBuffer(object, view, flags | PyBUF_C_CONTIGUOUS)) return 0;
    if (view->len % 4 == 0 && ((uintptr_t)view->buf & 3) == 0) return 1;
    PyBuffer_Release(view);
    PyErr_SetString(PyExc_ValueError, "no aligned float32 buffer");
    return 0;
}

/* -- Bell: waits for the other side's counter, publishes this side's */

/* What a sleeper's flag says to whoever publishes. Its owner writes it; the other side only takes ON_FUTEX back to AWAKE,
 * so that a bell which rings before the sleeper has fallen asleep is not lost: the futex no longer holds what it expects. */
enum { AWAKE = 0, ON_FUTEX = 1, ON_SOCKET = 2, ALWAYS_RING = 3 };

enum { SHORTEST_NAP = 20000, LONGEST_NAP = 2000000, DESCHEDULED = 100000, QUIET = 50000000 }; /* nanoseconds */

typedef struct {
    PyObject_HEAD
    Py_buffer view;
    PyObject *sock;
    char *own_seq, *peer_seq, *own_flag, *peer_flag, *peer_ring;
    long fd;
    int futex;
    int64_t spin_ns;
    int64_t nap, quiet_until;
    int failed_spins;
    int by_yield; /* waits in a row that ended with the first yield: the other side runs on this very core */
    unsigned long long waits, sleeps;
    /* bind(): what `ask` writes and `answer` checks */
    Py_buffer actions, obs, rewards, dones, truncated;
    char *answered;
    uint64_t expected, asked;
    char *holder; /* the word that says whose segment this is, NULL where there is none, and what it must hold */
    uint32_t holder_is;
    int busy; /* calls that wait at this moment, without the GIL */
    int released; /* by somebody else, or a signal handler, while they did */
} Bell;

static char *place(Py_buffer *view, Py_ssize_t offset, Py_ssize_t size, int optional)
{
    char *at = (char *)view->buf + offset;
    if (optional && offset == 0) return NULL;
    if (offset < 0 || offset > view->len - size || ((uintptr_t)at & (uintptr_t)(size - 1))) {
        PyErr_Format(PyExc_ValueError, "offset %zd does not lie in the buffer, aligned to %zd bytes", offset, size);
        return NULL;
    }
    return at;
}

static int bell_init(PyObject *base, PyObject *args, PyObject *kwargs)
{
    static char *names[] = {"buffer", "own_seq", "peer_seq", "own_flag", "peer_flag", "peer_ring", "sock", "spin_us", "futex", NULL};
    Bell *self = (Bell *)base;
    PyObject *buffer, *sock = Py_None;
    Py_ssize_t own_seq, peer_seq, own_flag = 0, peer_flag = 0, peer_ring = 0;
    double spin_us = 50.0;
    int futex = 1;
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "Onn|nnnOdp", names, &buffer, &own_seq, &peer_seq, &own_flag, &peer_flag,
                                     &peer_ring, &sock, &spin_us, &futex))
        return -1;
    if (self->view.obj) return PyErr_Format(PyExc_RuntimeError, "a Bell is made once"), -1;
    if (PyObject_GetBuffer(buffer, &self->view, PyBUF_WRITABLE)) return -1;
    self->own_seq = place(&self->view, own_seq, 8, 0);
    if (!PyErr_Occurred()) self->peer_seq = place(&self->view, peer_seq, 8, 0);
    if (!PyErr_Occurred()) self->own_flag = place(&self->view, own_flag, 4, 1);
    if (!PyErr_Occurred()) self->peer_flag = place(&self->view, peer_flag, 4, 1);
    if (!PyErr_Occurred()) self->peer_ring = place(&self->view, peer_ring, 4, 1);
    self->fd = -1;
    if (!PyErr_Occurred() && sock != Py_None) {
        PyObject *number = PyObject_CallMethod(sock, "fileno", NULL);
        if (number) {
            self->fd = PyLong_AsLong(number);
            Py_DECREF(number);
        }
        self->sock = Py_NewRef(sock);
    }
    if (PyErr_Occurred()) {
        PyBuffer_Release(&self->view);
        return -1;
    }
    if (self->own_flag) store32(self->own_flag, AWAKE); /* whatever an earlier process has left there */
    self->futex = futex && HAS_FUTEX;
    self->nap = SHORTEST_NAP;
    self->spin_ns = (int64_t)(spin_us * 1000);
    return 0;
}

static void unbind(Bell *self);

static void bell_dealloc(PyObject *base)
{
    Bell *self = (Bell *)base;
    PyTypeObject *type = Py_TYPE(base);
    unbind(self);
    if (self->view.obj) PyBuffer_Release(&self->view);
    Py_XDECREF(self->sock);
    type->tp_free(base);
    Py_DECREF(type);
}

static int usable(Bell *self)
{
    if (self->view.obj && !self->released) return 1;
    PyErr_SetString(PyExc_ValueError, "this Bell was released");
    return 0;
}

/* Has the counter, or the incoming ring's write position, moved? */
static int moved(Bell *self, uint64_t seq, uint32_t pos)
{
    return load64(self->peer_seq) != seq || (self->peer_ring && load32(self->peer_ring) != pos);
}

static int ring_peer(Bell *self)
{
    uint32_t flag;
    if (!self->peer_flag) return 0;
    full_fence(); /* the counter before the flag, as the sleeper writes the flag before it reads the counter */
    flag = load32(self->peer_flag);
    if (flag == AWAKE) return 0;
#if HAS_FUTEX
    if (flag == ON_FUTEX) {
        if (swap32(self->peer_flag, ON_FUTEX, AWAKE))
            syscall(SYS_futex, (uint32_t *)self->peer_flag, FUTEX_WAKE, INT32_MAX, NULL, NULL, 0);
        return 0;
    }
#endif
    if (self->fd < 0) return 0;
#ifdef _WIN32
    return 1; /* the caller sends, with the GIL */
#else
    if (send((int)self->fd, "\1", 1, MSG_DONTWAIT | MSG_NOSIGNAL) < 0 && errno != EAGAIN && errno != EWOULDBLOCK && errno != EINTR)
        return -1; /* a full socket is full of doorbells */
    return 0;
#endif
}

static int rang(Bell *self, int outcome)
{
    if (outcome == 0) return 1;
#ifdef _WIN32
    if (outcome == 1) {
        PyObject *sent = PyObject_CallMethod(self->sock, "send", "y", "\1");
        if (sent) {
            Py_DECREF(sent);
            return 1;
        }
        if (PyErr_ExceptionMatches(PyExc_BlockingIOError) || PyErr_ExceptionMatches(PyExc_TimeoutError)) {
            PyErr_Clear();
            return 1;
        }
        return 0;
    }
#endif
    return 1; /* a dead peer shows itself to the next wait, which names it */
}

static PyObject *bell_publish(PyObject *base, PyObject *unused)
{
    Bell *self = (Bell *)base;
    uint64_t value;
    if (!usable(self)) return NULL;
    value = increment64(self->own_seq);
    if (!rang(self, ring_peer(self))) return NULL;
    return PyLong_FromUnsignedLongLong(value);
}

static PyObject *bell_nudge(PyObject *base, PyObject *unused)
{
    Bell *self = (Bell *)base;
    if (!usable(self) || !rang(self, ring_peer(self))) return NULL;
    Py_RETURN_NONE;
}

static PyObject *bell_peek(PyObject *base, PyObject *unused)
{
    Bell *self = (Bell *)base;
    if (!usable(self)) return NULL;
    return PyLong_FromUnsignedLongLong(load64(self->peer_seq));
}

static int spin(Bell *self, uint64_t seq, uint32_t pos)
{
    int64_t begun, left, passed = 0, longest = self->spin_ns;
    int i, yields = 0;
    if (self->by_yield >= 4) {
        /* Now and then a moment's sleep instead: who wakes up is put on an idle core, if there is one by now. */
        if (++self->by_yield % 256 == 16) sleep_ns(1000);
        else yield_core();
        if (moved(self, seq, pos)) return 1;
        self->by_yield = 0;
    }
    /* Where looking has failed again and again, the other side thinks for longer: look briefly, try in full now and then. */
    if (self->failed_spins >= 8 && self->waits % 32) longest = longest < 2000 ? longest : 2000;
    for (i = 0; i < 64; i++) {
        if (moved(self, seq, pos)) return 1;
        relax();
    }
    begun = now_ns();
    if (begun < self->quiet_until && longest > 2000) longest = 2000;
    while (passed < longest) {
        for (i = 0; i < 32; i++) {
            if (moved(self, seq, pos)) {
                self->failed_spins = 0;
                self->by_yield = yields == 1 && i == 0 ? self->by_yield + 1 : 0;
                return 1;
            }
            relax();
        }
        passed = now_ns() - begun;
        if (passed > 5000) { /* the other side may be waiting for this core */
            left = now_ns();
            yield_core();
            yields++;
            if (now_ns() - left > DESCHEDULED && !moved(self, seq, pos)) { /* somebody else was: leave it to them */
                self->quiet_until = now_ns() + QUIET;
                break;
            }
        }
    }
    if (self->failed_spins < 8) self->failed_spins++;
    return 0;
}

/* 0: something moved or the slice is over; 1: the peer closed the socket; -1: interrupted by a signal; 2: receive in Python */
static int sleep_until(Bell *self, uint64_t seq, uint32_t pos, long slice_ms)
{
    int outcome = 0;
    int64_t stop;
#ifndef _WIN32
    if (self->own_flag && self->fd >= 0) {
        char bells[64];
        ssize_t got;
        store32(self->own_flag, ON_SOCKET);
        full_fence();
        if (!moved(self, seq, pos)) {
            got = recv((int)self->fd, bells, sizeof bells, 0); /* SO_RCVTIMEO is its slice */
            if (got == 0) outcome = 1;
            else if (got < 0 && errno == EINTR) outcome = -1;
            else if (got < 0 && errno != EAGAIN && errno != EWOULDBLOCK) outcome = 1;
        }
        store32(self->own_flag, AWAKE);
        return outcome == 1 && moved(self, seq, pos) ? 0 : outcome; /* its last word counts */
    }
#else
    if (self->own_flag && self->fd >= 0) return 2;
#endif
#if HAS_FUTEX
    if (self->own_flag && self->futex && !(self->peer_flag && load32(self->peer_flag) == ALWAYS_RING)) {
        struct timespec slice = {slice_ms / 1000, (slice_ms % 1000) * 1000000};
        store32(self->own_flag, ON_FUTEX);
        full_fence();
        if (!moved(self, seq, pos) &&
            syscall(SYS_futex, (uint32_t *)self->own_flag, FUTEX_WAIT, ON_FUTEX, &slice, NULL, 0) < 0 && errno == EINTR)
            outcome = -1;
        store32(self->own_flag, AWAKE);
        return outcome;
    }
#endif
    stop = now_ns() + (int64_t)slice_ms * 1000000; /* a peer that rings no bell (the twin in Python): look now and then */
    while (!moved(self, seq, pos)) {
        if (now_ns() >= stop) return outcome; /* the next slice goes on with naps as long as these */
        sleep_ns(self->nap);
        if (self->nap < LONGEST_NAP) self->nap += self->nap / 4; /* a fifth of the wait so far */
    }
    self->nap = SHORTEST_NAP;
    return outcome;
}

static void let_go(Bell *self)
{
    unbind(self);
    if (self->view.obj) PyBuffer_Release(&self->view);
    Py_CLEAR(self->sock);
    self->fd = -1;
}

/* Waits until the peer's counter is no longer `seq`, the incoming ring's write position no longer `pos`, the bell rang, or
 * the slice is over. 0 with an exception set: interrupted, or the peer closed its socket. */
static int wait_held(Bell *self, uint64_t seq, uint32_t pos, long slice)
{
    int outcome = 0, i;
    self->waits++;
    for (i = 0; i < 16 && !moved(self, seq, pos); i++) relax(); /* letting go of the GIL costs more than a quick answer */
    if (i == 16) {
        Py_BEGIN_ALLOW_THREADS
        if (!spin(self, seq, pos) && slice > 0) {
            self->sleeps++;
            outcome = sleep_until(self, seq, pos, slice);
        }
        Py_END_ALLOW_THREADS
    }
#ifdef _WIN32
    if (outcome == 2) {
        PyObject *got = NULL;
        store32(self->own_flag, ON_SOCKET);
        full_fence();
        outcome = 0;
        if (!moved(self, seq, pos)) {
            got = PyObject_CallMethod(self->sock, "recv", "i", 64);
            if (got) outcome = PyBytes_Check(got) && PyBytes_GET_SIZE(got) == 0;
            else if (PyErr_ExceptionMatches(PyExc_TimeoutError) || PyErr_ExceptionMatches(PyExc_BlockingIOError)) PyErr_Clear();
            else if (PyErr_ExceptionMatches(PyExc_OSError)) outcome = 1, PyErr_Clear();
            Py_XDECREF(got);
        }
        store32(self->own_flag, AWAKE);
        if (PyErr_Occurred()) return 0;
        if (outcome == 1 && moved(self, seq, pos)) outcome = 0;
    }
#endif
    if (PyErr_CheckSignals()) return 0;
    if (outcome == 1) {
        PyErr_SetString(PyExc_ConnectionResetError, "the peer closed its socket");
        return 0;
    }
    return 1;
}

/* The memory stays while somebody waits, also where another thread or a signal handler releases this Bell meanwhile. */
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

/* wait(seq, pos=0, slice_ms=100): the peer's counter now. */
static PyObject *bell_wait(PyObject *base, PyObject *const *args, Py_ssize_t nargs)
{
    Bell *self = (Bell *)base;
    uint64_t seq;
    uint32_t pos;
    long slice;
    if (!usable(self)) return NULL;
    if (nargs < 1 || nargs > 3) return PyErr_Format(PyExc_TypeError, "wait takes 1 to 3 arguments");
    seq = PyLong_AsUnsignedLongLong(args[0]);
    pos = nargs > 1 ? (uint32_t)PyLong_AsUnsignedLong(args[1]) : 0;
    slice = nargs > 2 ? PyLong_AsLong(args[2]) : 100;
    if (PyErr_Occurred() || !wait_for(self, seq, pos, slice)) return NULL;
    return PyLong_FromUnsignedLongLong(load64(self->peer_seq));
}

/* -- a whole step of the trainer's in two calls */

static void unbind(Bell *self)
{
    Py_buffer *all[] = {&self->actions, &self->obs, &self->rewards, &self->dones, &self->truncated};
    size_t i;
    for (i = 0; i < sizeof all / sizeof *all; i++)
        if (all[i]->obj) PyBuffer_Release(all[i]);
    self->answered = self->holder = NULL;
}

/* bind(actions, obs, rewards, dones, truncated, answered_seq, holder=0, holder_is=0): the arrays, and offsets in the buffer:
 * of answered_seq, and of a word that must hold `holder_is` whenever something is asked (0: there is none). */
static PyObject *bell_bind(PyObject *base, PyObject *args)
{
    Bell *self = (Bell *)base;
    PyObject *actions, *obs, *rewards, *dones, *truncated;
    Py_ssize_t answered, holder = 0;
    unsigned int holder_is = 0;
    if (!usable(self)) return NULL;
    if (!PyArg_ParseTuple(args, "OOOOOn|nI", &actions, &obs, &rewards, &dones, &truncated, &answered, &holder, &holder_is))
        return NULL;
    if (self->busy) return PyErr_Format(PyExc_RuntimeError, "somebody waits on this Bell");
    unbind(self);
    if (!floats(actions, &self->actions, PyBUF_WRITABLE | PyBUF_FORMAT) || !floats(obs, &self->obs, PyBUF_SIMPLE) ||
        !floats(rewards, &self->rewards, PyBUF_SIMPLE) || PyObject_GetBuffer(dones, &self->dones, PyBUF_C_CONTIGUOUS) ||
        PyObject_GetBuffer(truncated, &self->truncated, PyBUF_C_CONTIGUOUS))
        goto wrong;
    if (self->dones.len != self->rewards.len / 4 || self->truncated.len != self->dones.len) {
        PyErr_SetString(PyExc_ValueError, "rewards, dones and truncated disagree");
        goto wrong;
    }
    self->answered = place(&self->view, answered, 8, 0);
    if (!self->answered) goto wrong;
    self->holder = place(&self->view, holder, 4, 1);
    if (PyErr_Occurred()) goto wrong;
    self->holder_is = holder_is;
    self->expected = load64(self->peer_seq);
    Py_RETURN_NONE;
wrong:
    unbind(self);
    return NULL;
}

static int bound(Bell *self)
{
    if (self->answered && usable(self)) return 1;
    if (PyErr_Occurred()) return 0;
    PyErr_SetString(PyExc_ValueError, "this Bell is not bound to arrays");
    return 0;
}

enum { ASKED = -1, UNASKED = -2, NOT_OURS = -3 };

static int alike(Py_buffer *one, Py_buffer *other)
{
    int i;
    if (one->ndim != other->ndim || strcmp(one->format ? one->format : "B", other->format ? other->format : "B")) return 0;
    for (i = 0; i < one->ndim; i++)
        if (one->shape[i] != other->shape[i]) return 0;
    return 1;
}

/* ask(actions): copies them, publishes. Instead of publishing: the index of a number that is not finite, UNASKED where
 * the peer has counted although nothing was asked, or NOT_OURS where the segment is somebody else's by now: then nothing
 * was written. None for `actions`: they stand there already. */
static PyObject *bell_ask(PyObject *base, PyObject *source)
{
    Bell *self = (Bell *)base;
    Py_buffer from;
    Py_ssize_t bad = -1;
    if (!bound(self)) return NULL;
    if (self->holder && load32(self->holder) != self->holder_is) return PyLong_FromLong(NOT_OURS);
    if (source != Py_None) {
        if (!floats(source, &from, PyBUF_FORMAT)) return NULL;
        if (!alike(&from, &self->actions)) {
            PyErr_SetString(PyExc_TypeError, "actions must be float32 [num_envs, act_size]");
            PyBuffer_Release(&from);
            return NULL;
        }
        bad = first_bad(from.buf, self->actions.buf, from.len / 4);
        PyBuffer_Release(&from);
        if (bad >= 0) return PyLong_FromSsize_t(bad);
    }
    if (load64(self->peer_seq) != self->expected) return PyLong_FromLong(UNASKED);
    self->expected++;
    self->asked = increment64(self->own_seq);
    if (!rang(self, ring_peer(self))) return NULL;
    return PyLong_FromLong(ASKED);
}

/* answer(pos, slice_ms): waits; True where the answer is there, is of this request, alone, and holds what it may hold. */
static PyObject *bell_answer(PyObject *base, PyObject *const *args, Py_ssize_t nargs)
{
    Bell *self = (Bell *)base;
    Py_ssize_t bad;
    uint32_t pos;
    long slice;
    if (!bound(self)) return NULL;
    if (nargs != 2) return PyErr_Format(PyExc_TypeError, "answer takes 2 arguments");
    pos = (uint32_t)PyLong_AsUnsignedLong(args[0]);
    slice = PyLong_AsLong(args[1]);
    if (PyErr_Occurred() || !wait_for(self, self->expected - 1, pos, slice)) return NULL;
    if (load64(self->peer_seq) != self->expected || *(uint64_t *)self->answered != self->asked ||
        (self->peer_ring && load32(self->peer_ring) != pos))
        Py_RETURN_FALSE;
    if (bad_step(self->obs.buf, self->obs.len / 4, self->rewards.buf, self->dones.buf, self->truncated.buf, self->dones.len, &bad))
        Py_RETURN_FALSE;
    Py_RETURN_TRUE;
}

static PyObject *bell_release(PyObject *base, PyObject *unused)
{
    Bell *self = (Bell *)base;
    if (self->busy) self->released = 1;
    else let_go(self);
    Py_RETURN_NONE;
}

static PyObject *bell_waits(PyObject *base, void *unused) { return PyLong_FromUnsignedLongLong(((Bell *)base)->waits); }
static PyObject *bell_sleeps(PyObject *base, void *unused) { return PyLong_FromUnsignedLongLong(((Bell *)base)->sleeps); }

static PyMethodDef bell_methods[] = {
    {"publish", bell_publish, METH_NOARGS, "Increments this side's counter, wakes the other side; the new value."},
    {"nudge", bell_nudge, METH_NOARGS, "Wakes the other side if it sleeps."},
    {"peek", bell_peek, METH_NOARGS, "The other side's counter."},
    {"wait", (PyCFunction)(void (*)(void))bell_wait, METH_FASTCALL, "wait(seq, pos=0, slice_ms=100): the other side's counter."},
    {"bind", bell_bind, METH_VARARGS, "bind(actions, obs, rewards, dones, truncated, answered_seq, holder=0, holder_is=0): see ask."},
    {"ask", bell_ask, METH_O, "ask(actions): copies and publishes; -1, the index of a bad number, -2: unasked frame, -3: not ours."},
    {"answer", (PyCFunction)(void (*)(void))bell_answer, METH_FASTCALL, "answer(pos, slice_ms): is the right answer there?"},
    {"release", bell_release, METH_NOARGS, "Lets go of buffer and socket."},
    {NULL, NULL, 0, NULL}};
static PyObject *bell_expected(PyObject *base, void *unused) { return PyLong_FromUnsignedLongLong(((Bell *)base)->expected); }
static PyObject *bell_asked(PyObject *base, void *unused) { return PyLong_FromUnsignedLongLong(((Bell *)base)->asked); }

static PyGetSetDef bell_getset[] = {{"expected", bell_expected, NULL, "The peer's counter once it has answered.", NULL},
                                    {"asked", bell_asked, NULL, "This side's counter of the last ask.", NULL},
                                    {"waits", bell_waits, NULL, "Calls of wait.", NULL},
                                    {"sleeps", bell_sleeps, NULL, "Waits that looked in vain and slept.", NULL},
                                    {NULL, NULL, NULL, NULL, NULL}};
static PyType_Slot bell_slots[] = {{Py_tp_init, bell_init},
                                   {Py_tp_dealloc, bell_dealloc},
                                   {Py_tp_methods, bell_methods},
                                   {Py_tp_getset, bell_getset},
                                   {Py_tp_new, PyType_GenericNew},
                                   {0, NULL}};
static PyType_Spec bell_spec = {"ue_rl.shm._sync.Bell", sizeof(Bell), 0, Py_TPFLAGS_DEFAULT, bell_slots};

/* -- single words */

static char *word(PyObject *const *args, Py_ssize_t nargs, Py_ssize_t wanted, Py_buffer *view, Py_ssize_t size, int writes)
{
    Py_ssize_t offset;
    char *at;
    if (nargs != wanted) return PyErr_Format(PyExc_TypeError, "%zd arguments expected", wanted), NULL;
    offset = PyLong_AsSsize_t(args[1]);
    if (offset == -1 && PyErr_Occurred()) return NULL;
    if (PyObject_GetBuffer(args[0], view, PyBUF_SIMPLE)) return NULL;
    at = place(view, offset, size, 0);
    if (at && writes && view->readonly) {
        PyErr_SetString(PyExc_ValueError, "the buffer is read-only");
        at = NULL;
    }
    if (!at) PyBuffer_Release(view);
    return at;
}

static PyObject *load_u32(PyObject *self, PyObject *const *args, Py_ssize_t nargs)
{
    Py_buffer view;
    char *at = word(args, nargs, 2, &view, 4, 0);
    uint32_t value;
    if (!at) return NULL;
    value = load32(at);
    PyBuffer_Release(&view);
    return PyLong_FromUnsignedLong(value);
}

static PyObject *load_u64(PyObject *self, PyObject *const *args, Py_ssize_t nargs)
{
    Py_buffer view;
    char *at = word(args, nargs, 2, &view, 8, 0);
    uint64_t value;
    if (!at) return NULL;
    value = load64(at);
    PyBuffer_Release(&view);
    return PyLong_FromUnsignedLongLong(value);
}

static PyObject *store_u32(PyObject *self, PyObject *const *args, Py_ssize_t nargs)
{
    Py_buffer view;
    char *at = word(args, nargs, 3, &view, 4, 1);
    unsigned long value;
    if (!at) return NULL;
    value = PyLong_AsUnsignedLong(args[2]);
    if (!PyErr_Occurred()) {
        if (value > 0xFFFFFFFFul) PyErr_SetString(PyExc_OverflowError, "more than 32 bits");
        else store32(at, (uint32_t)value);
    }
    PyBuffer_Release(&view);
    if (PyErr_Occurred()) return NULL;
    Py_RETURN_NONE;
}

static PyObject *store_u64(PyObject *self, PyObject *const *args, Py_ssize_t nargs)
{
    Py_buffer view;
    char *at = word(args, nargs, 3, &view, 8, 1);
    uint64_t value;
    if (!at) return NULL;
    value = PyLong_AsUnsignedLongLong(args[2]);
    if (!PyErr_Occurred()) store64(at, value);
    PyBuffer_Release(&view);
    if (PyErr_Occurred()) return NULL;
    Py_RETURN_NONE;
}

static PyObject *increment_u64(PyObject *self, PyObject *const *args, Py_ssize_t nargs)
{
    Py_buffer view;
    char *at;
    uint64_t value;
    at = word(args, nargs, 2, &view, 8, 1);
    if (!at) return NULL;
    value = increment64(at);
    PyBuffer_Release(&view);
    return PyLong_FromUnsignedLongLong(value);
}

static PyObject *compare_exchange_u32(PyObject *self, PyObject *const *args, Py_ssize_t nargs)
{
    Py_buffer view;
    char *at = word(args, nargs, 4, &view, 4, 1);
    unsigned long from, to;
    int done = 0;
    if (!at) return NULL;
    from = PyLong_AsUnsignedLong(args[2]);
    to = PyErr_Occurred() ? 0 : PyLong_AsUnsignedLong(args[3]);
    if (!PyErr_Occurred()) done = swap32(at, (uint32_t)from, (uint32_t)to);
    PyBuffer_Release(&view);
    return PyErr_Occurred() ? NULL : PyBool_FromLong(done);
}

/* -- checked copies, as functions */

static PyObject *first_nonfinite(PyObject *self, PyObject *const *args, Py_ssize_t nargs)
{
    Py_buffer view;
    Py_ssize_t bad;
    if (nargs != 1) return PyErr_Format(PyExc_TypeError, "first_nonfinite takes 1 argument");
    if (!floats(args[0], &view, PyBUF_SIMPLE)) return NULL;
    bad = first_bad(view.buf, NULL, view.len / 4);
    PyBuffer_Release(&view);
    return PyLong_FromSsize_t(bad);
}

static PyObject *copy_finite(PyObject *self, PyObject *const *args, Py_ssize_t nargs)
{
    Py_buffer to, from;
    Py_ssize_t bad = -1;
    if (nargs != 2) return PyErr_Format(PyExc_TypeError, "copy_finite takes 2 arguments");
    if (!floats(args[0], &to, PyBUF_WRITABLE)) return NULL;
    if (!floats(args[1], &from, PyBUF_SIMPLE)) {
        PyBuffer_Release(&to);
        return NULL;
    }
    if (to.len != from.len) PyErr_Format(PyExc_ValueError, "%zd bytes into %zd", from.len, to.len);
    else bad = first_bad(from.buf, to.buf, to.len / 4);
    PyBuffer_Release(&from);
    PyBuffer_Release(&to);
    return PyErr_Occurred() ? NULL : PyLong_FromSsize_t(bad);
}

/* check_step(obs, rewards, dones, truncated): 0, or (kind, index); see bad_step. */
static PyObject *check_step(PyObject *self, PyObject *const *args, Py_ssize_t nargs)
{
    Py_buffer obs, rewards, dones, cut;
    Py_ssize_t bad = -1, n;
    int kind = 0;
    if (nargs != 4) return PyErr_Format(PyExc_TypeError, "check_step takes 4 arguments");
    if (!floats(args[0], &obs, PyBUF_SIMPLE)) return NULL;
    if (!floats(args[1], &rewards, PyBUF_SIMPLE)) goto no_rewards;
    if (PyObject_GetBuffer(args[2], &dones, PyBUF_C_CONTIGUOUS)) goto no_dones;
    if (PyObject_GetBuffer(args[3], &cut, PyBUF_C_CONTIGUOUS)) goto no_cut;
    n = rewards.len / 4;
    if (dones.len != n || cut.len != n) PyErr_SetString(PyExc_ValueError, "rewards, dones and truncated disagree");
    else kind = bad_step(obs.buf, obs.len / 4, rewards.buf, dones.buf, cut.buf, n, &bad);
    PyBuffer_Release(&cut);
no_cut:
    PyBuffer_Release(&dones);
no_dones:
    PyBuffer_Release(&rewards);
no_rewards:
    PyBuffer_Release(&obs);
    if (PyErr_Occurred()) return NULL;
    return kind ? Py_BuildValue("(in)", kind, bad) : PyLong_FromLong(0);
}

#define FAST(name, doc) {#name, (PyCFunction)(void (*)(void))name, METH_FASTCALL, doc}
static PyMethodDef methods[] = {
    FAST(load_u32, "load_u32(buffer, offset): acquire."),
    FAST(load_u64, "load_u64(buffer, offset): acquire."),
    FAST(store_u32, "store_u32(buffer, offset, value): release."),
    FAST(store_u64, "store_u64(buffer, offset, value): release."),
    FAST(increment_u64, "increment_u64(buffer, offset): adds 1, sequentially consistent; the new value."),
    FAST(compare_exchange_u32, "compare_exchange_u32(buffer, offset, expected, new): did it hold `expected`?"),
    FAST(first_nonfinite, "first_nonfinite(array): index of the first NaN or infinity of a float32 buffer, or -1."),
    FAST(copy_finite, "copy_finite(to, from_): copies float32s; index of the first NaN or infinity, or -1."),
    FAST(check_step, "check_step(obs, rewards, dones, truncated): 0, or (kind, index) of the first bad number."),
    {NULL, NULL, 0, NULL}};

static int exec_module(PyObject *module)
{
    PyObject *type = PyType_FromSpec(&bell_spec);
    if (!type) return -1;
    if (PyModule_AddObject(module, "Bell", type)) {
        Py_DECREF(type);
        return -1;
    }
    return PyModule_AddIntConstant(module, "HAS_FUTEX", HAS_FUTEX);
}

static PyModuleDef_Slot slots[] = {{Py_mod_exec, exec_module}, {0, NULL}};
static PyModuleDef module_def = {PyModuleDef_HEAD_INIT, "_sync", "See ue_rl/shm/bell.py.", 0, methods, slots, NULL, NULL, NULL};

PyMODINIT_FUNC PyInit__sync(void) { return PyModuleDef_Init(&module_def); }
