/* The compiled parse and format loops behind ue_rl/wire/codec.py. Grammar: docs/protocol.md.
 *
 * The pure twin is ue_rl/wire/kernels_pure.py: same functions, same results, same failure codes.
 * A function returns its result, or a failure tuple (code, env, field, position, got) which wire.py turns into a
 * named error. Nothing is written into the caller's arrays for a row that fails.
 */
#define PY_SSIZE_T_CLEAN
#define _GNU_SOURCE 1
#include "_float_text.h"
#include "_sockets.h"

enum { FORM_MULTI = 0, FORM_SINGLE = 1, FORM_RLBASE = 2 };
enum {
    BAD_NUMBER = 1, WRONG_COUNT, NON_FINITE, UNKNOWN_ENV, REPEATED_ENV, MISSING_FIELD, REPEATED_FIELD,
    BAD_FLAG, NOT_A_FIELD, TRUNC_WITHOUT_DONE, RUN_TOGETHER, BAD_INTEGER, OTHER_ENV, BAD_CHOICE
};
enum { F_OBS, F_REW, F_DONE, F_ENV, F_TRUNC, F_INFO, F_ACT, F_SEED, F_OPTIONS, F_OTHER };

typedef struct {
    int code, field;
    long long env, got;
    const char *at;
} Failure;

static int fail(Failure *f, int code, long long env, int field, const char *at, long long got)
{
    f->code = code, f->env = env, f->field = field, f->at = at, f->got = got;
    return -1;
}

static PyObject *failure_tuple(const Failure *f, const char *base)
{
    return Py_BuildValue("(iLinL)", f->code, f->env, f->field, (Py_ssize_t)(f->at ? f->at - base : 0), f->got);
}

static inline const char *skip_space(const char *p, const char *end)
{
    while (p < end && (*p == ' ' || *p == '\t' || *p == '\r')) p++;
    return p;
}

static inline int is_letter(char c) { return (unsigned)((c | 0x20) - 'a') < 26u; }
static inline int is_name(char c) { return is_letter(c) || is_digit(c) || c == '_'; }

static int field_of(const char *p, size_t n)
{
    static const struct { const char *name; size_t length; int field; } NAMES[] = {
        {"OBS", 3, F_OBS}, {"REW", 3, F_REW}, {"DONE", 4, F_DONE}, {"ENV", 3, F_ENV}, {"ACT", 3, F_ACT},
        {"TRUNC", 5, F_TRUNC}, {"INFO", 4, F_INFO}, {"SEED", 4, F_SEED}, {"OPTIONS", 7, F_OPTIONS}};
    size_t i, j;
    for (i = 0; i < sizeof NAMES / sizeof *NAMES; i++) {
        if (NAMES[i].length != n) continue;
        for (j = 0; j < n && (p[j] & ~0x20) == NAMES[i].name[j]; j++) {}
        if (j == n) return NAMES[i].field;
    }
    return F_OTHER;
}

/* Reads `name OWS =`; returns the field and leaves *pp behind the "=", or -1. */
static int read_key(const char **pp, const char *end)
{
    const char *p = *pp, *name = p;
    int field;
    if (p >= end || !is_letter(*p)) return -1;
    while (p < end && is_name(*p)) p++;
    field = field_of(name, (size_t)(p - name));
    p = skip_space(p, end);
    if (p >= end || *p != '=') return -1;
    *pp = p + 1;
    return field;
}

static int read_integer(const char **pp, const char *end, long long *out)
{
    const char *p = skip_space(*pp, end);
    long long value = 0;
    int digits = 0;
    for (; p < end && is_digit(*p); p++, digits++) {
        if (value > (INT64_MAX - (*p - '0')) / 10) return -1;
        value = value * 10 + (*p - '0');
    }
    *pp = p, *out = value;
    return digits ? 0 : -1;
}

