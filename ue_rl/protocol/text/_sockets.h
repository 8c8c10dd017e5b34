/* Sockets without Python's overhead per call: POSIX only, elsewhere connections/ takes its Python path. */
#ifndef UE_RL_SOCKETS_H
#define UE_RL_SOCKETS_H

#include <Python.h>
#include "../../system/_arrays.h"

#ifndef _WIN32
#include "../../system/_platform.h"
#include <poll.h>

/* A lock-step answer often comes within tens of microseconds, and waking a blocked process costs about as much. So a
 * wait may spin (poll the socket) before it blocks in poll(), for about twice what waits took lately and never longer
 * than `spin` microseconds; not at all where they take longer than that. Where the cores are busy, spinning keeps the
 * engine from its core and makes everything slower: so both ways are tried, and the one with the quicker answers is
 * used. Every wait ends after `slice` milliseconds, so that Python can check its deadline and signals. The GIL is
 * released throughout.
 *
 * The figures are hints over all waits of the process. Its threads share them without a lock: each access is a relaxed
 * atomic one, and an update that two threads make at once may be lost.
 */
enum { BLOCKING = 0, SPINNING = 1, SETTLED_FOR = 256, TRY_FOR = 8, LONGEST_NOTED_NS = 5000000 };
static int32_t usual_wait_ns[2] = {60000, 20000};
static int32_t wait_mode = SPINNING, wait_trying = 0, wait_left = SETTLED_FOR;

static int32_t get(const int32_t *hint) { return __atomic_load_n(hint, __ATOMIC_RELAXED); }
static void set(int32_t *hint, int32_t value) { __atomic_store_n(hint, value, __ATOMIC_RELAXED); }

static int choose_wait(void)
{
    int left = get(&wait_left) - 1, trying = get(&wait_trying), mode = get(&wait_mode);
    if (left <= 0) {
        if (trying) {
            mode = (int64_t)get(&usual_wait_ns[SPINNING]) * 10 < (int64_t)get(&usual_wait_ns[BLOCKING]) * 9;
            set(&wait_mode, mode);
        }
        trying = !trying;
        set(&wait_trying, trying);
        left = trying ? TRY_FOR : SETTLED_FOR;
    }
    set(&wait_left, left);
    return trying ? !mode : mode;
}

static void note_wait(int mode, int64_t ns)
{
    int32_t usual = get(&usual_wait_ns[mode]);
    set(&usual_wait_ns[mode], usual + ((int32_t)(ns < LONGEST_NOTED_NS ? ns : LONGEST_NOTED_NS) - usual) / 4);
}

/* Bytes received, 0 at the end of the stream, -1 with errno; EAGAIN: nothing came in time. */
static ssize_t receive_some(int fd, void *to, size_t room, long spin_us, int slice_ms)
{
    ssize_t n = recv(fd, to, room, MSG_DONTWAIT);
    int64_t begun, now, usual, longest = (int64_t)spin_us * 1000, spin = 0;
    struct pollfd one = {fd, POLLIN, 0};
    int ready, mode;
    if (n >= 0 || (errno != EAGAIN && errno != EWOULDBLOCK)) return n;
    begun = now = now_ns();
    mode = choose_wait();
    usual = get(&usual_wait_ns[mode]);
    if (mode == SPINNING && usual < longest) spin = 2 * usual + 20000 < longest ? 2 * usual + 20000 : longest;
    while (now - begun < spin) {
        yield_core(); /* where the cores are taken, the engine may be waiting for this one */
        n = recv(fd, to, room, MSG_DONTWAIT);
        now = now_ns();
        if (n >= 0 || (errno != EAGAIN && errno != EWOULDBLOCK)) {
            note_wait(mode, now - begun);
            return n;
        }
    }
    ready = poll(&one, 1, slice_ms);
    note_wait(mode, now_ns() - begun);
    if (ready > 0) return recv(fd, to, room, MSG_DONTWAIT);
    errno = EAGAIN;
    return -1;
}

static int nothing_came(int problem) { return problem == EAGAIN || problem == EWOULDBLOCK || problem == EINTR; }

/* receive(fd, buffer, spin_us, slice_ms): bytes received, 0: end of stream, -1: nothing came in time */
static PyObject *receive(PyObject *self, PyObject *const *args, Py_ssize_t nargs)
{
    Py_buffer to;
    long fd, spin, slice;
    ssize_t n;
    int problem;
    if (nargs != 4) return PyErr_Format(PyExc_TypeError, "receive takes 4 arguments");
    fd = PyLong_AsLong(args[0]), spin = PyLong_AsLong(args[2]), slice = PyLong_AsLong(args[3]);
    if (PyErr_Occurred() || PyObject_GetBuffer(args[1], &to, PyBUF_WRITABLE)) return NULL;
    Py_BEGIN_ALLOW_THREADS
    n = receive_some((int)fd, to.buf, (size_t)to.len, spin, (int)slice);
    problem = errno;
    Py_END_ALLOW_THREADS
    PyBuffer_Release(&to);
    if (n >= 0) return PyLong_FromSsize_t(n);
    if (nothing_came(problem)) return PyLong_FromLong(-1);
    errno = problem;
    return PyErr_SetFromErrno(PyExc_OSError);
}

