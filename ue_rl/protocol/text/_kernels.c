/* The compiled parse and format loops behind ue_rl/protocol/text/codec.py. Grammar: docs/protocol.md.
 *
 * ue_rl/protocol/text/kernels_pure.py is the same in Python, and documents the functions: same results, same failure codes.
 * A function returns its result, or a failure tuple (code, env, field, position, got), of which codec.py makes a named
 * error. A row is read whole before any of it is written into the caller's arrays. The loops are _lines.h's, which knows
 * no Python: here stand the arguments, their checks and the results.
 */
#define PY_SSIZE_T_CLEAN
#define _GNU_SOURCE 1
#include <stddef.h>
#include "../../system/_arrays.h"
#include "_lines.h"
#include "_own_dicts.h"
#include "_rows.h"
#include "_sockets.h"
#include "_steps.h"

/* -- failures */

/* Python's own conversion, for the numbers that _float_text.h leaves to it. Out of memory: infinite, with MemoryError
 * set. */
static double slow_double(const char *start, const char *end)
{
    char small[128];
    size_t length = (size_t)(end - start);
    char *text = length < sizeof small ? small : PyMem_Malloc(length + 1);
    double value;
    if (text == NULL) {
        PyErr_NoMemory();
        return HUGE_VAL;
    }
    memcpy(text, start, length);
    text[length] = 0;
    value = PyOS_string_to_double(text, NULL, NULL);
    if (text != small) PyMem_Free(text);
    return PyErr_Occurred() ? HUGE_VAL : value;
}

static PyObject *failure_tuple(const Failure *f, const char *base)
{
    if (PyErr_Occurred()) return NULL; /* out of memory while a number was read */
    return Py_BuildValue("(iLinL)", f->code, f->env, f->field, (Py_ssize_t)(f->at ? f->at - base : 0), f->got);
}

/* -- arguments: what is read or written, and the arrays of a step */

typedef struct {
    const Dtype *dtype;
    Py_ssize_t row_bytes; /* bytes for each row; 0: any, [rows, size] */
} Column;

static const Column STATE[] = {{&F32, 0}, {&F32, 4}, {&U8, 1}, {&U8, 1}, {&U8, 1}, {&I32, 8}};
static const Column REQUEST[] = {{&F32, 0}, {&U8, 1}, {&I64, 8}, {&I32, 16}};

typedef struct {
    Py_buffer first; /* the text to decode, or the rows to encode, int32 */
    Py_buffer column[STATE_COLUMNS];
    Py_buffer masks, layout; /* both optional; see decode_states in kernels_pure.py */
    int held, has_masks, has_layout;
    Arrays arrays; /* the same, as _lines.h takes them */
} Held;

static void release(Held *h)
{
    if (h->has_masks) PyBuffer_Release(&h->masks);
    if (h->has_layout) PyBuffer_Release(&h->layout);
    release_arrays(h->column, h->held);
    PyBuffer_Release(&h->first);
}

