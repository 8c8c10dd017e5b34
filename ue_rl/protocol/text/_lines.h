/* Lines of text <-> arrays, without Python and NumPy: what _kernels.c calls with the arrays that it was given, and what
 * tests/windows compiles for Windows. Grammar: docs/protocol.md. What includes this defines slow_double, see
 * _float_text.h.
 */
#ifndef UE_RL_LINES_H
#define UE_RL_LINES_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include "_float_text.h"

enum { FORM_MULTI = 0, FORM_SINGLE = 1, FORM_RLBASE = 2, FORM_MASK = 3, OBSERVATIONS = 4, SETTINGS = 8, AGENTS = 16, NUMBERED = 32 };
enum {
    BAD_NUMBER = 1, WRONG_COUNT, NON_FINITE, UNKNOWN_ENV, REPEATED_ENV, MISSING_FIELD, REPEATED_FIELD,
    BAD_FLAG, NOT_A_FIELD, TRUNC_WITHOUT_DONE, RUN_TOGETHER, BAD_INTEGER, OTHER_ENV, UNKNOWN_AGENT, RESET_OF_AGENT,
    NO_CHOICE, NUMBER_IN_ROW
};
enum {
    F_OBS, F_REW, F_DONE, F_ENV, F_TRUNC, F_INFO, F_ACT, F_SEED, F_OPTIONS, F_RESET, F_MASK, F_AGENT, F_SET, F_SEQ,
    F_OTHER
};
#define BIT(field) (1u << (field))

/* For what rows with agents or masks alone need: kept out of the way of the others. */
#ifdef __GNUC__
#define APART __attribute__((noinline, cold))
#else
#define APART
#endif

/* -- failures */

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

/* -- the arrays of a step, checked by the caller */

enum { OBS, REWARDS, DONES, TRUNCATED, PENDING, STATE_SPANS, STATE_COLUMNS };
enum { ACTIONS, COMMAND, SEEDS, REQUEST_SPANS, REQUEST_COLUMNS };

typedef struct {
    const char *text;            /* to read; spans count from its start */
    void *column[STATE_COLUMNS]; /* one row behind the other; kernels_pure.py has their types */
    ptrdiff_t rows, size;        /* the shape of column 0 */
    uint8_t *masks;              /* or NULL, as layout; see decode_states in kernels_pure.py */
    const int32_t *layout;
    ptrdiff_t layout_width;      /* its numbers for each agent */
    ptrdiff_t envs, per_env;     /* rows = envs * per_env; per_env is 1 where an env is one agent */
    ptrdiff_t mask_size;         /* flags of a row of masks; 0 without */
    int agents;                  /* are rows an agent's? */
    int plain;                   /* neither agents nor masks */
} Arrays;

/* Numbers of a row of this agent (0 without agents), its mask flags, and how many choices its numbers have. */
static const int32_t *layout_of(const Arrays *a, ptrdiff_t agent)
{
    return a->layout + agent * a->layout_width;
}

/* The agent that a row is; 0 where an env is one agent. */
static int32_t agent_of(const Arrays *a, int32_t row) { return a->agents ? row % (int32_t)a->per_env : 0; }

static ptrdiff_t numbers_of(const Arrays *a, ptrdiff_t agent) { return a->agents ? layout_of(a, agent)[0] : a->size; }
static ptrdiff_t flags_of(const Arrays *a, ptrdiff_t agent) { return a->mask_size ? layout_of(a, agent)[1] : 0; }

APART static int check_layout(const Arrays *a, ptrdiff_t agents)
{
    ptrdiff_t agent, i;
    for (agent = 0; a->layout && agent < agents; agent++) {
        const int32_t *of = layout_of(a, agent);
        ptrdiff_t flags = 0;
        for (i = 2; i < a->layout_width; i++) {
            if (of[i] < 0) return -1;
            flags += of[i];
        }
        if (of[0] < 0 || of[0] > a->size || of[1] < 0 || (a->mask_size && (of[1] > a->mask_size || flags != of[1])))
            return -1;
    }
    return 0;
}

/* -- reading: keys, integers, lists of numbers */

static inline const char *skip_space(const char *p, const char *end)
{
    while (p < end && (*p == ' ' || *p == '\t' || *p == '\r')) p++;
    return p;
}