/* Reads numbers separated by "," or, where `semicolons`, by ";". Stores the first `size`, counts all. */
static int read_numbers(const char **pp, const char *end, float *out, Py_ssize_t size, int semicolons,
                        int field, Py_ssize_t *count, Failure *f)
{
    const char *p = *pp;
    Py_ssize_t n = 0;
    for (;;) {
        float value = 0;
        int state;
        p = skip_space(p, end);
        state = read_float(&p, end, &value);
        if (state != NUMBER_OK)
            return fail(f, state == NUMBER_NONE ? BAD_NUMBER : NON_FINITE, -1, field, p, n);
        if (n < size) out[n] = value;
        n++;
        p = skip_space(p, end);
        if (p >= end) break;
        if (*p == ',') {
            p++;
        } else if (*p == ';' && semicolons) {
            const char *q = skip_space(p + 1, end);
            if (q >= end) break;
            if (is_letter(*q)) {
                const char *key = q;
                if (read_key(&key, end) >= 0) break; /* the next field, not a number */
            }
            p = q;
        } else {
            const char *key = p; /* the next field may be glued on (the plugin's comma helper), nothing else */
            if (*p != ';' && read_key(&key, end) < 0) return fail(f, BAD_NUMBER, -1, field, p, n);
            break;
        }
    }
    *pp = p, *count = n;
    return 0;
}

typedef struct {
    float reward;
    long long env, seed;
    int done, truncated, reset;
    unsigned seen;
    Py_ssize_t info_start, info_end;
} Row;

#define SEEN(row, field) ((row)->seen & (1u << (field)))

/* One keyed row, either direction; `numbers` receives OBS or ACT. */
static int read_row(const char *base, const char *p, const char *end, float *numbers, Py_ssize_t size, int main_field,
                    Row *row, Failure *f)
{
    memset(row, 0, sizeof *row);
    row->env = -1, row->seed = -1;
    for (;;) {
        const char *key;
        int field, closed = 1;
        p = skip_space(p, end);
        if (p >= end) break;
        key = p;
        field = read_key(&p, end);
        if (field < 0) return fail(f, NOT_A_FIELD, row->env, F_OTHER, key, 0);
        if (main_field == F_OBS ? field >= F_ACT : (field < F_ACT && field != F_ENV)) field = F_OTHER;
        if (field != F_OTHER && SEEN(row, field)) return fail(f, REPEATED_FIELD, row->env, field, key, 0);
        row->seen |= 1u << field;
        if (field == main_field) {
            Py_ssize_t count;
            p = skip_space(p, end);
            if (field == F_ACT && end - p >= 5 && (p[0] & ~0x20) == 'R' && (p[1] & ~0x20) == 'E' &&
                (p[2] & ~0x20) == 'S' && (p[3] & ~0x20) == 'E' && (p[4] & ~0x20) == 'T') {
                row->reset = 1;
                p += 5;
            } else {
                const char *at = p;
                if (read_numbers(&p, end, numbers, size, field == F_OBS, field, &count, f)) return -1;
                if (count != size) return fail(f, WRONG_COUNT, row->env, field, at, count);
                closed = 0;
            }
        } else if (field == F_REW) {
            int state;
            p = skip_space(p, end);
            state = read_float(&p, end, &row->reward);
            if (state != NUMBER_OK)
                return fail(f, state == NUMBER_NONE ? BAD_NUMBER : NON_FINITE, row->env, field, p, 0);
            closed = 0;
        } else if (field == F_DONE || field == F_TRUNC) {
            p = skip_space(p, end);
            if (p >= end || (*p != '0' && *p != '1')) return fail(f, BAD_FLAG, row->env, field, p, 0);
            if (field == F_DONE) row->done = *p == '1';
            else row->truncated = *p == '1';
            p++;
        } else if (field == F_ENV || field == F_SEED) {
            const char *at = p;
            if (read_integer(&p, end, field == F_ENV ? &row->env : &row->seed))
                return fail(f, BAD_INTEGER, -1, field, at, 0);
        } else { /* INFO, OPTIONS, unknown */
            const char *value = p;
            while (p < end && *p != ';') p++;
            if (field != F_OTHER) row->info_start = value - base, row->info_end = p - base;
        }
        p = skip_space(p, end);
        if (p >= end) break;
        if (*p == ';') p++;
        else if (closed || !is_letter(*p))
            return fail(f, field == F_DONE || field == F_TRUNC ? BAD_FLAG : field == F_ENV || field == F_SEED
                        ? BAD_INTEGER : field == F_OTHER ? NOT_A_FIELD : BAD_NUMBER, row->env, field, p, 0);
    }
    return 0;
}