/* Receives into one env's region until it ends in a newline: 1. Otherwise 0: after `slice` without a byte, at *stop,
 * where the region is full, where the stream ended (*have becomes -1 - *have), or with *problem set. */
static int receive_line(int fd, char *region, Py_ssize_t stride, int32_t *have, long spin, int slice, int64_t *stop,
                        int *problem)
{
    while (*have >= 0 && *have < stride && (*have == 0 || region[*have - 1] != '\n')) {
        ssize_t got = receive_some(fd, region + *have, (size_t)(stride - *have), spin, slice);
        if (got <= 0) {
            if (got < 0) *problem = errno;
            else *have = -1 - *have;
            return 0;
        }
        *have += (int32_t)got;
        if (region[*have - 1] == '\n') return 1;
        /* A peer that drips bytes must not keep us from the deadline: from its first part on, one slice for all. */
        if (!*stop) *stop = now_ns() + (int64_t)slice * 1000000;
        else if (now_ns() > *stop) return 0;
    }
    return *have > 0 && region[*have - 1] == '\n';
}

/* receive_lines(fds, data, stride, fill, wanted, spin_us, slice_ms, came=None): receives until each wanted socket's
 * region ends in a newline; `came` receives the seconds until then. Returns num_envs when done; otherwise the first
 * unfinished env (see receive_line), or (-errno, env). */
static PyObject *receive_lines(PyObject *self, PyObject *const *args, Py_ssize_t nargs)
{
    static const Dtype float64 = {"float64", "d", 8};
    static const Dtype *const dtypes[] = {&I32, &U8, &I32, &U8, &float64};
    Py_buffer views[5], *fds = views, *data = views + 1, *fill = views + 2, *wanted = views + 3, *came = views + 4;
    Py_ssize_t stride, i, n;
    long spin, slice;
    int problem = 0, count = nargs == 8 && args[7] != Py_None ? 5 : 4;
    int64_t stop = 0, begun = now_ns();
    if (nargs != 7 && nargs != 8) return PyErr_Format(PyExc_TypeError, "receive_lines takes 7 or 8 arguments");
    stride = PyLong_AsSsize_t(args[2]), spin = PyLong_AsLong(args[5]), slice = PyLong_AsLong(args[6]);
    if (PyErr_Occurred()) return NULL;
    if (get_arrays((PyObject *const[]){args[0], args[1], args[3], args[4], count > 4 ? args[7] : NULL}, views, dtypes,
                   22, count))
        return NULL;
    n = fds->len / 4;
    if (fill->len != n * 4 || wanted->len != n || (count > 4 && came->len != n * 8) || stride < 1 ||
        stride > INT32_MAX || stride > data->len / (n ? n : 1))
        PyErr_SetString(PyExc_ValueError, "fds, data, fill and wanted disagree");
    for (i = 0; !PyErr_Occurred() && i < n; i++)
        if (((int32_t *)fill->buf)[i] > stride) PyErr_SetString(PyExc_ValueError, "fill is beyond its region");
    if (!PyErr_Occurred()) {
        const uint8_t *want = wanted->buf;
        Py_BEGIN_ALLOW_THREADS
        for (i = 0; i < n; i++) {
            if (want[i] && !receive_line(((int32_t *)fds->buf)[i], (char *)data->buf + i * stride, stride,
                                         (int32_t *)fill->buf + i, spin, (int)slice, &stop, &problem))
                break;
            if (count > 4) ((double *)came->buf)[i] = (double)(now_ns() - begun) * 1e-9;
        }
        Py_END_ALLOW_THREADS
    }
    release_arrays(views, count);
    if (PyErr_Occurred()) return NULL;
    if (problem && !nothing_came(problem)) return Py_BuildValue("(in)", -problem, i);
    return PyLong_FromSsize_t(i);
}

/* send_lines(fds, lines): how many lines were sent whole, in order; the next one was not sent at all, or (i, sent)
 * where only a part of it was. */
static PyObject *send_lines(PyObject *self, PyObject *const *args, Py_ssize_t nargs)
{
    Py_buffer fds;
    PyObject *result = NULL;
    Py_ssize_t i, n;
    if (nargs != 2 || !PyList_Check(args[1])) return PyErr_Format(PyExc_TypeError, "send_lines takes fds and a list");
    if (get_array(args[0], &fds, &I32, 0)) return NULL;
    n = PyList_GET_SIZE(args[1]);
    if (fds.len / 4 != n) PyErr_SetString(PyExc_ValueError, "one line per socket");
    for (i = 0; !PyErr_Occurred() && i < n; i++) {
        PyObject *line = PyList_GET_ITEM(args[1], i);
        ssize_t sent, size;
        if (!PyBytes_Check(line)) {
            PyErr_SetString(PyExc_TypeError, "a line is bytes");
            break;
        }
        size = PyBytes_GET_SIZE(line);
        sent = send(((int32_t *)fds.buf)[i], PyBytes_AS_STRING(line), (size_t)size, MSG_DONTWAIT | MSG_NOSIGNAL);
        if (sent == size) continue;
        if (sent > 0) result = Py_BuildValue("(nn)", i, (Py_ssize_t)sent);
        break;
    }
    PyBuffer_Release(&fds);
    return PyErr_Occurred() || result ? result : PyLong_FromSsize_t(i);
}
#endif

#endif