static int check_arrays(Held *h, const Column *columns, int decoding)
{
    const int32_t *ids = h->first.buf;
    Arrays *a = &h->arrays;
    Py_ssize_t i, agents = h->has_layout && h->layout.ndim == 2 ? h->layout.shape[0] : 1;
    int wanted; /* is a layout needed? */
    if (h->column[0].ndim != 2) {
        PyErr_SetString(PyExc_TypeError, "observations and actions must have the shape [rows, size]");
        return -1;
    }
    a->text = h->first.buf;
    a->rows = h->column[0].shape[0];
    a->size = a->rows ? h->column[0].shape[1] : 0;
    for (i = 1; i < h->held; i++)
        if (h->column[i].len != a->rows * columns[i].row_bytes) {
            PyErr_SetString(PyExc_ValueError, "the arrays disagree about the number of rows");
            return -1;
        }
    for (i = 0; i < h->held; i++) a->column[i] = h->column[i].buf;
    a->masks = h->has_masks ? h->masks.buf : NULL;
    a->layout = h->has_layout ? h->layout.buf : NULL;
    a->layout_width = h->has_layout && h->layout.ndim == 2 ? h->layout.shape[1] : 0;
    a->mask_size = h->has_masks && a->rows ? h->masks.len / a->rows : 0;
    a->per_env = a->agents ? agents : 1;
    wanted = a->mask_size || a->agents;
    if ((h->has_masks && h->masks.len != a->rows * a->mask_size) || (h->has_layout && h->layout.ndim != 2) ||
        (wanted && (a->layout_width < 2 || agents != a->per_env)) || a->per_env < 1 || a->per_env > INT32_MAX ||
        a->rows % a->per_env || check_layout(a, agents)) {
        PyErr_SetString(PyExc_ValueError, "masks, layout and the number of rows disagree");
        return -1;
    }
    a->envs = a->rows / a->per_env;
    a->plain = !a->agents && !a->mask_size;
    for (i = 0; !decoding && i < h->first.len / 4; i++)
        if (ids[i] < 0 || ids[i] >= a->rows) {
            PyErr_SetString(PyExc_IndexError, "row out of range");
            return -1;
        }
    return 0;
}

/* args: the text or the rows to encode, one array for each column, the masks where `masks`, and the layout. */
static int hold(Held *h, PyObject *const *args, const Column *columns, int count, int decoding, int masks, long form)
{
    PyObject *const *more = args + 1 + count;
    h->held = h->has_masks = h->has_layout = 0;
    h->arrays.agents = (form & AGENTS) != 0;
    if (decoding ? PyObject_GetBuffer(args[0], &h->first, PyBUF_SIMPLE) : get_array(args[0], &h->first, &I32, 0))
        return -1;
    while (h->held < count && !get_array(args[1 + h->held], &h->column[h->held], columns[h->held].dtype, decoding))
        h->held++;
    if (h->held == count) {
        if (masks && more[0] != Py_None) h->has_masks = get_array(more[0], &h->masks, &U8, decoding) == 0;
        if (!PyErr_Occurred() && more[masks] != Py_None)
            h->has_layout = get_array(more[masks], &h->layout, &I32, 0) == 0;
        if (!PyErr_Occurred() && check_arrays(h, columns, decoding) == 0) return 0;
    }
    release(h);
    return -1;
}

/* begin, with memory for the numbers of a row and only_env checked; -1 with an exception set. */
static int begin_reading(Reader *r, const Arrays *a, int form, long long only_env, int main_field)
{
    float *more = NULL;
    if (a->envs < 1 || only_env >= a->envs) {
        PyErr_SetString(PyExc_ValueError, "only_env must be -1 or below num_envs");
        return -1;
    }
    if (a->size > FEW_NUMBERS && !(more = PyMem_Malloc((size_t)a->size * sizeof(float)))) {
        PyErr_NoMemory();
        return -1;
    }
    begin(r, a, form, only_env, main_field, more);
    return 0;
}

static PyObject *finish(Reader *r, int failed)
{
    if (r->numbers != r->small) PyMem_Free(r->numbers);
    if (failed) return failure_tuple(&r->failure, r->arrays->text);
    return PyLong_FromSsize_t(r->json ? -r->rows : r->rows);
}

/* find_number(data, start, end): (where the rows end, number), as number_at */
static PyObject *find_number(PyObject *self, PyObject *const *args, Py_ssize_t nargs)
{
    Py_buffer data;
    Py_ssize_t start, end, rows_end = 0;
    int64_t number = 0;
    if (nargs != 3) return PyErr_Format(PyExc_TypeError, "find_number takes 3 arguments");
    start = PyLong_AsSsize_t(args[1]), end = PyLong_AsSsize_t(args[2]);
    if (PyErr_Occurred() || PyObject_GetBuffer(args[0], &data, PyBUF_SIMPLE)) return NULL;
    if (start < 0 || start > end || end > data.len)
        PyErr_SetString(PyExc_ValueError, "start and end must lie within data");
    else
        rows_end = number_at((char *)data.buf + start, (char *)data.buf + end, &number) - (char *)data.buf;
    PyBuffer_Release(&data);
    return PyErr_Occurred() ? NULL : Py_BuildValue("(nL)", rows_end, (long long)number);
}

