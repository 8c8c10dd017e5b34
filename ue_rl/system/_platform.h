/* What the platforms call differently: atomics on words of shared memory, the clock, yielding and sleeping. */
#ifndef UE_RL_PLATFORM_H
#define UE_RL_PLATFORM_H
#include <stdint.h>

#ifdef _WIN32
#include <windows.h>
#ifndef CREATE_WAITABLE_TIMER_HIGH_RESOLUTION
#define CREATE_WAITABLE_TIMER_HIGH_RESOLUTION 2
#endif
#else
#include <errno.h>
#include <sched.h>
#include <sys/socket.h>
#include <time.h>
#ifndef MSG_NOSIGNAL
#define MSG_NOSIGNAL 0 /* macOS: Python ignores SIGPIPE anyway */
#endif
#ifdef __linux__
#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>
#define HAS_FUTEX 1
#endif
#endif
#ifndef HAS_FUTEX
#define HAS_FUTEX 0
#endif

/* -- atomics: one set of names for GCC, Clang and MSVC */
#if defined(_MSC_VER) && !defined(__clang__)
#include <intrin.h>
static inline uint32_t load32(volatile void *p) { return (uint32_t)_InterlockedOr((volatile long *)p, 0); }
static inline uint64_t load64(volatile void *p) { return (uint64_t)InterlockedOr64((volatile LONG64 *)p, 0); }
static inline void store32(volatile void *p, uint32_t v) { _InterlockedExchange((volatile long *)p, (long)v); }
static inline void store64(volatile void *p, uint64_t v) { InterlockedExchange64((volatile LONG64 *)p, (LONG64)v); }
static inline uint64_t increment64(volatile void *p) { return (uint64_t)InterlockedIncrement64((volatile LONG64 *)p); }
static inline int swap32(volatile void *p, uint32_t from, uint32_t to)
{
    return _InterlockedCompareExchange((volatile long *)p, (long)to, (long)from) == (long)from;
}
static inline void full_fence(void) { MemoryBarrier(); }
#else
static inline uint32_t load32(volatile void *p) { return __atomic_load_n((volatile uint32_t *)p, __ATOMIC_ACQUIRE); }
static inline uint64_t load64(volatile void *p) { return __atomic_load_n((volatile uint64_t *)p, __ATOMIC_ACQUIRE); }
static inline void store32(volatile void *p, uint32_t v)
{
    __atomic_store_n((volatile uint32_t *)p, v, __ATOMIC_RELEASE);
}
static inline void store64(volatile void *p, uint64_t v)
{
    __atomic_store_n((volatile uint64_t *)p, v, __ATOMIC_RELEASE);
}
/* By one only: GCC 12.2 was seen to return twice the old value for a variable summand. */
static inline uint64_t increment64(volatile void *p)
{
    return __atomic_add_fetch((volatile uint64_t *)p, 1, __ATOMIC_SEQ_CST);
}
static inline int swap32(volatile void *p, uint32_t from, uint32_t to)
{
    return __atomic_compare_exchange_n((volatile uint32_t *)p, &from, to, 0, __ATOMIC_SEQ_CST, __ATOMIC_ACQUIRE);
}
static inline void full_fence(void) { __atomic_thread_fence(__ATOMIC_SEQ_CST); }
#endif

static inline void relax(void)
{
#if defined(_MSC_VER) && !defined(__clang__)
    YieldProcessor();
#elif defined(__x86_64__) || defined(__i386__)
    __builtin_ia32_pause();
#elif defined(__aarch64__) || defined(__arm__)
    __asm__ __volatile__("yield");
#endif
}

static inline int64_t now_ns(void)
{
#ifdef _WIN32
    LARGE_INTEGER count, rate;
    QueryPerformanceCounter(&count);
    QueryPerformanceFrequency(&rate);
    return (int64_t)((double)count.QuadPart * 1e9 / (double)rate.QuadPart);
#else
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
#endif
}

static inline void yield_core(void)
{
#ifdef _WIN32
    SwitchToThread();
#else
    sched_yield();
#endif
}

static inline void sleep_ns(int64_t ns)
{
#ifdef _WIN32
    /* Sleep(1) may take 15.6 ms; a timer of high resolution, which Windows 10 has since 1803, takes less than one. */
    HANDLE timer = CreateWaitableTimerExW(NULL, NULL, CREATE_WAITABLE_TIMER_HIGH_RESOLUTION, TIMER_ALL_ACCESS);
    LARGE_INTEGER due; /* in units of 100 ns; negative: from now */
    due.QuadPart = ns < 100 ? -1 : -(ns / 100);
    if (timer && SetWaitableTimer(timer, &due, 0, NULL, NULL, FALSE))
        WaitForSingleObject(timer, INFINITE);
    else
        Sleep((DWORD)(ns < 1000000 ? 1 : ns / 1000000));
    if (timer) CloseHandle(timer);
#else
    struct timespec t = {ns / 1000000000, ns % 1000000000};
    nanosleep(&t, NULL);
#endif
}

#endif
