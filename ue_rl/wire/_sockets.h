/* Sockets without Python's overhead per call: POSIX only, elsewhere connections/ takes its Python path. */
#ifndef UE_RL_SOCKETS_H
#define UE_RL_SOCKETS_H

#include <Python.h>

#ifndef _WIN32
#include <errno.h>
#include <poll.h>
#include <sched.h>
#include <stdint.h>
#include <sys/socket.h>
#include <time.h>
#ifndef MSG_NOSIGNAL
#define MSG_NOSIGNAL 0 /* macOS: Python ignores SIGPIPE anyway */
#endif

/* A lock-step answer often comes within tens of microseconds, and waking a sleeping process costs about as much. So a
 * wait may look again and again before it sleeps in poll(), for about twice what waits took lately and never longer than
 * `spin` microseconds; not at all where they take longer than that. Where the cores are busy, looking keeps the engine
 * from its core and makes everything slower: so both ways are tried, and the one in which answers come sooner is used.
 * Every wait ends after `slice` milliseconds, so that Python can look at its deadline and at signals. The GIL is released
 * throughout. The numbers are hints over all waits of the process, so there is no lock.
 */
enum { SLEEPING = 0, LOOKING = 1, SETTLED_FOR = 256, TRY_FOR = 8 };
static int64_t usual_wait_ns[2] = {60000, 20000};
static int wait_mode = LOOKING, wait_trying, wait_left = SETTLED_FOR;

static int choose_wait(void)
{
    if (--wait_left <= 0) {
        if (wait_trying) wait_mode = usual_wait_ns[LOOKING] * 10 < usual_wait_ns[SLEEPING] * 9 ? LOOKING : SLEEPING;
        wait_trying = !wait_trying;
        wait_left = wait_trying ? TRY_FOR : SETTLED_FOR;
    }
    return wait_trying ? !wait_mode : wait_mode;
}

static void note_wait(int mode, int64_t ns)
{
    const int64_t most = 5000000;
    usual_wait_ns[mode] += ((ns < most ? ns : most) - usual_wait_ns[mode]) / 4;
}

static int64_t now_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

/* Bytes received, 0 at the end of the stream, -1 with errno; EAGAIN: nothing came in time. */
static ssize_t receive_some(int fd, void *to, size_t room, long spin_us, int slice_ms)
{
    ssize_t n = recv(fd, to, room, MSG_DONTWAIT);
    if (n >= 0 || (errno != EAGAIN && errno != EWOULDBLOCK)) return n;
    {
        int64_t begun = now_ns(), now = begun, longest = spin_us * 1000, look = 0;
        struct pollfd one = {fd, POLLIN, 0};
        int ready, mode = choose_wait();
        if (mode == LOOKING && usual_wait_ns[mode] < longest) {
            look = 2 * usual_wait_ns[mode] + 20000;
            if (look > longest) look = longest;
        }
        while (now - begun < look) {
            sched_yield(); /* where the cores are taken, the engine may be waiting for this one */
            n = recv(fd, to, room, MSG_DONTWAIT);
            now = now_ns();
            if (n >= 0 || (errno != EAGAIN && errno != EWOULDBLOCK)) {
                note_wait(mode, now - begun);
                return n;
            }
        }
        ready = poll(&one, 1, slice_ms);
        note_wait(mode, now_ns() - begun);
        if (ready <= 0) {
            errno = EAGAIN;
            return -1;
        }
    }
    return recv(fd, to, room, MSG_DONTWAIT);
}

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
    if (problem == EAGAIN || problem == EWOULDBLOCK || problem == EINTR) return PyLong_FromLong(-1);
    errno = problem;
    return PyErr_SetFromErrno(PyExc_OSError);
}

/* receive_lines(fds, data, stride, fill, wanted, spin_us, slice_ms): receives until each wanted socket's region ends in a
 * newline. Returns num_envs when done; otherwise the first unfinished env, after `slice` without a byte, where its
 * region is full (fill[i] == stride), or where its stream ended (fill[i] set to -1 - fill[i]). */