/* -- the decoders */

static PyObject *decode(PyObject *const *args, Py_ssize_t nargs, const Column *columns, int count, int main_field)
{
    const int masks = main_field == F_OBS, taken = 1 + count + masks + 1;
    Held h;
    Reader r;
    PyObject *result = NULL;
    Py_ssize_t start, end;
    long form;
    long long only_env, number = 0;
    if (nargs != taken + 4 && nargs != taken + 5)
        return PyErr_Format(PyExc_TypeError, "expected %d or %d arguments, got %zd", taken + 4, taken + 5, nargs);
    start = PyLong_AsSsize_t(args[taken]), end = PyLong_AsSsize_t(args[taken + 1]);
    form = PyLong_AsLong(args[taken + 2]), only_env = PyLong_AsLongLong(args[taken + 3]);
    if (nargs > taken + 4) number = PyLong_AsLongLong(args[taken + 4]);
    if (PyErr_Occurred() || hold(&h, args, columns, count, 1, masks, form)) return NULL;
    if (start < 0 || start > end || end > h.first.len || end > INT32_MAX)
        PyErr_SetString(PyExc_ValueError, "start and end must lie within data, and below 2 GiB");
    else if (begin_reading(&r, &h.arrays, (int)form, only_env, main_field) == 0)
        result = finish(&r, decode_numbered(&r, h.arrays.text + start, h.arrays.text + end, (int)form, number));
    release(&h);
    return result;
}

static PyObject *decode_states(PyObject *self, PyObject *const *args, Py_ssize_t nargs)
{
    return decode(args, nargs, STATE, STATE_COLUMNS, F_OBS);
}

static PyObject *decode_requests(PyObject *self, PyObject *const *args, Py_ssize_t nargs)
{
    return decode(args, nargs, REQUEST, REQUEST_COLUMNS, F_ACT);
}

#ifndef _WIN32
/* decode_state_lines(data, obs, rewards, dones, truncated, pending, spans, masks, layout, stride, fill, form): line i,
 * of fill[i] bytes with its newline, stands at data[i * stride] and came on env i's own socket; 0 bytes: nothing came,
 * env skipped. */
static PyObject *decode_state_lines(PyObject *self, PyObject *const *args, Py_ssize_t nargs)
{
    Held h;
    Reader r;
    Py_buffer fill;
    PyObject *result = NULL;
    Py_ssize_t stride;
    long form;
    if (nargs != 12) return PyErr_Format(PyExc_TypeError, "decode_state_lines takes 12 arguments");
    stride = PyLong_AsSsize_t(args[9]), form = PyLong_AsLong(args[11]);
    if (PyErr_Occurred() || hold(&h, args, STATE, STATE_COLUMNS, 1, 1, form)) return NULL;
    if (get_array(args[10], &fill, &I32, 0) == 0) {
        if (h.arrays.agents || fill.len != h.arrays.rows * 4 || h.first.len > INT32_MAX || stride < 1 || stride > h.first.len ||
            stride * h.arrays.rows > h.first.len)
            PyErr_SetString(PyExc_ValueError, "data, stride and fill disagree");
        else if (begin_reading(&r, &h.arrays, (int)form, -1, F_OBS) == 0)
            result = finish(&r, decode_regions(&r, stride, fill.buf));
        PyBuffer_Release(&fill);
    }
    release(&h);
    return result;
}

/* cut_numbers(data, stride, fill, numbers): cuts off the number of each line that came (see decode_state_lines), where
 * line i is one line and its number is numbers[i]. Returns num_envs; or the first env of which that is not so, and then
 * nothing was cut. */