/* Checks what a row must have and which env it is for; returns that env or -1. */
static long long row_env(const Row *row, const char *at, int form, long long only_env, int strict, Py_ssize_t num_envs,
                         const unsigned *needed, int n_needed, Failure *f)
{
    long long env = row->env;
    int i;
    for (i = 0; i < n_needed; i++)
        if (!SEEN(row, needed[i])) return fail(f, MISSING_FIELD, env, (int)needed[i], at, 0);
    if (!SEEN(row, F_ENV)) {
        if (only_env < 0 && form == FORM_MULTI) return fail(f, MISSING_FIELD, -1, F_ENV, at, 0);
        env = only_env < 0 ? 0 : only_env;
    } else if (env >= num_envs) {
        return fail(f, UNKNOWN_ENV, env, F_ENV, at, env);
    } else if (strict && only_env >= 0 && env != only_env) {
        return fail(f, OTHER_ENV, only_env, F_ENV, at, env);
    }
    return env;
}

/* Where the row that starts at p ends ("||" or the end); *next is the start of the next row, NULL after the last. */
static const char *row_end(const char *p, const char *end, const char **next)
{
    const char *bar = memchr(p, '|', (size_t)(end - p));
    *next = NULL;
    if (bar == NULL) return end;
    if (bar + 1 < end && bar[1] == '|') {
        *next = bar + 2;
        return bar;
    }
    return end; /* a lone bar: the row reader trips over it */
}

typedef struct { Py_buffer data, array[6]; int held; } Held;

static int hold(Held *h, PyObject *const *args, int n, const Py_ssize_t *itemsizes)
{
    int i;
    h->held = 0;
    if (PyObject_GetBuffer(args[0], &h->data, PyBUF_SIMPLE)) return -1;
    for (i = 0; i < n; i++) {
        int flags = itemsizes[i] > 0 ? PyBUF_WRITABLE : 0;
        if (PyObject_GetBuffer(args[1 + i], &h->array[i], PyBUF_C_CONTIGUOUS | PyBUF_FORMAT | flags)) break;
        h->held++;
        if (h->array[i].itemsize != (itemsizes[i] > 0 ? itemsizes[i] : -itemsizes[i])) {
            PyErr_Format(PyExc_TypeError, "array %d has itemsize %zd", i, h->array[i].itemsize);
            break;
        }
    }
    if (i == n) return 0;
    while (h->held) PyBuffer_Release(&h->array[--h->held]);
    PyBuffer_Release(&h->data);
    return -1;
}

static void release(Held *h)
{
    while (h->held) PyBuffer_Release(&h->array[--h->held]);
    PyBuffer_Release(&h->data);
}

static int check_range(const Held *h, Py_ssize_t start, Py_ssize_t end)
{
    if (start >= 0 && start <= end && end <= h->data.len) return 0;
    PyErr_SetString(PyExc_ValueError, "start and end are outside data");
    return -1;
}

