/* The loops of ue_rl/protocol/text/_lines.h as a process, for Windows: what _kernels.c does for Python's arrays.
 *
 * Standard input: one call behind the other, each eleven int64 and then the arrays; see Call, and far_kernels.py, which asks.
 * Standard output, for each: a status, its length in bytes, and these bytes.
 */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#ifdef _WIN32
#include <io.h>
#endif
#include "../../ue_rl/protocol/text/_lines.h"

/* The C library's, which MinGW's is correctly rounded, in the C locale. */
static double slow_double(const char *start, const char *end)
{
    size_t length = (size_t)(end - start);
    char *text = malloc(length + 1);
    double value;
    if (!text) abort();
    memcpy(text, start, length);
    text[length] = 0;
#ifdef __MINGW32__
    value = __mingw_strtod(text, NULL);
#else
    value = strtod(text, NULL);
#endif
    free(text);
    return value;
}

enum { DECODE_STATES, DECODE_REQUESTS, ENCODE_ACTIONS, ENCODE_STATES, FIND_NUMBER };

/* bytes: of the text, or of the numbers of rows; masks: flags of a row, -1: there are none; agents: rows of the layout,
 * 0: there is none. */
typedef struct {
    int64_t call, form, only_env, number, start, bytes, rows, size, masks, agents, width;
} Call;

/* Bytes of a row in each column; 0: `size` float32. */
static const ptrdiff_t STATE[STATE_COLUMNS] = {0, 4, 1, 1, 1, 8}, REQUEST[REQUEST_COLUMNS] = {0, 1, 8, 16};

static void *taken(ptrdiff_t size)
{
    void *memory = malloc((size_t)size + 8);
    if (!memory || fread(memory, 1, (size_t)size, stdin) != (size_t)size) exit(1);
    return memory;
}

static void give(int64_t status, const void *bytes, ptrdiff_t size)
{
    int64_t head[2] = {status, size};
    fwrite(head, 8, 2, stdout);
    fwrite(bytes, 1, (size_t)size, stdout);
}

static void give_failure(const Failure *f, const char *base)
{
    int64_t facts[5] = {f->code, f->env, f->field, f->at ? f->at - base : 0, f->got};
    give(1, facts, sizeof facts);
}

/* The status of a decoded line is 0, and what follows is its result; the arrays come behind it in any case. */
static void decode(const Call *call, const Arrays *a, Reader *r)
{
    float *more = a->size > FEW_NUMBERS ? malloc((size_t)a->size * sizeof(float)) : NULL;
    int64_t result;
    begin(r, a, (int)call->form, call->only_env, call->call == DECODE_STATES ? F_OBS : F_ACT, more);
    if (decode_numbered(r, a->text + call->start, a->text + call->bytes, (int)call->form, call->number)) {
        give_failure(&r->failure, a->text);
    } else {
        result = r->json ? -r->rows : r->rows;
        give(0, &result, sizeof result);
    }
    free(more);
}

static void encode(const Call *call, const Arrays *a)
{
    ptrdiff_t count = (ptrdiff_t)call->bytes / 4;
    char *line = malloc((size_t)(count * row_room(a) + END_ROOM)), *end;
    RowWriter *write_row = call->call == ENCODE_STATES ? write_state : write_action;
    Failure f;
    if (!line) exit(1);
    end = write_rows(line, a, (int)call->form & FORM_MASK, write_row, (const int32_t *)(const void *)a->text, count,
                     call->number, &f);
    if (end) give(0, line, end - line);
    else give_failure(&f, NULL);
    free(line);
}

static void answer(const Call *call)
{
    static Reader reader;
    const int states = call->call == DECODE_STATES || call->call == ENCODE_STATES;
    const int decodes = call->call <= DECODE_REQUESTS;
    const int columns = call->call == ENCODE_ACTIONS ? 1
                        : call->call == ENCODE_STATES ? PENDING
                        : states ? STATE_COLUMNS : REQUEST_COLUMNS;
    ptrdiff_t sizes[STATE_COLUMNS] = {0};
    void *layout = NULL;
    Arrays a = {0};
    int i;
    a.text = taken((ptrdiff_t)call->bytes);
    if (call->call == FIND_NUMBER) {
        int64_t found[2];
        found[0] = number_at(a.text + call->start, a.text + call->bytes, found + 1) - a.text;
        give(0, found, sizeof found);
        free((void *)a.text);
        return;
    }
    a.rows = (ptrdiff_t)call->rows, a.size = (ptrdiff_t)call->size, a.layout_width = (ptrdiff_t)call->width;
    a.agents = (call->form & AGENTS) != 0;
    a.per_env = a.agents ? (ptrdiff_t)call->agents : 1;
    a.envs = a.rows / a.per_env;
    for (i = 0; i < columns; i++) {
        ptrdiff_t bytes = (states ? STATE : REQUEST)[i];
        sizes[i] = a.rows * (bytes ? bytes : 4 * a.size);
        a.column[i] = taken(sizes[i]);
    }
    if (call->masks >= 0) {
        a.mask_size = (ptrdiff_t)call->masks;
        a.masks = taken(a.rows * a.mask_size);
    }
    if (call->agents) a.layout = layout = taken((ptrdiff_t)(call->agents * call->width) * 4);
    a.plain = !a.agents && !a.mask_size;
    if (check_layout(&a, (ptrdiff_t)call->agents)) exit(1);
    if (decodes) decode(call, &a, &reader);
    else encode(call, &a);
    for (i = 0; i < columns; i++) {
        if (decodes) fwrite(a.column[i], 1, (size_t)sizes[i], stdout);
        free(a.column[i]);
    }
    if (decodes && a.masks) fwrite(a.masks, 1, (size_t)(a.rows * a.mask_size), stdout);
    free(a.masks);
    free(layout);
    free((void *)a.text);
}

int main(void)
{
    Call call;
#ifdef _WIN32
    _setmode(_fileno(stdin), _O_BINARY);
    _setmode(_fileno(stdout), _O_BINARY);
#endif
    while (fread(&call, sizeof call, 1, stdin) == 1) {
        answer(&call);
        fflush(stdout);
    }
    return 0;
}
