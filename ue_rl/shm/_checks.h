/* Loops over a step's numbers: is one of them NaN, infinite, or a flag that is none? Include after Python.h. */
#ifndef UE_RL_CHECKS_H
#define UE_RL_CHECKS_H
#include <stdint.h>
#include <string.h>

#define FINITE_BLOCK 4096

/* Wider vectors where the processor has them, chosen when the module is loaded (GCC on glibc). */
#if defined(__x86_64__) && defined(__GLIBC__) && defined(__GNUC__) && !defined(__clang__) && \
    !defined(__SANITIZE_ADDRESS__)
#define WIDE __attribute__((target_clones("avx512f", "avx2", "default")))
#else
#define WIDE
#endif

WIDE static uint32_t any_bad(const uint32_t *from, Py_ssize_t count)
{
    uint32_t bad = 0; /* no branch inside: compilers make vector code of this */
    Py_ssize_t i;
    for (i = 0; i < count; i++) bad |= (uint32_t)((from[i] & 0x7F800000u) == 0x7F800000u);
    return bad;
}

/* Index of the first float that is NaN or infinite, -1 if there is none. With `to`, copies on the way. */
static Py_ssize_t first_bad(const uint32_t *from, uint32_t *to, Py_ssize_t count)
{
    Py_ssize_t start, i;
    for (start = 0; start < count; start += FINITE_BLOCK) {
        Py_ssize_t end = start + FINITE_BLOCK < count ? start + FINITE_BLOCK : count;
        if (to) memcpy(to + start, from + start, (size_t)(end - start) * 4);
        if (any_bad(from + start, end - start))
            for (i = start; i < end; i++)
                if ((from[i] & 0x7F800000u) == 0x7F800000u) return i;
    }
    return -1;
}

/* 0 if all is well; else the kind of the first bad number, obs (1), rewards (2), dones (3), truncated (4), and its
 * index. */
static int bad_step(const uint32_t *obs, Py_ssize_t numbers, const uint32_t *rewards, const uint8_t *done,
                    const uint8_t *limit, Py_ssize_t n, Py_ssize_t *bad)
{
    uint8_t odd = 0;
    Py_ssize_t i;
    if ((*bad = first_bad(obs, NULL, numbers)) >= 0) return 1;
    if ((*bad = first_bad(rewards, NULL, n)) >= 0) return 2;
    for (i = 0; i < n; i++) odd |= (uint8_t)((done[i] | limit[i]) & 0xFE) | (uint8_t)(limit[i] & ~done[i]);
    for (i = 0; odd && i < n; i++) {
        *bad = i;
        if (done[i] > 1) return 3;
        if (limit[i] > 1 || limit[i] > done[i]) return 4;
    }
    return 0;
}

#endif