/* One RLBASE state: obs_size numbers, the reward, the done flag. */
static int read_rlbase(const char *p, const char *end, float *numbers, Py_ssize_t size, Row *row, Failure *f)
{
    Py_ssize_t n = 0;
    const char *line = p;
    memset(row, 0, sizeof *row);
    for (;;) {
        float value = 0;
        int state;
        const char *at;
        p = skip_space(p, end);
        at = p;
        if (n == size + 1) { /* the flag */
            if (p >= end || (*p != '0' && *p != '1')) return fail(f, BAD_FLAG, 0, F_DONE, at, 0);
            row->done = *p++ == '1';
            p = skip_space(p, end);
            if (p < end) return fail(f, is_digit(*p) || *p == '.' ? BAD_FLAG : WRONG_COUNT, 0, F_OBS, line, -1);
            return 0;
        }
        state = read_float(&p, end, &value);
        if (state != NUMBER_OK)
            return fail(f, state == NUMBER_NONE ? BAD_NUMBER : NON_FINITE, 0, n < size ? F_OBS : F_REW, at, n);
        if (n < size) numbers[n] = value;
        else row->reward = value;
        n++;
        p = skip_space(p, end);
        if (p >= end) return fail(f, WRONG_COUNT, 0, F_OBS, line, n - 2);
        if (*p == ',' || *p == ';') {
            if (n == size + 1 && *p != ';') return fail(f, WRONG_COUNT, 0, F_OBS, line, -1);
            p++;
        } else if (n == size && (*p == '-' || *p == '+')) {
            continue; /* the comma helper: observation and reward run together at the sign */
        } else {
            return fail(f, *p == '.' ? RUN_TOGETHER : BAD_NUMBER, 0, n <= size ? F_OBS : F_REW, at, n);
        }
    }
}

/* The arrays of StepBuffers, as held for one call. */
typedef struct {
    float *obs, *rewards, *scratch, small[256];
    uint8_t *dones, *truncated, *pending;
    int32_t *spans;
    Py_ssize_t num_envs, obs_size;
} States;

static int hold_states(States *to, const Held *h)
{
    to->num_envs = h->array[4].len;
    to->obs_size = to->num_envs ? h->array[0].len / 4 / to->num_envs : 0;
    to->obs = h->array[0].buf, to->rewards = h->array[1].buf, to->dones = h->array[2].buf;
    to->truncated = h->array[3].buf, to->pending = h->array[4].buf, to->spans = h->array[5].buf;
    if (h->array[1].len != to->num_envs * 4 || h->array[2].len != to->num_envs || h->array[3].len != to->num_envs ||
        h->array[5].len != to->num_envs * 8) {
        PyErr_SetString(PyExc_ValueError, "the arrays disagree about num_envs");
        return -1;
    }
    to->scratch = to->obs_size <= 256 ? to->small : PyMem_Malloc((size_t)to->obs_size * 4);
    if (to->scratch == NULL) PyErr_NoMemory();
    return to->scratch == NULL ? -1 : 0;
}

static void release_states(States *to)
{
    if (to->scratch != to->small) PyMem_Free(to->scratch);
}

/* One line of state rows, [p, end). Returns 0, or -1 with *f; adds to *rows; sets *json where INFO came. */
static int decode_line(States *to, const char *base, const char *p, const char *end, int form, long long only_env,
                       Py_ssize_t *rows, int *json, Failure *f)
{
    static const unsigned NEEDED[3] = {F_OBS, F_REW, F_DONE};
    const char *next;
    for (; p; p = next) {
        Row row;
        long long env = 0;
        int failed;
        if (form == FORM_RLBASE) {
            next = NULL;
            failed = read_rlbase(p, end, to->scratch, to->obs_size, &row, f);
        } else {
            const char *last = row_end(p, end, &next);
            failed = read_row(base, p, last, to->scratch, to->obs_size, F_OBS, &row, f);
            if (!failed) env = row_env(&row, p, form, only_env, 1, to->num_envs, NEEDED, 3, f);
            if (!failed && env < 0) failed = -1;
            else if (!failed && row.truncated && !row.done)
                failed = fail(f, TRUNC_WITHOUT_DONE, env, F_TRUNC, p, 0);
            if (failed && f->env < 0 && only_env >= 0) f->env = only_env;
        }
        if (!failed && !to->pending[env]) failed = fail(f, REPEATED_ENV, env, F_ENV, p, env);
        if (failed) return -1;
        memcpy(to->obs + env * to->obs_size, to->scratch, (size_t)to->obs_size * 4);
        to->rewards[env] = row.reward;
        to->dones[env] = (uint8_t)row.done;
        to->truncated[env] = (uint8_t)row.truncated;
        to->pending[env] = 0;
        to->spans[2 * env] = (int32_t)row.info_start;
        to->spans[2 * env + 1] = (int32_t)row.info_end;
        *json |= row.info_end != 0;
        ++*rows;
    }
    return 0;
}