static inline int is_letter(char c) { return (unsigned)((c | 0x20) - 'a') < 26u; }
static inline int is_name(char c) { return is_letter(c) || is_digit(c) || c == '_'; }

static inline int is_word(const char *p, size_t length, const char *upper)
{
    size_t i;
    for (i = 0; i < length; i++)
        if ((p[i] & ~0x20) != upper[i]) return 0;
    return 1;
}

static int starts_with_reset(const char *p, const char *end) { return end - p >= 5 && is_word(p, 5, "RESET"); }

/* A key's letters in one number, so that one comparison finds it: no letter is 0, so length and letters decide. */
#define W3(a, b, c) ((uint64_t)(a) << 16 | (uint64_t)(b) << 8 | (uint64_t)(c))
#define W4(a, b, c, d) (W3(a, b, c) << 8 | (uint64_t)(d))
#define W5(a, b, c, d, e) (W4(a, b, c, d) << 8 | (uint64_t)(e))
#define W7(a, b, c, d, e, f, g) (W5(a, b, c, d, e) << 16 | (uint64_t)(f) << 8 | (uint64_t)(g))

static inline int field_of(uint64_t word)
{
    switch (word) {
    case W3('O', 'B', 'S'): return F_OBS;
    case W3('R', 'E', 'W'): return F_REW;
    case W4('D', 'O', 'N', 'E'): return F_DONE;
    case W3('E', 'N', 'V'): return F_ENV;
    case W3('A', 'C', 'T'): return F_ACT;
    case W5('T', 'R', 'U', 'N', 'C'): return F_TRUNC;
    case W4('I', 'N', 'F', 'O'): return F_INFO;
    case W4('S', 'E', 'E', 'D'): return F_SEED;
    case W7('O', 'P', 'T', 'I', 'O', 'N', 'S'): return F_OPTIONS;
    case W5('R', 'E', 'S', 'E', 'T'): return F_RESET;
    case W4('M', 'A', 'S', 'K'): return F_MASK;
    case W5('A', 'G', 'E', 'N', 'T'): return F_AGENT;
    case W3('S', 'E', 'T'): return F_SET;
    case W3('S', 'E', 'Q'): return F_SEQ;
    default: return F_OTHER;
    }
}

/* Reads `name OWS =`; returns the field and leaves *pp behind the "=", or -1. */
static int read_key(const char **pp, const char *end)
{
    const char *p = *pp, *name = p;
    uint64_t word = 0;
    if (p >= end || !is_letter(*p)) return -1;
    do word = word << 8 | (uint64_t)(*p++ & ~0x20); /* upper case */
    while (p < end && is_name(*p));
    if (p - name > 8) word = 0; /* none that is known */
    if (p < end && *p != '=') p = skip_space(p, end);
    if (p >= end || *p != '=') return -1;
    *pp = p + 1;
    return field_of(word);
}

static int is_key(const char *p, const char *end) { return read_key(&p, end) >= 0; }

static int read_integer(const char **pp, const char *end, long long *out)
{
    const char *p = skip_space(*pp, end);
    long long value = 0;
    int digits = 0;
    for (; p < end && is_digit(*p); p++, digits = 1) {
        if (value > (INT64_MAX - (*p - '0')) / 10) return -1;
        value = value * 10 + (*p - '0');
    }
    *pp = p, *out = value;
    return digits ? 0 : -1;
}

static int number_code(int state) { return state == NUMBER_NONE ? BAD_NUMBER : NON_FINITE; }

/* Reads numbers separated by "," or, where `semicolons`, by ";". Stores the first `size`, counts all. */
static int read_numbers(const char **pp, const char *end, float *out, ptrdiff_t size, int semicolons,
                        int field, ptrdiff_t *count, Failure *f)
{
    const char *p = *pp;
    ptrdiff_t n = 0;
    for (;;) {
        const char *at = p = skip_space(p, end);
        float value = 0;
        int state = read_float(&p, end, &value);
        if (state != NUMBER_OK) return fail(f, number_code(state), -1, field, at, n);
        if (n < size) out[n] = value;
        n++;
        p = skip_space(p, end);
        if (p >= end) break;
        if (*p == ',') {
            p++;
        } else if (*p == ';' && semicolons) {
            const char *q = skip_space(p + 1, end);
            if (q >= end || is_key(q, end)) break; /* the next field, not a number */
            p = q;
        } else { /* the next field may follow without a separator (the plugin's comma helper), nothing else may */
            if (*p != ';' && !is_key(p, end)) return fail(f, BAD_NUMBER, -1, field, p, n);
            break;
        }
    }
    *pp = p, *count = n;
    return 0;
}