static PyObject *cut_numbers(PyObject *self, PyObject *const *args, Py_ssize_t nargs)
{
    static const Dtype *const dtypes[] = {&U8, &I32, &I64};
    Py_buffer views[3], *data = views, *fill = views + 1, *numbers = views + 2;
    Py_ssize_t stride, i = 0, n, cut;
    int32_t *filled;
    if (nargs != 4) return PyErr_Format(PyExc_TypeError, "cut_numbers takes 4 arguments");
    stride = PyLong_AsSsize_t(args[1]);
    if (PyErr_Occurred() || get_arrays((PyObject *const[]){args[0], args[2], args[3]}, views, dtypes, 2, 3)) return NULL;
    n = fill->len / 4, filled = fill->buf;
    if (numbers->len != n * 8 || stride < 1 || stride > data->len / (n ? n : 1))
        PyErr_SetString(PyExc_ValueError, "data, stride, fill and numbers disagree");
    for (cut = 0; cut < 2 && !PyErr_Occurred(); cut++) {
        for (i = 0; i < n; i++) {
            const char *line = (const char *)data->buf + i * stride, *end;
            int64_t number;
            if (filled[i] <= 0 || filled[i] > stride) continue;
            end = memchr(line, '\n', (size_t)filled[i]);
            if (!cut && end != line + filled[i] - 1) break;
            end = number_at(line, end ? end : line + filled[i], &number);
            if (number != ((int64_t *)numbers->buf)[i]) break;
            if (cut) filled[i] = (int32_t)(end - line);
        }
        if (i < n) break;
    }
    release_arrays(views, 3);
    return PyErr_Occurred() ? NULL : PyLong_FromSsize_t(i);
}
#endif

/* -- the encoders */

/* One line of all rows. */
static PyObject *joined_rows(const Held *h, int form, RowWriter *write_row, int64_t number)
{
    const Arrays *a = &h->arrays;
    Py_ssize_t rows = h->first.len / 4;
    PyObject *line;
    char *start, *p;
    Failure f;
    if (rows > (PY_SSIZE_T_MAX - END_ROOM) / row_room(a)) return PyErr_NoMemory();
    line = PyBytes_FromStringAndSize(NULL, rows * row_room(a) + END_ROOM);
    if (line == NULL) return NULL;
    start = PyBytes_AS_STRING(line);
    p = write_rows(start, a, form, write_row, h->first.buf, rows, number, &f);
    if (p == NULL) {
        Py_DECREF(line);
        return failure_tuple(&f, NULL);
    }
    _PyBytes_Resize(&line, p - start); /* NULL, with MemoryError set, where that fails */
    return line;
}

/* One line for each env's own socket, without ENV; `numbers`: of each line, NULL: they have none. */
static PyObject *separate_rows(const Held *h, int form, RowWriter *write_row, const int64_t *numbers)
{
    const Arrays *a = &h->arrays;
    const int32_t *ids = h->first.buf;
    Py_ssize_t rows = h->first.len / 4, i;
    PyObject *lines = PyList_New(rows), *failure = NULL;
    char *start = PyMem_Malloc((size_t)row_room(a) + END_ROOM);
    Failure f;
    if (start == NULL) PyErr_NoMemory();
    for (i = 0; lines && start && i < rows; i++) {
        char *p = write_row(start, a, form == FORM_MULTI ? FORM_SINGLE : form, ids[i], &f);
        PyObject *line = NULL;
        if (p) {
            p = end_line(p, numbers ? numbers[i] : 0);
            line = PyBytes_FromStringAndSize(start, p - start);
        } else {
            failure = failure_tuple(&f, NULL);
        }
        if (line == NULL) break;
        PyList_SET_ITEM(lines, i, line);
    }
    PyMem_Free(start);
    if (lines && start && i == rows) return lines;
    Py_XDECREF(lines);
    return failure;
}

/* args: the rows, one array for each column, the masks unless `optional`, the layout, the form, where `optional` is 1
 * whether each row is a line and, unless it is left out, the line's number: 0 for none, of several lines an array. */