static const Py_ssize_t STATE_SIZES[6] = {4, 4, 1, 1, 1, 4};

/* decode_states(data, obs, rewards, dones, truncated, pending, spans, start, end, form, only_env) */
static PyObject *decode_states(PyObject *self, PyObject *const *args, Py_ssize_t nargs)
{
    Held h;
    States to;
    PyObject *result = NULL;
    Py_ssize_t start, end, rows = 0;
    long long only_env;
    int form, json = 0;
    Failure f;
    if (nargs != 11) return PyErr_Format(PyExc_TypeError, "decode_states takes 11 arguments");
    start = PyLong_AsSsize_t(args[7]), end = PyLong_AsSsize_t(args[8]);
    form = (int)PyLong_AsLong(args[9]), only_env = PyLong_AsLongLong(args[10]);
    if (PyErr_Occurred() || hold(&h, args, 6, STATE_SIZES)) return NULL;
    if (check_range(&h, start, end) == 0 && hold_states(&to, &h) == 0) {
        const char *base = h.data.buf;
        if (decode_line(&to, base, base + start, base + end, form, only_env, &rows, &json, &f))
            result = failure_tuple(&f, base);
        else
            result = PyLong_FromSsize_t(json ? -rows : rows);
        release_states(&to);
    }
    release(&h);
    return result;
}

#ifndef _WIN32
/* decode_state_lines(data, obs, rewards, dones, truncated, pending, spans, stride, fill, form): line i, of fill[i] bytes
 * with its newline, stands at data[i * stride] and came on env i's own socket; 0 bytes: nothing came, env skipped. */
static PyObject *decode_state_lines(PyObject *self, PyObject *const *args, Py_ssize_t nargs)
{
    Held h;
    States to;
    Py_buffer fill;
    PyObject *result = NULL;
    Py_ssize_t stride, rows = 0, i;
    int form, json = 0, failed = 0;
    Failure f;
    if (nargs != 10) return PyErr_Format(PyExc_TypeError, "decode_state_lines takes 10 arguments");
    stride = PyLong_AsSsize_t(args[7]), form = (int)PyLong_AsLong(args[9]);
    if (PyErr_Occurred() || hold(&h, args, 6, STATE_SIZES)) return NULL;
    if (PyObject_GetBuffer(args[8], &fill, PyBUF_C_CONTIGUOUS) == 0) {
        const char *base = h.data.buf;
        const int32_t *length = fill.buf;
        if (fill.len != h.array[4].len * 4 || stride < 1 || stride * h.array[4].len > h.data.len)
            PyErr_SetString(PyExc_ValueError, "data, stride and fill disagree");
        else if (hold_states(&to, &h) == 0) {
            for (i = 0; i < to.num_envs && !failed; i++) {
                const char *line = base + i * stride, *end = line + length[i];
                if (length[i] <= 0 || length[i] > stride) continue;
                while (line < end && !failed) { /* a second line is a second answer: refused by its env */
                    const char *stop = memchr(line, '\n', (size_t)(end - line));
                    if (stop == NULL) stop = end;
                    if (skip_space(line, stop) < stop)
                        failed = decode_line(&to, base, line, stop, form, i, &rows, &json, &f);
                    line = stop + 1;
                }
            }
            result = failed ? failure_tuple(&f, base) : PyLong_FromSsize_t(json ? -rows : rows);
            release_states(&to);
        }
        PyBuffer_Release(&fill);
    }
    release(&h);
    return result;
}
#endif