/* -- reading rows */

enum { FEW_NUMBERS = 256 };

typedef struct {
    const Arrays *arrays;
    int form, main_field;   /* main_field: F_OBS or F_ACT */
    unsigned known, needed; /* fields with a meaning here; those that a row must have */
    int observations;       /* rows of observations alone: see OBSERVATIONS in kernels_pure.py */
    long long only_env;     /* the env whose own socket the line came on, or -1 */
    float *numbers, small[FEW_NUMBERS]; /* the OBS or ACT of the row that is being read */
    ptrdiff_t rows;
    int json; /* did a row carry INFO, OPTIONS or SET? */
    Failure failure;
} Reader;

typedef struct {
    float reward;
    long long env, seed, agent;
    int done, truncated, reset;
    unsigned seen;
    ptrdiff_t json_start, json_end; /* where INFO or OPTIONS stands */
    ptrdiff_t set_start, set_end;   /* where SET stands */
    const char *main_at, *mask;      /* where the numbers and the mask's flags stand */
    ptrdiff_t count, flags;         /* how many of them there are */
} Row;

/* `more`: room for the numbers of a row that has more than FEW_NUMBERS; else NULL. */
static void begin(Reader *r, const Arrays *a, int form, long long only_env, int main_field, float *more)
{
    memset(r, 0, offsetof(Reader, small));
    r->arrays = a, r->form = form & FORM_MASK, r->main_field = main_field, r->only_env = only_env < 0 ? -1 : only_env;
    r->rows = r->json = 0;
    r->observations = (form & OBSERVATIONS) != 0;
    r->needed = BIT(main_field);
    if (main_field == F_ACT) {
        r->known = BIT(F_ACT) | BIT(F_ENV) | BIT(F_SEED) | BIT(F_OPTIONS);
        if (form & SETTINGS) r->known |= BIT(F_SET);
    } else if (r->observations) r->known = BIT(F_OBS) | BIT(F_ENV) | BIT(F_RESET);
    else {
        r->needed |= BIT(F_REW) | BIT(F_DONE);
        r->known = r->needed | BIT(F_ENV) | BIT(F_TRUNC) | BIT(F_INFO);
    }
    if (a->mask_size) r->known |= BIT(F_MASK);
    if (a->agents) r->known |= BIT(F_AGENT);
    if (form & NUMBERED) r->known |= BIT(F_SEQ);
    r->numbers = more ? more : r->small;
}

/* Reads one field's value. Returns 1 where a ";" must follow, 0 where the next field may follow directly, -1 on
 * failure. */
