/* Are there cores for a wait that spins?
 *
 * Who spins uses up the share of a core that the scheduler has for it, and pays when it next wants to run. To yield
 * makes it worse: from Linux 6.18 on, who yields comes last. On two cores beside two busy processes, with a trainer
 * that thinks 0.5 ms, a step took 2 to 4 ms in the mean where both sides spun and yielded, and 0.6 ms where both
 * blocked at once, as text over a socket does. So nobody spins who was lately pushed off its core, in a spin or between
 * two waits. A look whether that is over costs some ms where it is not: each comes twice as late as the one before.
 * Engines in C++ and C# hold to it, too (samples/cpp/ue_rl_bridge.hpp, samples/unity/UeRlSharedMemory.cs).
 */
#ifndef UE_RL_SPIN_H
#define UE_RL_SPIN_H
#include "_platform.h"

#ifdef __linux__
#include <sys/resource.h>
#endif

/* Nanoseconds. PUSHED_OFF: who was off its core for so long made room for another process; interrupts and the kernel's
 * own threads take less. FIRST_PAUSE, LONGEST_PAUSE: without spinning. LOOK_EVERY: to count switches takes 0.3 us, half
 * of a small step. */
enum { PUSHED_OFF = 100000, LOOK_EVERY = 1000000, FIRST_PAUSE = 50000000, LONGEST_PAUSE = 1600000000 };

typedef struct {
    int64_t not_before, pause; /* no spinning until then; how long it was forbidden for last */
    int64_t seen, cpu;         /* when switches were counted last, and this thread's CPU time then */
    long blocked, pushed;      /* how often this thread had given up its core, and had lost it */
} Cores;

/* This thread was pushed off its core. */
static inline void cores_are_short(Cores *self, int64_t now)
{
    if (now >= self->not_before) {
        int again = now < self->not_before + self->pause; /* soon after the last time: it was not over */
        self->pause = !again ? FIRST_PAUSE : self->pause < LONGEST_PAUSE ? 2 * self->pause : LONGEST_PAUSE;
    }
    self->not_before = now + self->pause;
}

/* Counts this thread's switches: was it pushed off its core since the last time? Unknown where it has blocked since. */
static inline void look_at_cores(Cores *self, int64_t now)
{
#ifdef RUSAGE_THREAD
    struct rusage used;
    int64_t cpu;
    if (getrusage(RUSAGE_THREAD, &used)) return;
    cpu = (used.ru_utime.tv_sec + used.ru_stime.tv_sec) * INT64_C(1000000000) +
          (used.ru_utime.tv_usec + used.ru_stime.tv_usec) * INT64_C(1000);
    if (used.ru_nivcsw != self->pushed && used.ru_nvcsw == self->blocked &&
        now - self->seen - (cpu - self->cpu) > PUSHED_OFF)
        cores_are_short(self, now);
    self->seen = now, self->cpu = cpu, self->blocked = used.ru_nvcsw, self->pushed = used.ru_nivcsw;
#else
    (void)self, (void)now;
#endif
}

static inline int may_spin(Cores *self, int64_t now)
{
    if (now - self->seen > LOOK_EVERY) look_at_cores(self, now);
    return now >= self->not_before;
}
#endif