/* decode_requests(data, actions, command, seeds, spans, start, end, form, only_env) */
static PyObject *decode_requests(PyObject *self, PyObject *const *args, Py_ssize_t nargs)
{
    static const Py_ssize_t SIZES[4] = {4, 1, 8, 4};
    static const unsigned NEEDED[1] = {F_ACT};
    Held h;
    PyObject *result = NULL;
    if (nargs != 9) return PyErr_Format(PyExc_TypeError, "decode_requests takes 9 arguments");
    {
        Py_ssize_t start = PyLong_AsSsize_t(args[5]), stop = PyLong_AsSsize_t(args[6]);
        int form = (int)PyLong_AsLong(args[7]);
        long long only_env = PyLong_AsLongLong(args[8]);
        if (PyErr_Occurred() || hold(&h, args, 4, SIZES)) return NULL;
        {
            Py_ssize_t num_envs = h.array[1].len, act_size = num_envs ? h.array[0].len / 4 / num_envs : 0;
            float *actions = h.array[0].buf, small[256];
            uint8_t *command = h.array[1].buf;
            int64_t *seeds = h.array[2].buf;
            int32_t *spans = h.array[3].buf;
            const char *base = h.data.buf, *p, *end, *next;
            float *numbers = act_size <= 256 ? small : PyMem_Malloc((size_t)act_size * 4);
            Py_ssize_t rows = 0;
            Failure f;
            int failed = 0, json = 0;
            if (numbers == NULL) PyErr_NoMemory();
            else if (h.array[2].len != num_envs * 8 || h.array[3].len != num_envs * 8)
                PyErr_SetString(PyExc_ValueError, "the arrays disagree about num_envs");
            else if (check_range(&h, start, stop) == 0) {
                for (p = base + start, end = base + stop; p; p = next) {
                    Row row;
                    long long env = 0;
                    if (form == FORM_RLBASE) {
                        const char *q = skip_space(p, end), *tail = end;
                        Py_ssize_t count = 0;
                        next = NULL;
                        memset(&row, 0, sizeof row);
                        row.seed = -1;
                        while (tail > q && (tail[-1] == ' ' || tail[-1] == '\r' || tail[-1] == '\t')) tail--;
                        if (tail - q == 5 && (q[0] & ~0x20) == 'R' && (q[1] & ~0x20) == 'E' &&
                            (q[2] & ~0x20) == 'S' && (q[3] & ~0x20) == 'E' && (q[4] & ~0x20) == 'T') {
                            row.reset = 1;
                        } else {
                            const char *at = q;
                            failed = read_numbers(&q, end, numbers, act_size, 0, F_ACT, &count, &f);
                            if (!failed && q < end) failed = fail(&f, BAD_NUMBER, 0, F_ACT, q, count);
                            if (!failed && count != act_size) failed = fail(&f, WRONG_COUNT, 0, F_ACT, at, count);
                        }
                    } else {
                        const char *last = row_end(p, end, &next);
                        failed = read_row(base, p, last, numbers, act_size, F_ACT, &row, &f);
                        if (!failed) env = row_env(&row, p, form, only_env, 0, num_envs, NEEDED, 1, &f);
                        if (!failed && env < 0) failed = -1;
                        if (failed && f.env < 0 && only_env >= 0) f.env = only_env;
                    }
                    if (!failed && command[env]) failed = fail(&f, REPEATED_ENV, env, F_ENV, p, env);
                    if (failed) break;
                    if (row.reset) {
                        command[env] = 2;
                    } else {
                        memcpy(actions + env * act_size, numbers, (size_t)act_size * 4);
                        command[env] = 1;
                    }
                    seeds[env] = row.seed;
                    spans[2 * env] = (int32_t)row.info_start;
                    spans[2 * env + 1] = (int32_t)row.info_end;
                    json |= row.info_end != 0;
                    rows++;
                }
                result = failed ? failure_tuple(&f, base) : PyLong_FromSsize_t(json ? -rows : rows);
            }
            if (numbers != small) PyMem_Free(numbers);
        }
        release(&h);
    }
    return result;
}

static char *write_text(char *p, const char *text, size_t n)
{
    memcpy(p, text, n);
    return p + n;
}

static char *write_env(char *p, long long env)
{
    char digits[20];
    int n = 0;
    do digits[n++] = (char)('0' + env % 10), env /= 10;
    while (env);
    p = write_text(p, ";ENV=", 5);
    while (n) *p++ = digits[--n];
    return p;
}