static int read_value(Reader *r, const char **pp, const char *end, int field, Row *row)
{
    const char *value = *pp, *p = skip_space(value, end);
    ptrdiff_t count, size = r->arrays->size;
    int state;
    switch (field) {
    case F_ACT:
        if (starts_with_reset(p, end)) {
            row->reset = 1, *pp = p + 5;
            return 1;
        } /* fall through */
    case F_OBS:
        *pp = p;
        if (read_numbers(pp, end, r->numbers, size, field == F_OBS, field, &count, &r->failure)) return -1;
        row->main_at = p, row->count = count; /* an agent's own number is known when AGENT has been read */
        return count == size || r->arrays->agents ? 0 : fail(&r->failure, WRONG_COUNT, row->env, field, p, count);
    case F_MASK:
        row->mask = p;
        while (p < end && (*p == '0' || *p == '1')) p++;
        *pp = p, row->flags = p - row->mask;
        if (!row->flags) return fail(&r->failure, BAD_FLAG, row->env, field, p, 0);
        return 1;
    case F_REW:
        value = p;
        state = read_float(&p, end, &row->reward);
        if (state != NUMBER_OK) return fail(&r->failure, number_code(state), row->env, field, value, 0);
        *pp = p;
        return 0;
    case F_DONE:
    case F_TRUNC:
    case F_RESET:
        if (p >= end || (*p != '0' && *p != '1')) return fail(&r->failure, BAD_FLAG, row->env, field, p, 0);
        *(field == F_DONE ? &row->done : field == F_TRUNC ? &row->truncated : &row->reset) = *p == '1';
        *pp = p + 1;
        return 1;
    case F_ENV:
    case F_SEED:
    case F_AGENT:
        if (read_integer(pp, end, field == F_ENV ? &row->env : field == F_SEED ? &row->seed : &row->agent))
            return fail(&r->failure, BAD_INTEGER, -1, field, value, 0);
        return 1;
    case F_SEQ:
        return fail(&r->failure, NUMBER_IN_ROW, row->env, field, value, 0);
    default: /* INFO, OPTIONS, SET, and what has no meaning here */
        p = memchr(value, ';', (size_t)(end - value));
        *pp = p ? p : end;
        if (field == F_SET) {
            row->set_start = value - r->arrays->text;
            row->set_end = *pp - r->arrays->text;
        } else if (field != F_OTHER) {
            row->json_start = value - r->arrays->text;
            row->json_end = *pp - r->arrays->text;
        }
        return 1;
    }
}

/* The code for text that stands right behind a value. */
static int code_behind(int field)
{
    if (field == F_DONE || field == F_TRUNC || field == F_RESET || field == F_MASK) return BAD_FLAG;
    if (field == F_ENV || field == F_SEED || field == F_AGENT) return BAD_INTEGER;
    return field == F_OTHER ? NOT_A_FIELD : BAD_NUMBER;
}

/* Reads as many of the fields OBS, REW, DONE and ENV as stand at p one behind the other and without a space, as most
 * engines write them. Returns where read_keyed_row goes on: at the first field that was not read, or at the row's end. */
static const char *read_usual_fields(Reader *r, const char *p, const char *end, Row *row)
{
    const char *q = p + 4;
    ptrdiff_t size = r->arrays->size, n;
    float reward;
    if (r->main_field != F_OBS || r->observations || end - p < 5 || memcmp(p, "OBS=", 4)) return p;
    for (n = 0; n < size; n++) {
        if (read_float(&q, end, r->numbers + n) != NUMBER_OK || end - q < 5) return p;
        if (*q++ != (n + 1 < size ? ',' : ';')) return p;
    }
    if (memcmp(q, "REW=", 4)) return p;
    row->main_at = p + 4, row->count = size, row->seen = BIT(F_OBS), p = q;
    q += 4;
    if (read_float(&q, end, &reward) != NUMBER_OK || end - q < 7 || memcmp(q, ";DONE=", 6)) return p;
    row->reward = reward, row->seen |= BIT(F_REW), p = q + 1;
    q += 6;
    if ((*q != '0' && *q != '1') || (q + 1 < end && q[1] != ';')) return p;
    row->done = *q == '1', row->seen |= BIT(F_DONE), p = q + 1 < end ? q + 2 : end;
    if (end - p < 5 || memcmp(p, "ENV=", 4)) return p;
    q = p + 4;
    for (n = 0; q < end && is_digit(*q) && q - p < 13; q++) n = n * 10 + (*q - '0');
    if (q == p + 4 || (q < end && (*q != '|' || q + 1 >= end || q[1] != '|'))) return p;
    row->env = n, row->seen |= BIT(F_ENV);
    return q;
}

static int read_keyed_row(Reader *r, const char *p, const char *end, Row *row)
{
    Failure *f = &r->failure;
    for (;;) {
        const char *key = p = skip_space(p, end);
        int field, closed;
        if (p >= end) return 0;
        field = read_key(&p, end);
        if (field < 0) return fail(f, NOT_A_FIELD, row->env, F_OTHER, key, 0);
        if (!(r->known & BIT(field))) field = F_OTHER;
        else if (row->seen & BIT(field)) return fail(f, REPEATED_FIELD, row->env, field, key, 0);
        row->seen |= BIT(field);
        closed = read_value(r, &p, end, field, row);
        if (closed < 0) return -1;
        p = skip_space(p, end);
        if (p >= end) return 0;
        if (*p == ';') p++;
        else if (closed || !is_letter(*p)) return fail(f, code_behind(field), row->env, field, p, 0);
    }
}

