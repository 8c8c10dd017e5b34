/* One side of a segment without Python: its words, how it waits for the other side and wakes it, and a step of the
 * trainer's. Bell in _sync.c is this with checked arguments, a socket and the GIL; tests/windows compiles it for Windows.
 */
#ifndef UE_RL_SIDE_H
#define UE_RL_SIDE_H

#include <stddef.h>
#include "../../system/_platform.h"
#include "../../system/_spin.h"
#include "_checks.h"

/* What a flag says to whoever publishes. Its owner writes it; the other side only takes ON_FUTEX back to AWAKE, so that
 * a wake-up that comes before the sleeper has reached FUTEX_WAIT is not lost: the futex no longer holds what it
 * expects. ALWAYS_RING: an engine that can neither wait on nor wake a futex. */
enum { AWAKE = 0, ON_FUTEX = 1, ON_SOCKET = 2, ALWAYS_RING = 3 };

/* Nanoseconds. A nap is a fifth of the wait so far. BRIEF: how long a side spins where spinning has failed before. */
enum { SHORTEST_NAP = 20000, LONGEST_NAP = 2000000, BRIEF = 2000 };

typedef struct {
    char *own_seq, *peer_seq, *own_flag, *peer_flag, *peer_ring; /* words of the segment; the last three may be NULL */
    int futex;
    int64_t spin_ns;
    /* what earlier waits have shown; one thread waits at a time, and a race would cost a worse guess */
    int64_t nap;
    Cores cores;
    int failed_spins;
    unsigned long long waits, sleeps;
    /* a step of the trainer's */
    char *answered; /* the word with the request that was answered last */
    unsigned long long expected, asked;
    char *holder; /* the word that says whose segment this is, or NULL, and what it must hold */
    uint32_t holder_is;
} Side;

/* Behind its words. futex: may it wait on one? */
static void begin_side(Side *self, int futex, int64_t spin_ns)
{
    if (self->own_flag) store32(self->own_flag, AWAKE); /* whatever an earlier process has left there */
    self->futex = futex && HAS_FUTEX;
    self->nap = SHORTEST_NAP;
    self->spin_ns = spin_ns;
}

/* -- waking
 *
 * Why no wake-up is lost. The sleeper stores its flag, fences, and loads the counter; it blocks only if the counter has
 * not moved. The publisher increments the counter, fences, and loads the flag; it rings only if the flag is not AWAKE.
 * Both fences are sequentially consistent, so one of them comes first in the single order of all such fences (C11
 * 7.17.4), and what was stored before the first is seen by every load after the second. If the sleeper's comes first,
 * the publisher sees the flag and rings; if the publisher's comes first, the sleeper sees the counter and does not
 * block. Without a fence each side's store may wait in its store buffer while its load is done already, on x86 too, and
 * both miss. A ring that comes before the sleeper blocks stays: as a byte in the socket, or as AWAKE in the futex's
 * word.
 */

/* Behind a counter that was written. Does the other side want a doorbell on its socket? */
static int wake_peer(Side *self)
{
    uint32_t flag;
    if (!self->peer_flag) return 0;
    full_fence();
    flag = load32(self->peer_flag);
#if HAS_FUTEX
    if (flag == ON_FUTEX) {
        if (swap32(self->peer_flag, ON_FUTEX, AWAKE))
            syscall(SYS_futex, (uint32_t *)self->peer_flag, FUTEX_WAKE, INT32_MAX, NULL, NULL, 0);
        return 0;
    }
#endif
    return flag != AWAKE;
}

/* -- waiting */

/* Has the counter, or the incoming ring's write position, moved? */
static int moved(Side *self, uint64_t seq, uint32_t pos)
{
    return load64(self->peer_seq) != seq || (self->peer_ring && load32(self->peer_ring) != pos);
}

/* Polls, without the GIL, for as long as earlier waits make it worth while. Did something move? */
static int spin(Side *self, uint64_t seq, uint32_t pos)
{
    int64_t begun, now, before, longest = self->spin_ns;
    int i;
    for (i = 0; i < 64; i++) {
        if (moved(self, seq, pos)) return 1;
        relax();
    }
    begun = now_ns();
    if (!may_spin(&self->cores, begun)) return 0;
    /* After eight failures the other side takes longer than spinning lasts: spin briefly, in full in one of 32
     * waits. */
    if (self->failed_spins >= 8 && self->waits % 32 && longest > BRIEF) longest = BRIEF;
    for (before = begun; before - begun < longest; before = now) {
        for (i = 0; i < 32; i++) {
            if (moved(self, seq, pos)) {
                self->failed_spins = 0;
                return 1;
            }
            relax();
        }
        now = now_ns();
        if (now - before > PUSHED_OFF) {
            cores_are_short(&self->cores, now);
            return moved(self, seq, pos);
        }
    }
    if (self->failed_spins < 8) self->failed_spins++;
    return 0;
}

/* Blocks for `slice_ms` at most: on the futex, or in naps where the other side wakes none. */
static void block_in_memory(Side *self, uint64_t seq, uint32_t pos, long slice_ms)
{
    int64_t stop;
#if HAS_FUTEX
    if (self->own_flag && self->futex && !(self->peer_flag && load32(self->peer_flag) == ALWAYS_RING)) {
        struct timespec slice = {slice_ms / 1000, (slice_ms % 1000) * 1000000};
        store32(self->own_flag, ON_FUTEX);
        full_fence();
        if (!moved(self, seq, pos))
            syscall(SYS_futex, (uint32_t *)self->own_flag, FUTEX_WAIT, ON_FUTEX, &slice, NULL, 0);
        store32(self->own_flag, AWAKE);
        return;
    }
#endif
    stop = now_ns() + (int64_t)slice_ms * 1000000;
    while (!moved(self, seq, pos)) {
        if (now_ns() >= stop) return; /* the next slice goes on with naps as long as these */
        sleep_ns(self->nap);
        if (self->nap < LONGEST_NAP) self->nap += self->nap / 4;
    }
    self->nap = SHORTEST_NAP;
}

/* Is it there at once? To let go of the GIL costs more than a quick answer. */
static int moved_at_once(Side *self, uint64_t seq, uint32_t pos)
{
    int i;
    for (i = 0; i < 16; i++) {
        if (moved(self, seq, pos)) return 1;
        relax();
    }
    return 0;
}

/* Spins, then, where it may block for `slice_ms`, does so, unless it will be on a socket. Had it to block? */
static int spin_or_block(Side *self, uint64_t seq, uint32_t pos, long slice_ms, int on_socket)
{
    if (spin(self, seq, pos) || slice_ms <= 0) return 0;
    if (!on_socket) block_in_memory(self, seq, pos, slice_ms);
    return 1;
}

/* -- a step of the trainer's */

/* Is the segment still its holder's? */
static int is_ours(const Side *self) { return !self->holder || load32(self->holder) == self->holder_is; }

/* Has the other side counted as often as it was asked? */
static int is_as_expected(const Side *self) { return load64(self->peer_seq) == self->expected; }

/* Counts the request that stands in the segment; wake_peer comes behind it. */
static void count_request(Side *self)
{
    self->expected++;
    self->asked = increment64(self->own_seq);
}

/* Is this the right answer to the last request, and no message beside it? */
static int has_answered(const Side *self, uint32_t pos)
{
    return is_as_expected(self) && load64(self->answered) == self->asked &&
           !(self->peer_ring && load32(self->peer_ring) != pos);
}

#endif