/* Writes numbers joined by commas; NULL and *bad where one is not finite. */
static char *write_numbers(char *p, const float *values, Py_ssize_t n, Py_ssize_t *bad)
{
    Py_ssize_t i;
    for (i = 0; i < n; i++) {
        if (!isfinite(values[i])) {
            *bad = i;
            return NULL;
        }
        if (i) *p++ = ',';
        p = write_float(p, values[i]);
    }
    return p;
}

static PyObject *encode_failure(long long env, int field, Py_ssize_t index)
{
    Failure f;
    fail(&f, NON_FINITE, env, field, NULL, index);
    return failure_tuple(&f, NULL);
}

/* encode_actions(env_ids, actions, form, separate): bytes, or a list of one bytes per env where `separate`
 * (per-env sockets: no ENV, one line each) */
static PyObject *encode_actions(PyObject *self, PyObject *const *args, Py_ssize_t nargs)
{
    Py_buffer ids, actions;
    PyObject *result = NULL, *line = NULL;
    if (nargs != 4) return PyErr_Format(PyExc_TypeError, "encode_actions takes 4 arguments");
    if (PyObject_GetBuffer(args[0], &ids, PyBUF_C_CONTIGUOUS)) return NULL;
    if (PyObject_GetBuffer(args[1], &actions, PyBUF_C_CONTIGUOUS | PyBUF_ND)) {
        PyBuffer_Release(&ids);
        return NULL;
    }
    {
        int form = (int)PyLong_AsLong(args[2]), separate = PyObject_IsTrue(args[3]);
        Py_ssize_t rows = ids.len / 4, act_size = actions.ndim == 2 ? actions.shape[1] : 0, i, bad = 0;
        Py_ssize_t num_envs = actions.ndim == 2 ? actions.shape[0] : 0;
        Py_ssize_t room = act_size * FLOAT_TEXT_MAX + 40;
        const int32_t *id = ids.buf;
        const float *values = actions.buf;
        char *p = NULL, *base = NULL;
        if (ids.itemsize != 4 || actions.itemsize != 4 || actions.ndim != 2) {
            PyErr_SetString(PyExc_TypeError, "env_ids must be int32 [n], actions float32 [num_envs, act_size]");
            goto done;
        }
        for (i = 0; i < rows; i++)
            if (id[i] < 0 || id[i] >= num_envs) {
                PyErr_SetString(PyExc_IndexError, "env id out of range");
                goto done;
            }
        if (separate) {
            result = PyList_New(rows);
            base = PyMem_Malloc((size_t)room);
            if (result == NULL || base == NULL) goto done;
        } else {
            line = PyBytes_FromStringAndSize(NULL, rows * room + 2);
            if (line == NULL) goto done;
            base = PyBytes_AS_STRING(line);
        }
        p = base;
        for (i = 0; i < rows; i++) {
            if (separate) p = base;
            else if (i) p = write_text(p, "||", 2);
            if (form != FORM_RLBASE) p = write_text(p, "ACT=", 4);
            p = write_numbers(p, values + id[i] * act_size, act_size, &bad);
            if (p == NULL) {
                Py_CLEAR(result);
                result = encode_failure(id[i], F_ACT, bad);
                break;
            }
            if (form == FORM_MULTI && !separate) p = write_env(p, id[i]);
            if (separate) {
                PyObject *one;
                *p++ = '\n';
                one = PyBytes_FromStringAndSize(base, p - base);
                if (one == NULL) {
                    Py_CLEAR(result);
                    break;
                }
                PyList_SET_ITEM(result, i, one);
            }
        }
        if (separate) PyMem_Free(base);
        else if (p) {
            *p++ = '\n';
            _PyBytes_Resize(&line, p - base);
            result = line, line = NULL;
        }
    }
done:
    Py_XDECREF(line);
    PyBuffer_Release(&ids);
    PyBuffer_Release(&actions);
    return result;
}