/* Checks AGENT, and how many numbers this agent has. */
APART static int check_agent(Reader *r, const char *at, const Row *row)
{
    const Arrays *a = r->arrays;
    Failure *f = &r->failure;
    if (!a->agents) return 0;
    if (row->reset && r->main_field == F_ACT) /* of the whole env */
        return row->seen & BIT(F_AGENT) ? fail(f, RESET_OF_AGENT, row->env, F_AGENT, at, row->agent) : 0;
    if (!(row->seen & BIT(F_AGENT))) return fail(f, MISSING_FIELD, row->env, F_AGENT, at, 0);
    if (row->agent >= a->per_env) return fail(f, UNKNOWN_AGENT, row->env, F_AGENT, at, row->agent);
    if (row->count != numbers_of(a, (ptrdiff_t)row->agent))
        return fail(f, WRONG_COUNT, row->env, r->main_field, row->main_at, row->count);
    return 0;
}

/* Checks what a keyed row must have, and finds its env. */
static int check_row(Reader *r, const char *at, Row *row)
{
    Failure *f = &r->failure;
    unsigned missing = r->needed & ~row->seen;
    int field;
    for (field = 0; missing; field++)
        if (missing & BIT(field)) return fail(f, MISSING_FIELD, row->env, field, at, 0);
    if (!(row->seen & BIT(F_ENV))) {
        if (r->only_env < 0 && r->form == FORM_MULTI) return fail(f, MISSING_FIELD, -1, F_ENV, at, 0);
        row->env = r->only_env < 0 ? 0 : r->only_env;
    } else if (row->env >= r->arrays->envs) {
        return fail(f, UNKNOWN_ENV, row->env, F_ENV, at, row->env);
    } else if (r->main_field == F_OBS && r->only_env >= 0 && row->env != r->only_env) {
        return fail(f, OTHER_ENV, r->only_env, F_ENV, at, row->env);
    }
    if (!r->arrays->plain) {
        if (check_agent(r, at, row)) return -1;
        if (row->mask && row->flags != flags_of(r->arrays, r->arrays->agents ? (ptrdiff_t)row->agent : 0))
            return fail(f, WRONG_COUNT, row->env, F_MASK, row->mask, row->flags);
    }
    if (row->truncated && !row->done) return fail(f, TRUNC_WITHOUT_DONE, row->env, F_TRUNC, at, 0);
    return 0;
}

