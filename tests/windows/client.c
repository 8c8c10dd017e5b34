/* A trainer's rollout over shared memory by name or path, with the C code of the compiled module: client NAME STEPS.
 *
 * Standard output: obs, rewards, dones and truncated of each step, the reset's first. Every env is reset as soon as its
 * episode is over. The same actions and seeds everywhere, so the same bytes.
 */
#define _GNU_SOURCE 1
#include <stdio.h>
#include <stdlib.h>
#include "../../ue_rl/protocol/memory/_side.h"
#ifdef _WIN32
#include <io.h>
#endif
#include <fcntl.h>
#ifndef _WIN32
#include <sys/mman.h>
#include <sys/stat.h>
#endif

/* Of ue_rl/protocol/memory/header.py. */
enum {
    CLIENT_PID = 12, NUM_ENVS = 20, OBS_SIZE = 24, ACT_SIZE = 28, FRAME_SEQ = 32, ACTION_SEQ = 40, OBS = 48, ACT = 56,
    REWARDS = 64, DONES = 72, S2C = 88, ENGINE_FLAG = 264, CLIENT_FLAG = 268, SERVER_STATE = 280, CLIENT_STATE = 284,
    ANSWERED_SEQ = 288, ASK = 296, SEEDS = 312, TRUNCATEDS_AT = 332
};
enum { STEP = 1, RESET = 2, SERVING = 1, ATTACHED = 1, LEAVING = 2 };

static int64_t give_up;

static int fail(const char *why)
{
    fprintf(stderr, "client: %s\n", why);
    return 1;
}