/* encode_states(env_ids, obs, rewards, dones, truncated, form): bytes */
static PyObject *encode_states(PyObject *self, PyObject *const *args, Py_ssize_t nargs)
{
    static const Py_ssize_t SIZES[4] = {-4, -4, -1, -1};
    Held h;
    PyObject *result = NULL, *line = NULL;
    if (nargs != 6) return PyErr_Format(PyExc_TypeError, "encode_states takes 6 arguments");
    if (hold(&h, args, 4, SIZES)) return NULL;
    {
        int form = (int)PyLong_AsLong(args[5]);
        Py_ssize_t rows = h.data.len / 4, num_envs = h.array[2].len, i, bad = 0;
        Py_ssize_t obs_size = num_envs ? h.array[0].len / 4 / num_envs : 0;
        const int32_t *id = h.data.buf;
        const float *obs = h.array[0].buf, *rewards = h.array[1].buf;
        const uint8_t *dones = h.array[2].buf, *truncated = h.array[3].buf;
        char *p, *base;
        if (h.array[1].len != num_envs * 4 || h.array[3].len != num_envs) {
            PyErr_SetString(PyExc_ValueError, "the arrays disagree about num_envs");
            goto done;
        }
        for (i = 0; i < rows; i++)
            if (id[i] < 0 || id[i] >= num_envs) {
                PyErr_SetString(PyExc_IndexError, "env id out of range");
                goto done;
            }
        line = PyBytes_FromStringAndSize(NULL, rows * ((obs_size + 1) * FLOAT_TEXT_MAX + 64) + 2);
        if (line == NULL) goto done;
        base = p = PyBytes_AS_STRING(line);
        for (i = 0; i < rows; i++) {
            Py_ssize_t env = id[i];
            if (i) p = write_text(p, "||", 2);
            if (form != FORM_RLBASE) p = write_text(p, "OBS=", 4);
            p = write_numbers(p, obs + env * obs_size, obs_size, &bad);
            if (p == NULL || !isfinite(rewards[env])) {
                result = encode_failure(env, p == NULL ? F_OBS : F_REW, bad);
                goto done;
            }
            p = form == FORM_RLBASE ? write_text(p, ";", 1) : write_text(p, ";REW=", 5);
            p = write_float(p, rewards[env]);
            p = form == FORM_RLBASE ? write_text(p, ";", 1) : write_text(p, ";DONE=", 6);
            *p++ = dones[env] ? '1' : '0';
            if (form == FORM_MULTI) p = write_env(p, env);
            if (form != FORM_RLBASE && truncated[env] && dones[env]) p = write_text(p, ";TRUNC=1", 8);
        }
        *p++ = '\n';
        _PyBytes_Resize(&line, p - base);
        result = line, line = NULL;
    }
done:
    Py_XDECREF(line);
    release(&h);
    return result;
}

static PyMethodDef METHODS[] = {
    {"decode_states", (PyCFunction)(void (*)(void))decode_states, METH_FASTCALL, NULL},
    {"decode_requests", (PyCFunction)(void (*)(void))decode_requests, METH_FASTCALL, NULL},
    {"encode_actions", (PyCFunction)(void (*)(void))encode_actions, METH_FASTCALL, NULL},
    {"encode_states", (PyCFunction)(void (*)(void))encode_states, METH_FASTCALL, NULL},
#ifndef _WIN32
    {"decode_state_lines", (PyCFunction)(void (*)(void))decode_state_lines, METH_FASTCALL, NULL},
    {"receive", (PyCFunction)(void (*)(void))receive, METH_FASTCALL, NULL},
    {"receive_lines", (PyCFunction)(void (*)(void))receive_lines, METH_FASTCALL, NULL},
    {"send_lines", (PyCFunction)(void (*)(void))send_lines, METH_FASTCALL, NULL},
#endif
    {NULL, NULL, 0, NULL}};

static struct PyModuleDef MODULE = {PyModuleDef_HEAD_INIT, "ue_rl.wire._kernels",
                                    "Compiled parse and format loops; see ue_rl/wire/kernels.py.", -1, METHODS};

PyMODINIT_FUNC PyInit__kernels(void) { return PyModule_Create(&MODULE); }