/* One RLBASE state: obs_size numbers, the reward, the done flag. */
static int read_rlbase_state(Reader *r, const char *p, const char *end, Row *row)
{
    ptrdiff_t n = 0, size = r->arrays->size;
    const char *line = p;
    Failure *f = &r->failure;
    for (;;) {
        float value = 0;
        int state;
        const char *at = p = skip_space(p, end);
        if (n == size + 1) { /* the flag */
            if (p >= end || (*p != '0' && *p != '1')) return fail(f, BAD_FLAG, 0, F_DONE, at, 0);
            row->done = *p++ == '1';
            p = skip_space(p, end);
            if (p < end) return fail(f, is_digit(*p) || *p == '.' ? BAD_FLAG : WRONG_COUNT, 0, F_OBS, line, -1);
            return 0;
        }
        state = read_float(&p, end, &value);
        if (state != NUMBER_OK) return fail(f, number_code(state), 0, n < size ? F_OBS : F_REW, at, n);
        if (n < size) r->numbers[n] = value;
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

/* One RLBASE request: act_size numbers, or RESET. */
static int read_rlbase_request(Reader *r, const char *p, const char *end, Row *row)
{
    const char *at = p = skip_space(p, end);
    ptrdiff_t count, size = r->arrays->size;
    row->reset = starts_with_reset(p, end) && skip_space(p + 5, end) == end;
    if (row->reset) return 0;
    if (read_numbers(&p, end, r->numbers, size, 0, F_ACT, &count, &r->failure)) return -1;
    if (p < end) return fail(&r->failure, BAD_NUMBER, 0, F_ACT, p, count);
    return count == size ? 0 : fail(&r->failure, WRONG_COUNT, 0, F_ACT, at, count);
}

/* The first number of the row that its mask leaves without a choice, or -1. */
APART static ptrdiff_t without_choice(const Arrays *a, ptrdiff_t agent, const char *mask)
{
    const int32_t *counts = layout_of(a, agent) + 2;
    ptrdiff_t i;
    for (i = 0; i < a->layout_width - 2; mask += counts[i++])
        if (counts[i] && !memchr(mask, '1', (size_t)counts[i])) return i;
    return -1;
}

APART static void store_mask(const Arrays *a, ptrdiff_t at, const Row *row)
{
    uint8_t *flags = a->masks + at * a->mask_size;
    ptrdiff_t i;
    memset(flags, 1, (size_t)a->mask_size); /* beyond an agent's own choices, and where the row has no MASK */
    for (i = 0; i < row->flags; i++) flags[i] = row->mask[i] == '1';
}

static int store_state(Reader *r, const char *at, Row *row)
{
    const Arrays *a = r->arrays;
    ptrdiff_t agent = a->agents ? (ptrdiff_t)row->agent : 0, count = a->size, to = (ptrdiff_t)row->env, none;
    int32_t *span;
    uint8_t *pending;
    if (a->agents) to = to * a->per_env + agent, count = numbers_of(a, agent);
    span = (int32_t *)a->column[STATE_SPANS] + 2 * to;
    pending = (uint8_t *)a->column[PENDING] + to;
    if (!*pending)
        return fail(&r->failure, REPEATED_ENV, row->env, a->agents ? F_AGENT : F_ENV, at, a->agents ? agent : row->env);
    if (!a->plain) {
        if (*pending == 2) row->reward = 0, row->done = row->truncated = 0; /* not asked: see kernels_pure.py */
        if (row->mask && !row->done && (none = without_choice(a, agent, row->mask)) >= 0)
            return fail(&r->failure, NO_CHOICE, row->env, F_MASK, row->mask, none);
    }
    *pending = 0;
    memcpy((float *)a->column[OBS] + to * a->size, r->numbers, (size_t)count * sizeof(float));
    ((float *)a->column[REWARDS])[to] = row->reward;
    ((uint8_t *)a->column[DONES])[to] = (uint8_t)(row->done | row->reset);
    ((uint8_t *)a->column[TRUNCATED])[to] = (uint8_t)row->truncated;
    if (a->mask_size) store_mask(a, to, row);
    span[0] = (int32_t)(r->observations ? r->rows : row->json_start);
    span[1] = (int32_t)row->json_end;
    return 0;
}

static int store_request(Reader *r, const char *at, const Row *row)
{
    const Arrays *a = r->arrays;
    ptrdiff_t first = (ptrdiff_t)row->env * a->per_env, rows = a->per_env, i;
    int32_t *span;
    uint8_t *command;
    if (a->agents && !row->reset) first += (ptrdiff_t)row->agent, rows = 1;
    span = (int32_t *)a->column[REQUEST_SPANS] + 4 * first;
    command = (uint8_t *)a->column[COMMAND] + first;
    for (i = 0; i < rows; i++)
        if (command[i])
            return fail(&r->failure, REPEATED_ENV, row->env, a->agents ? F_AGENT : F_ENV, at,
                        a->agents ? first + i - (ptrdiff_t)row->env * a->per_env : row->env);
    memset(command, row->reset ? 2 : 1, (size_t)rows);
    if (!row->reset)
        memcpy((float *)a->column[ACTIONS] + first * a->size, r->numbers,
               (size_t)(a->agents ? row->count : a->size) * sizeof(float));
    ((int64_t *)a->column[SEEDS])[first] = row->seed;
    span[0] = (int32_t)row->json_start, span[1] = (int32_t)row->json_end;
    span[2] = (int32_t)row->set_start, span[3] = (int32_t)row->set_end;
    return 0;
}

/* Where the row that starts at p ends ("||" or the end); *next is the start of the next row, NULL after the last. */
static const char *row_end(const char *p, const char *end, const char **next)
{
    const char *bar = memchr(p, '|', (size_t)(end - p));
    *next = NULL;
    /* a single bar is left for the row reader to refuse */
    if (bar == NULL || bar + 1 >= end || bar[1] != '|') return end;
    *next = bar + 2;
    return bar;
}

/* One line, [p, end), into the arrays; adds to r->rows. -1: r->failure, and the rows before the bad one were stored. */
static int decode_line(Reader *r, const char *p, const char *end)
{
    const char *next = NULL;
    int states = r->main_field == F_OBS;
    for (; p; p = next) {
        Row row = {0, -1, -1, -1, 0, 0, 0, 0, 0, 0, 0, 0, NULL, NULL, 0, 0};
        if (r->form == FORM_RLBASE) {
            row.env = 0;
            if (states ? read_rlbase_state(r, p, end, &row) : read_rlbase_request(r, p, end, &row)) {
                r->failure.env = 0;
                return -1;
            }
        } else {
            const char *at = read_usual_fields(r, p, end, &row), *stop = row_end(at, end, &next);
            if ((at < stop && read_keyed_row(r, at, stop, &row)) || check_row(r, p, &row)) {
                if (r->failure.env < 0) r->failure.env = r->only_env;
                return -1;
            }
        }
        if (states ? store_state(r, p, &row) : store_request(r, p, &row)) return -1;
        r->json |= row.json_end != 0 || row.set_end != 0;
        r->rows++;
    }
    return 0;
}

/* -- the numbers of requests and their answers (FEATURES=SEQ) */

static inline int is_space(char c) { return c == ' ' || c == '\t' || c == '\r'; }

/* Where the rows of the line [start, end) end; *number: 0 where its last field is not SEQ, -1 where it is no number. */
static const char *number_at(const char *start, const char *end, int64_t *number)
{
    const char *stop = end, *at, *p;
    int64_t value = 0;
    *number = 0;
    while (stop > start && (is_space(stop[-1]) || stop[-1] == ';')) stop--;
    for (at = stop; at > start && at[-1] != ';'; at--)
        ;
    p = skip_space(at, stop);
    if (at == start || stop - p < 3 || !is_word(p, 3, "SEQ")) return end;
    p = skip_space(p + 3, stop);
    if (p >= stop || *p != '=') return end;
    p = skip_space(p + 1, stop);
    *number = -1;
    if (stop - p > 18) return at - 1;
    while (p < stop && is_digit(*p)) value = value * 10 + (*p++ - '0');
    if (p == stop && value) *number = value;
    return at - 1;
}

/* decode_line of what stands before the number of the line [p, end); 0, and nothing read, where that is not `number`. */
static int decode_numbered(Reader *r, const char *p, const char *end, int form, int64_t number)
{
    int64_t found = 0;
    if (form & NUMBERED) end = number_at(p, end, &found);
    return form & NUMBERED && found != number ? 0 : decode_line(r, p, end);
}

/* Line i, of fill[i] bytes, stands at text[i * stride] and came on env i's own socket; 0 bytes: nothing came. */
static inline int decode_regions(Reader *r, ptrdiff_t stride, const int32_t *fill)
{
    ptrdiff_t i;
    for (i = 0; i < r->arrays->rows; i++) {
        const char *line = r->arrays->text + i * stride, *end = line + fill[i];
        if (fill[i] <= 0 || fill[i] > stride) continue;
        r->only_env = i;
        while (line < end) { /* a second line is a second answer: its row is refused as REPEATED_ENV */
            const char *stop = memchr(line, '\n', (size_t)(end - line));
            if (stop == NULL) stop = end;
            if (skip_space(line, stop) < stop && decode_line(r, line, stop)) return -1;
            line = stop + 1;
        }
    }
    return 0;
}

/* -- writing */

static char *write_text(char *p, const char *text, size_t n)
{
    memcpy(p, text, n);
    return p + n;
}

static inline char *write_integer(char *p, int64_t value)
{
    char digits[20];
    int n = 0;
    do digits[n++] = (char)('0' + value % 10), value /= 10;
    while (value);
    while (n) *p++ = digits[--n];
    return p;
}

/* ENV, and where rows are an agent's also AGENT. */
static inline char *write_env(char *p, const Arrays *a, int32_t row)
{
    int32_t per_env = (int32_t)a->per_env;
    p = write_text(p, ";ENV=", 5);
    if (!a->agents) return write_integer(p, row);
    p = write_integer(p, row / per_env);
    return write_integer(write_text(p, ";AGENT=", 7), row % per_env);
}

/* SEQ and the end of the line; without SEQ where `number` is 0. */
static inline char *end_line(char *p, int64_t number)
{
    if (number > 0) p = write_integer(write_text(p, ";SEQ=", 5), number);
    *p++ = '\n';
    return p;
}

/* MASK, unless every choice is legal. */
static char *write_mask(char *p, const Arrays *a, int32_t row)
{
    const uint8_t *flags = a->masks + row * a->mask_size;
    ptrdiff_t count = flags_of(a, agent_of(a, row)), i;
    if (!count || !memchr(flags, 0, (size_t)count)) return p;
    p = write_text(p, ";MASK=", 6);
    for (i = 0; i < count; i++) *p++ = flags[i] ? '1' : '0';
    return p;
}

/* Writes numbers joined by commas; NULL and *f where one is not finite. */
static char *write_numbers(char *p, const float *values, ptrdiff_t n, int32_t env, int field, Failure *f)
{
    FloatText texts[8];
    ptrdiff_t first, i, count;
    for (first = 0; first < n; first += count) {
        count = n - first < 8 ? n - first : 8;
        for (i = 0; i < count; i++) {
            if (!isfinite(values[first + i])) {
                fail(f, NON_FINITE, env, field, NULL, first + i);
                return NULL;
            }
            make_text(texts + i, values[first + i]);
        }
        for (i = 0; i < count; i++) {
            *p = ',';
            p = put_text(p + (first + i > 0), texts + i);
        }
    }
    return p;
}

/* Writes one row at p, returns its end; NULL and *f, which names the row, where a number is not finite. */
typedef char *RowWriter(char *p, const Arrays *a, int form, int32_t row, Failure *f);

static char *write_action(char *p, const Arrays *a, int form, int32_t row, Failure *f)
{
    const float *values = (float *)a->column[ACTIONS] + row * a->size;
    if (form != FORM_RLBASE) p = write_text(p, "ACT=", 4);
    p = write_numbers(p, values, numbers_of(a, agent_of(a, row)), row, F_ACT, f);
    return p && form == FORM_MULTI ? write_env(p, a, row) : p;
}

static char *write_state(char *p, const Arrays *a, int form, int32_t row, Failure *f)
{
    int done = ((uint8_t *)a->column[DONES])[row] != 0;
    if (form != FORM_RLBASE) p = write_text(p, "OBS=", 4);
    p = write_numbers(p, (float *)a->column[OBS] + row * a->size, numbers_of(a, agent_of(a, row)), row, F_OBS, f);
    if (p == NULL) return NULL;
    p = form == FORM_RLBASE ? write_text(p, ";", 1) : write_text(p, ";REW=", 5);
    p = write_numbers(p, (float *)a->column[REWARDS] + row, 1, row, F_REW, f);
    if (p == NULL) return NULL;
    p = form == FORM_RLBASE ? write_text(p, ";", 1) : write_text(p, ";DONE=", 6);
    *p++ = done ? '1' : '0';
    if (form == FORM_MULTI) p = write_env(p, a, row);
    if (form != FORM_RLBASE && done && ((uint8_t *)a->column[TRUNCATED])[row]) p = write_text(p, ";TRUNC=1", 8);
    return a->mask_size && form != FORM_RLBASE ? write_mask(p, a, row) : p;
}

/* Bytes that are enough for one row, its numbers and everything around them; and for the end of a line. */
static ptrdiff_t row_room(const Arrays *a) { return (a->size + 1) * FLOAT_TEXT_MAX + a->mask_size + 80; }
enum { END_ROOM = 32 };

/* One line of the `count` rows in `ids`, into row_room() bytes for each and END_ROOM; its end, or NULL and *f. */
static char *write_rows(char *p, const Arrays *a, int form, RowWriter *write_row, const int32_t *ids, ptrdiff_t count,
                        int64_t number, Failure *f)
{
    ptrdiff_t i;
    for (i = 0; i < count; i++) {
        if (i) p = write_text(p, "||", 2);
        p = write_row(p, a, form, ids[i], f);
        if (p == NULL) return NULL;
    }
    return end_line(p, number);
}

#endif