static PyObject *encode(PyObject *const *args, Py_ssize_t nargs, const Column *columns, int count, int optional,
                        RowWriter *write_row)
{
    Held h;
    Py_buffer numbers;
    PyObject *result = NULL;
    long form;
    int64_t number = 0;
    int separate, several;
    const int masks = !optional, taken = 1 + count + masks + 1, wanted = taken + 1 + optional;
    if (nargs != wanted && nargs != wanted + 1)
        return PyErr_Format(PyExc_TypeError, "expected %d or %d arguments, got %zd", wanted, wanted + 1, nargs);
    form = PyLong_AsLong(args[taken]), separate = optional && PyObject_IsTrue(args[taken + 1]);
    several = separate && nargs > wanted && !PyLong_Check(args[wanted]);
    if (nargs > wanted && !separate) number = PyLong_AsLongLong(args[wanted]);
    if (PyErr_Occurred() || hold(&h, args, columns, count, 0, masks, form)) return NULL;
    form &= FORM_MASK;
    if (!separate) {
        result = joined_rows(&h, (int)form, write_row, number);
    } else if (!several) {
        result = separate_rows(&h, (int)form, write_row, NULL);
    } else if (get_array(args[wanted], &numbers, &I64, 0) == 0) {
        if (numbers.len == h.first.len * 2) result = separate_rows(&h, (int)form, write_row, numbers.buf);
        else PyErr_SetString(PyExc_ValueError, "one number for each line");
        PyBuffer_Release(&numbers);
    }
    release(&h);
    return result;
}

static PyObject *encode_actions(PyObject *self, PyObject *const *args, Py_ssize_t nargs)
{
    return encode(args, nargs, REQUEST, 1, 1, write_action);
}

static PyObject *encode_states(PyObject *self, PyObject *const *args, Py_ssize_t nargs)
{
    return encode(args, nargs, STATE, PENDING, 0, write_state);
}

/* The first line of a docstring is the signature that inspect and stubtest read. */
#define FAST(name, args) \
    {#name, (PyCFunction)(void (*)(void))name, METH_FASTCALL, #name "($module, " args ", /)\n--\n\n"}
#define STATES "data, obs, rewards, dones, truncated, pending, spans, masks, layout, "
static PyMethodDef METHODS[] = {
    FAST(decode_states, STATES "start, end, form, only_env, number=0"),
    FAST(decode_requests, "data, actions, command, seeds, spans, layout, start, end, form, only_env, number=0"),
    FAST(encode_actions, "env_ids, actions, layout, form, separate, number=0"),
    FAST(encode_states, "env_ids, obs, rewards, dones, truncated, masks, layout, form, number=0"),
    FAST(find_number, "data, start, end"),
    FAST(copy_parts, "rows, parts"),
    FAST(write_choices, "actions, choices"),
    FAST(find_no_choice, "actions, low, high"),
    FAST(take_step, "obs, rewards, dones, returns, started, of, now, limit"),
    FAST(own_dicts, "kept, key, value"),
#if defined(_WIN32) || __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__
    FAST(read_rows, "message, obs, rewards, dones, truncated, pending, number"),
#endif
#ifndef _WIN32
    FAST(decode_state_lines, STATES "stride, fill, form"),
    FAST(cut_numbers, "data, stride, fill, numbers"),
    FAST(receive, "fd, buffer, spin_us, slice_ms"),
    FAST(receive_lines, "fds, data, stride, fill, wanted, spin_us, slice_ms, came=None"),
    FAST(send_lines, "fds, lines"),
#endif
    {NULL, NULL, 0, NULL}};

static PyModuleDef_Slot SLOTS[] = {{0, NULL}};
static struct PyModuleDef MODULE = {PyModuleDef_HEAD_INIT, "ue_rl.protocol.text._kernels",
                                    "Compiled parse and format loops; see ue_rl/protocol/text/kernels_pure.py.", 0,
                                    METHODS, SLOTS, NULL, NULL, NULL};

PyMODINIT_FUNC PyInit__kernels(void) { return PyModuleDef_Init(&MODULE); }
