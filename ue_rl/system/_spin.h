/* Are there cores for a wait that spins?
 *
 * A side that spins uses up the share of a core that the scheduler has for it, and pays when it next wants to run: on
 * two cores beside two busy processes a step took 2.1 ms in the mean where both sides spun, yielding, and 0.6 ms where
 * both blocked at once. To yield makes it worse: from Linux 6.18 on who yields comes last. So nobody spins who was lately
 * pushed off its core, and a look whether that is over comes the later, the more such looks were in vain.
 */
#ifndef UE_RL_SPIN_H
#define UE_RL_SPIN_H
#include "_platform.h"

#ifdef __linux__
#include <sys/resource.h>
#endif

/* Nanoseconds. PUSHED_OFF: who was off its core for so long made room for another process; interrupts and the kernel's
 * own threads take less. FIRST_PAUSE: without spinning, after that; twice as long each time that it happens again within
 * as long, so that looks cost little beside a game that renders all day: one costs some ms where cores are short. */
enum { PUSHED_OFF = 100000, FIRST_PAUSE = 50000000, LONGEST_PAUSE = 1600000000 };

typedef struct {
    int64_t not_before, pause; /* no spinning until then; how long it was forbidden for last */
    int64_t seen, cpu;         /* when switches were counted last, and this thread's CPU time then */
    long blocked, pushed;      /* how often this thread had given up its core, and had lost it */
} Cores;

/* Whoever spins was off its core, or was pushed off it before. */
static inline void cores_are_short(Cores *self, int64_t now)
{
    if (now < self->not_before) self->not_before = now + self->pause; /* they still are */
    else {
        self->pause = now < self->not_before + self->pause ? 2 * self->pause : FIRST_PAUSE;
        if (self->pause > LONGEST_PAUSE) self->pause = LONGEST_PAUSE;
        self->not_before = now + self->pause;
    }
}

/* Counts this thread's switches, and looks whether it has lost its core since the last time, but for blocking. */
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
#endif
}
#endif
