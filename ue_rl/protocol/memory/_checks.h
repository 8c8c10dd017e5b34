/* Loops over a step's numbers: is one of them NaN, infinite, or a flag that is none? */
#ifndef UE_RL_CHECKS_H
#define UE_RL_CHECKS_H
#include <stddef.h>
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

WIDE static uint32_t any_bad(const uint32_t *from, ptrdiff_t count)
{
    uint32_t bad = 0; /* no branch inside: compilers make vector code of this */
    ptrdiff_t i;
    for (i = 0; i < count; i++) bad |= (uint32_t)((from[i] & 0x7F800000u) == 0x7F800000u);
    return bad;
}

/* What was copied is read back afterwards, and not the source once more. */
#if defined(_MSC_VER)
#include <intrin.h>
#define COPIED() _ReadWriteBarrier()
#else
#define COPIED() __asm__ volatile("" ::: "memory")
#endif

/* Index of the first float that is NaN or infinite, -1 if there is none. With `to`, copies on the way. FROM_PEER: the
 * other process may write to `from` at any time, so what is checked is the copy. */
enum { FROM_HERE = 0, FROM_PEER = 1 };
static ptrdiff_t first_bad(const uint32_t *from, uint32_t *to, ptrdiff_t count, int whose)
{
    const uint32_t *own = to && whose == FROM_PEER ? to : from;
    ptrdiff_t start, i;
    for (start = 0; start < count; start += FINITE_BLOCK) {
        ptrdiff_t end = start + FINITE_BLOCK < count ? start + FINITE_BLOCK : count;
        if (to) {
            memcpy(to + start, from + start, (size_t)(end - start) * 4);
            COPIED();
        }
        if (any_bad(own + start, end - start))
            for (i = start; i < end; i++)
                if ((own[i] & 0x7F800000u) == 0x7F800000u) return i;
    }
    return -1;
}

/* The arrays of one step; `obs` holds `numbers` floats, the others `rows` elements each. */
typedef struct {
    uint32_t *obs, *rewards;
    uint8_t *dones, *limits; /* flags: over, and over by a limit only */
    ptrdiff_t numbers, rows;
} Step;

/* 0 if all is well; else the kind of the first bad number, obs (1), rewards (2), dones (3), truncated (4), and its
 * index. With `to`, copies `from` first and looks at the copy: `from` may change at any time. */
static int bad_step(const Step *from, const Step *to, ptrdiff_t *bad)
{
    const Step *own = to ? to : from;
    uint8_t odd = 0;
    ptrdiff_t i;
    if ((*bad = first_bad(from->obs, to ? to->obs : NULL, from->numbers, FROM_PEER)) >= 0) return 1;
    if ((*bad = first_bad(from->rewards, to ? to->rewards : NULL, from->rows, FROM_PEER)) >= 0) return 2;
    if (to) {
        memcpy(to->dones, from->dones, (size_t)from->rows);
        memcpy(to->limits, from->limits, (size_t)from->rows);
        COPIED();
    }
    for (i = 0; i < own->rows; i++)
        odd |= (uint8_t)(((own->dones[i] | own->limits[i]) & 0xFE) | (own->limits[i] & ~own->dones[i]));
    for (i = 0; odd && i < own->rows; i++) {
        *bad = i;
        if (own->dones[i] > 1) return 3;
        if (own->limits[i] > 1 || own->limits[i] > own->dones[i]) return 4;
    }
    return 0;
}

#endif
