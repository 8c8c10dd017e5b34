/* Answers as float32 rows (FEATURES=BINARY; the form is that of ue_rl/plugins/web/rows.py): the usual ones, right in
 * all, whose envs come in their order and without masks. All else is left to Python, which names what is wrong: nothing
 * is written of it.
 */
#ifndef UE_RL_ROWS_H
#define UE_RL_ROWS_H

#include "../../system/_arrays.h"

enum { ROWS_HEAD = 32, ROWS_ANSWER = 2, ROW_DONE = 1, ROW_TRUNC = 2 };

static uint32_t rows_word(const unsigned char *from)
{
    return (uint32_t)from[0] | (uint32_t)from[1] << 8 | (uint32_t)from[2] << 16 | (uint32_t)from[3] << 24;
}

/* All bits of the exponent are set where a float32 is none. */
static int rows_are_finite(const unsigned char *from, Py_ssize_t count)
{
    int found = 0;
    for (Py_ssize_t i = 0; i < count; i++) found |= (rows_word(from + 4 * i) & 0x7F800000u) == 0x7F800000u;
    return !found;
}

/* The rows of an answer of this length to request `number`; 0: it is not as usual. */
static Py_ssize_t rows_of_head(const unsigned char *head, Py_ssize_t length, Py_ssize_t envs, Py_ssize_t width,
                               uint64_t number)
{
    uint64_t found;
    Py_ssize_t rows;
    if (length < ROWS_HEAD || memcmp(head, "URB1", 4) || rows_word(head + 4) != ROWS_ANSWER) return 0;
    if (rows_word(head + 8) > (uint64_t)envs || rows_word(head + 12) != (uint64_t)width) return 0;
    if (rows_word(head + 16) || rows_word(head + 20)) return 0; /* masks; a word that is 0 */
    found = rows_word(head + 24) | (uint64_t)rows_word(head + 28) << 32;
    rows = (Py_ssize_t)rows_word(head + 8);
    return found == number && length == ROWS_HEAD + rows * (4 + 4 + 4 * width + 1) ? rows : 0;
}

/* Are the envs in their order, all asked, and their ends 0, DONE, or DONE and TRUNC? */
static int rows_are_due(const unsigned char *ids, const unsigned char *ends, Py_ssize_t rows, Py_ssize_t envs,
                        const uint8_t *pending)
{
    int64_t before = -1;
    for (Py_ssize_t row = 0; row < rows; row++) {
        int64_t env = rows_word(ids + 4 * row);
        if (env <= before || env >= envs || pending[env] != 1) return 0;
        if (ends[row] > (ROW_DONE | ROW_TRUNC) || ends[row] == ROW_TRUNC) return 0;
        before = env;
    }
    return 1;
}

/* read_rows(message, obs, rewards, dones, truncated, pending, number): rows that were read, or 0 */
static PyObject *read_rows(PyObject *self, PyObject *const *args, Py_ssize_t nargs)
{
    static const Dtype *const TYPES[] = {&U8, &F32, &F32, &U8, &U8, &U8};
    Py_buffer views[6];
    const unsigned char *ids, *rewards, *obs, *ends;
    char *to_obs, *to_rewards;
    uint8_t *dones, *truncated, *pending;
    uint64_t number;
    Py_ssize_t envs, width, rows;
    if (nargs != 7) return PyErr_Format(PyExc_TypeError, "read_rows takes 7 arguments");
    number = PyLong_AsUnsignedLongLong(args[6]);
    if (PyErr_Occurred() || get_arrays(args, views, TYPES, 0x3E, 6)) return NULL;
    envs = views[2].len / 4;
    width = envs ? views[1].len / 4 / envs : 0;
    if (views[1].len != 4 * envs * width || views[3].len != envs || views[4].len != envs || views[5].len != envs) {
        release_arrays(views, 6);
        return PyErr_Format(PyExc_ValueError, "the arrays are not of one number of envs");
    }
    to_obs = views[1].buf, to_rewards = views[2].buf;
    dones = views[3].buf, truncated = views[4].buf, pending = views[5].buf;
    ids = (const unsigned char *)views[0].buf + ROWS_HEAD;
    rows = rows_of_head(views[0].buf, views[0].len, envs, width, number);
    rewards = ids + 4 * rows;
    obs = rewards + 4 * rows;
    ends = obs + 4 * rows * width;
    if (!rows_are_due(ids, ends, rows, envs, pending) || !rows_are_finite(rewards, rows * (1 + width))) rows = 0;
    for (Py_ssize_t row = 0; row < rows; row++) {
        Py_ssize_t env = (Py_ssize_t)rows_word(ids + 4 * row);
        memcpy(to_obs + 4 * env * width, obs + 4 * row * width, (size_t)(4 * width));
        memcpy(to_rewards + 4 * env, rewards + 4 * row, 4);
        dones[env] = ends[row] & ROW_DONE;
        truncated[env] = ends[row] >> 1;
        pending[env] = 0;
    }
    release_arrays(views, 6);
    return PyLong_FromSsize_t(rows);
}

#endif