static PyObject *receive_lines(PyObject *self, PyObject *const *args, Py_ssize_t nargs)
{
    Py_buffer fds, data, fill, wanted;
    Py_ssize_t stride, i = 0, n;
    long spin, slice;
    int problem = 0;
    if (nargs != 7) return PyErr_Format(PyExc_TypeError, "receive_lines takes 7 arguments");
    stride = PyLong_AsSsize_t(args[2]), spin = PyLong_AsLong(args[5]), slice = PyLong_AsLong(args[6]);
    if (PyErr_Occurred() || PyObject_GetBuffer(args[0], &fds, PyBUF_C_CONTIGUOUS)) return NULL;
    if (PyObject_GetBuffer(args[1], &data, PyBUF_WRITABLE)) goto no_data;
    if (PyObject_GetBuffer(args[3], &fill, PyBUF_C_CONTIGUOUS | PyBUF_WRITABLE)) goto no_fill;
    if (PyObject_GetBuffer(args[4], &wanted, PyBUF_C_CONTIGUOUS)) goto no_wanted;
    n = fds.len / 4;
    if (fill.len != n * 4 || wanted.len != n || stride < 1 || stride * n > data.len) {
        PyErr_SetString(PyExc_ValueError, "fds, data, fill and wanted disagree");
    } else {
        const int32_t *fd = fds.buf;
        const uint8_t *want = wanted.buf;
        int32_t *have = fill.buf;
        int64_t stop = 0; /* a peer that drips bytes must not keep us from the deadline: from its first part on, one slice */
        Py_BEGIN_ALLOW_THREADS
        for (; i < n; i++) {
            char *region = (char *)data.buf + i * stride;
            if (!want[i]) continue;
            while (have[i] >= 0 && have[i] < stride && (have[i] == 0 || region[have[i] - 1] != '\n')) {
                ssize_t got = receive_some(fd[i], region + have[i], (size_t)(stride - have[i]), spin, (int)slice);
                if (got > 0) {
                    have[i] += (int32_t)got;
                    if (region[have[i] - 1] == '\n' || have[i] == stride) break;
                    if (!stop) stop = now_ns() + (int64_t)slice * 1000000;
                    else if (now_ns() > stop) break;
                } else {
                    if (got < 0) problem = errno;
                    else have[i] = -1 - have[i];
                    break;
                }
            }
            if (have[i] <= 0 || region[have[i] - 1] != '\n') break;
        }
        Py_END_ALLOW_THREADS
    }
    PyBuffer_Release(&wanted);
no_wanted:
    PyBuffer_Release(&fill);
no_fill:
    PyBuffer_Release(&data);
no_data:
    PyBuffer_Release(&fds);
    if (PyErr_Occurred()) return NULL;
    if (problem && problem != EAGAIN && problem != EWOULDBLOCK && problem != EINTR) {
        PyObject *pair = Py_BuildValue("(in)", -problem, i);
        return pair;
    }
    return PyLong_FromSsize_t(i);
}

/* send_lines(fds, lines): how many lines were sent whole, in order; the next one was not sent at all, or (i, sent) where
 * only a part of it was. */
static PyObject *send_lines(PyObject *self, PyObject *const *args, Py_ssize_t nargs)
{
    Py_buffer fds;
    PyObject *result = NULL;
    Py_ssize_t i, n;
    if (nargs != 2 || !PyList_Check(args[1])) return PyErr_Format(PyExc_TypeError, "send_lines takes fds and a list");
    if (PyObject_GetBuffer(args[0], &fds, PyBUF_C_CONTIGUOUS)) return NULL;
    n = PyList_GET_SIZE(args[1]);
    if (fds.len / 4 != n) {
        PyErr_SetString(PyExc_ValueError, "one line per socket");
    } else {
        const int32_t *fd = fds.buf;
        for (i = 0; i < n; i++) {
            PyObject *line = PyList_GET_ITEM(args[1], i);
            ssize_t sent, size;
            if (!PyBytes_Check(line)) {
                PyErr_SetString(PyExc_TypeError, "a line is bytes");
                break;
            }
            size = PyBytes_GET_SIZE(line);
            sent = send(fd[i], PyBytes_AS_STRING(line), (size_t)size, MSG_DONTWAIT | MSG_NOSIGNAL);
            if (sent == size) continue;
            result = sent > 0 ? Py_BuildValue("(nn)", i, (Py_ssize_t)sent) : PyLong_FromSsize_t(i);
            break;
        }
        if (i == n) result = PyLong_FromSsize_t(n);
    }
    PyBuffer_Release(&fds);
    return result;
}
#endif

#endif