static char *map(const char *name)
{
    char full[300];
#ifdef _WIN32
    HANDLE mapping, file;
    snprintf(full, sizeof full, "Local\\%s", name);
    if (strpbrk(name, "/\\")) {
        file = CreateFileA(name, GENERIC_READ | GENERIC_WRITE, FILE_SHARE_READ | FILE_SHARE_WRITE, NULL, OPEN_EXISTING, 0,
                           NULL);
        if (file == INVALID_HANDLE_VALUE) return NULL;
        mapping = CreateFileMappingA(file, NULL, PAGE_READWRITE, 0, 0, NULL); /* none of an empty file */
        CloseHandle(file);
    } else {
        mapping = OpenFileMappingA(FILE_MAP_ALL_ACCESS, FALSE, full);
    }
    return mapping ? MapViewOfFile(mapping, FILE_MAP_ALL_ACCESS, 0, 0, 0) : NULL;
#else
    struct stat info;
    void *mapped = MAP_FAILED;
    int file;
    snprintf(full, sizeof full, "/%s", name);
    file = shm_open(full, O_RDWR, 0600);
    if (file >= 0 && !fstat(file, &info) && info.st_size)
        mapped = mmap(NULL, (size_t)info.st_size, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    return mapped == MAP_FAILED ? NULL : mapped;
#endif
}

static uint32_t own_pid(void)
{
#ifdef _WIN32
    return GetCurrentProcessId();
#else
    return (uint32_t)getpid();
#endif
}

static uint32_t word(const char *base, int at)
{
    uint32_t value;
    memcpy(&value, base + at, 4);
    return value;
}

static char *region(char *base, int at)
{
    uint64_t offset;
    memcpy(&offset, base + at, 8);
    return base + offset;
}

/* SplitMix64; 24 bits of it as a float in [-1, 1). */
static float uniform(void)
{
    static uint64_t random = 7;
    uint64_t z = random += UINT64_C(0x9E3779B97F4A7C15);
    z = (z ^ (z >> 30)) * UINT64_C(0xBF58476D1CE4E5B9);
    z = (z ^ (z >> 27)) * UINT64_C(0x94D049BB133111EB);
    z ^= z >> 31;
    return (float)(z >> 40) * (1.0f / 8388608.0f) - 1.0f;
}

/* As Bell's ask and answer. */
static int ask(Side *side)
{
    if (!is_ours(side) || !is_as_expected(side)) return fail("the segment is not this client's");
    count_request(side);
    wake_peer(side);
    while (!has_answered(side, 0)) {
        side->waits++;
        if (!moved_at_once(side, side->expected - 1, 0)) {
            int sleeps = spin_or_block(side, side->expected - 1, 0, 20, 0);
            if (sleeps) look_at_cores(&side->cores, now_ns());
            side->sleeps += (unsigned)sleeps;
        }
        if (now_ns() > give_up) return fail("no answer");
    }
    return 0;
}

static int play(char *base, Side *side, long steps)
{
    const ptrdiff_t envs = word(base, NUM_ENVS), size = word(base, OBS_SIZE), act = word(base, ACT_SIZE);
    uint8_t *dones = (uint8_t *)region(base, DONES), *asked = (uint8_t *)region(base, ASK);
    int64_t *seeds = (int64_t *)region(base, SEEDS);
    Step given = {(uint32_t *)region(base, OBS), (uint32_t *)region(base, REWARDS), dones,
                  dones + word(base, TRUNCATEDS_AT), envs * size, envs};
    Step taken = given;
    float *actions = malloc((size_t)(envs * act) * 4);
    ptrdiff_t bad, i;
    long step;
    taken.obs = malloc((size_t)(envs * size) * 4), taken.rewards = malloc((size_t)envs * 4);
    taken.dones = calloc(1, (size_t)envs), taken.limits = malloc((size_t)envs);
    if (!actions || !taken.obs || !taken.rewards || !taken.dones || !taken.limits) return fail("no memory");
    for (step = 0; step <= steps; step++) {
        for (i = 0; i < envs * act; i++) actions[i] = uniform();
        for (i = 0; i < envs; i++) {
            asked[i] = step && !taken.dones[i] ? STEP : RESET;
            seeds[i] = step ? -1 : 100 + i;
        }
        if (first_bad((uint32_t *)actions, (uint32_t *)region(base, ACT), envs * act, FROM_HERE) >= 0)
            return fail("an action");
        if (ask(side)) return 1;
        if (bad_step(&given, &taken, &bad)) return fail("an answer that is no step");
        fwrite(taken.obs, 4, (size_t)(envs * size), stdout);
        fwrite(taken.rewards, 4, (size_t)envs, stdout);
        fwrite(taken.dones, 1, (size_t)envs, stdout);
        fwrite(taken.limits, 1, (size_t)envs, stdout);
    }
    free(actions), free(taken.obs), free(taken.rewards), free(taken.dones), free(taken.limits);
    return 0;
}

int main(int count, char **words)
{
    char *base = NULL;
    Side side = {0};
    int failed;
    if (count != 3) return fail("NAME STEPS");
#ifdef _WIN32
    _setmode(_fileno(stdout), _O_BINARY);
#endif
    give_up = now_ns() + INT64_C(100000000000);
    while (!(base = map(words[1])) || load32(base + SERVER_STATE) != SERVING) {
        if (now_ns() > give_up) return fail("no such segment");
        sleep_ns(10000000);
    }
    if (!swap32(base + CLIENT_PID, 0, own_pid())) return fail("the segment is taken");
    store32(base + CLIENT_STATE, ATTACHED);
    side.own_seq = base + ACTION_SEQ, side.peer_seq = base + FRAME_SEQ;
    side.own_flag = base + CLIENT_FLAG, side.peer_flag = base + ENGINE_FLAG;
    side.peer_ring = region(base, S2C) == base ? NULL : region(base, S2C);
    side.answered = base + ANSWERED_SEQ;
    side.holder = base + CLIENT_PID, side.holder_is = own_pid();
    begin_side(&side, 1, 50000);
    side.expected = load64(side.peer_seq);
    failed = play(base, &side, atol(words[2]));
    store32(base + CLIENT_STATE, LEAVING);
    fprintf(stderr, "waits %llu, of which %llu blocked\n", side.waits, side.sleeps);
    return failed;
}
