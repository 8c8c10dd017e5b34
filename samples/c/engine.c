/* An engine in shared memory, in plain C, without a library: 4 envs, by name, on Linux.
 *
 *   cc -std=c11 -O2 -o engine engine.c        (glibc before 2.34: -lrt at the end)
 *   ./engine arena                            then ue_rl.connect("shm://arena")
 *
 * The layout and the orders are docs/shared-memory.md; put your game in place of the point on a line.
 */
#define _GNU_SOURCE
#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/futex.h>
#include <math.h>
#include <signal.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

/* -- the header of the segment */
typedef struct {
    uint32_t magic;      /* 0x4C524243, written last */
    uint32_t version;    /* 1 */
    uint32_t server_pid; /* this process */
    uint32_t client_pid; /* the trainer takes it; 0 frees it */
    uint8_t mode, unused_17[3];
    uint32_t num_envs, obs_size, act_size; /* sizes in floats per env */
    uint64_t frame_seq, action_seq;
    uint64_t obs_offset, act_offset, rewards_offset, dones_offset, resets_offset; /* bytes from the segment's start */
    uint64_t cmd_s2c_offset, cmd_c2s_offset;
    uint32_t cmd_ring_size, unused_108;
    uint64_t image_offset;
    uint32_t image_width, image_height, image_channels;
    uint8_t gpu_available, gpu_obs_mode, gpu_obs_handle[64], unused_198[2];
    uint32_t gpu_device_id, unused_204;
    /* the extension */
    uint32_t ext_magic, ext_version; /* 0x58524555, 1 */
    uint64_t total_size;             /* bytes */
    uint8_t token[16], proof[16];    /* by name: unused */
    uint64_t server_start;
    uint32_t engine_flag, client_flag;
    uint64_t heartbeat;
    uint32_t server_state; /* 0 made, 1 serving, 2 closed */
    uint32_t client_state; /* 0 nobody, 1 attached, 2 leaving */
    uint64_t answered_seq;
    uint64_t ask_offset, answered_offset, seeds_offset, config_offset;
    uint32_t config_size, truncateds_at, image_order, image_role;
    uint64_t server_namespace;
    uint64_t masks_offset, present_offset;
    uint32_t mask_size, reason_pid;
    uint64_t client_since;
    char reason[1024];
    uint64_t first_offset, ahead_offset;
} Header;

#define AT(field, offset) static_assert(offsetof(Header, field) == offset, #field)
AT(magic, 0); AT(version, 4); AT(server_pid, 8); AT(client_pid, 12); AT(mode, 16); AT(num_envs, 20); AT(obs_size, 24);
AT(act_size, 28); AT(frame_seq, 32); AT(action_seq, 40); AT(obs_offset, 48); AT(act_offset, 56);
AT(rewards_offset, 64); AT(dones_offset, 72); AT(resets_offset, 80); AT(cmd_s2c_offset, 88); AT(cmd_c2s_offset, 96);
AT(cmd_ring_size, 104); AT(image_offset, 112); AT(image_width, 120); AT(image_height, 124); AT(image_channels, 128);
AT(gpu_available, 132); AT(gpu_obs_mode, 133); AT(gpu_obs_handle, 134); AT(gpu_device_id, 200); AT(ext_magic, 208);
AT(ext_version, 212); AT(total_size, 216); AT(token, 224); AT(proof, 240); AT(server_start, 256);
AT(engine_flag, 264); AT(client_flag, 268); AT(heartbeat, 272); AT(server_state, 280); AT(client_state, 284);
AT(answered_seq, 288); AT(ask_offset, 296); AT(answered_offset, 304); AT(seeds_offset, 312); AT(config_offset, 320);
AT(config_size, 328); AT(truncateds_at, 332); AT(image_order, 336); AT(image_role, 340); AT(server_namespace, 344);
AT(masks_offset, 352); AT(present_offset, 360); AT(mask_size, 368); AT(reason_pid, 372); AT(client_since, 376);
AT(reason, 384); AT(first_offset, 1408); AT(ahead_offset, 1416);
static_assert(sizeof(Header) == 1424, "the header's used part");

#define LOAD(word) __atomic_load_n(&(word), __ATOMIC_ACQUIRE)
#define STORE(word, value) __atomic_store_n(&(word), value, __ATOMIC_RELEASE)
#define COUNT(word) __atomic_add_fetch(&(word), 1, __ATOMIC_SEQ_CST)
#define FENCE() __atomic_thread_fence(__ATOMIC_SEQ_CST)

enum { ENVS = 4, OBS = 2, ACT = 1, MASK = 0 }; /* MASK: flags of one mask, where FEATURES has MASK */
static const char CONFIG[] = "CONFIG:OBS=2;ACT=1;ENV_TYPE=MULTI;ENV_COUNT=4;VERSION=1;FEATURES=SEED,TRUNC";

static char *base; /* the mapping; its first bytes are the header */
#define H ((Header *)base)
#define AS(type, offset) ((type *)(base + (offset)))

static volatile sig_atomic_t stopped;
static void stop(int number) { (void)number, stopped = 1; }

/* -- the game: a point on a line; obs = position and steps so far */
static float position[ENVS];
static int steps[ENVS];

static void answer_env(int env, int was_step)
{
    int over = was_step && fabsf(position[env]) >= 3, limit = was_step && !over && steps[env] >= 100;
    AS(float, H->obs_offset)[env * OBS] = position[env];
    AS(float, H->obs_offset)[env * OBS + 1] = (float)steps[env];
    AS(float, H->rewards_offset)[env] = -fabsf(position[env]);
    AS(uint8_t, H->dones_offset)[env] = over || limit;
    AS(uint8_t, H->dones_offset + H->truncateds_at)[env] = limit;
    if (MASK) memset(AS(uint8_t, H->masks_offset) + env * MASK, 1, MASK); /* every choice is legal */
    /* an engine with agents says for each of them: AS(uint8_t, H->present_offset)[row] = is_there; */
}

/* -- making the segment */
static uint64_t place(uint64_t *end, uint64_t size)
{
    uint64_t at = *end;
    *end = (at + size + 63) / 64 * 64;
    return at;
}

static int make(const char *name)
{
    Header h = {.version = 1, .ext_magic = 0x58524555, .ext_version = 1, .config_size = sizeof CONFIG - 1};
    uint64_t end = 4096;
    int fd;
    h.server_pid = (uint32_t)getpid();
    h.num_envs = ENVS, h.obs_size = OBS, h.act_size = ACT;
    h.obs_offset = place(&end, 4 * ENVS * OBS);
    h.act_offset = place(&end, 4 * ENVS * ACT);
    h.rewards_offset = place(&end, 4 * ENVS);
    h.dones_offset = place(&end, ENVS);
    h.truncateds_at = (uint32_t)(place(&end, ENVS) - h.dones_offset);
    h.resets_offset = place(&end, ENVS);
    h.ask_offset = place(&end, ENVS);
    h.answered_offset = place(&end, ENVS);
    h.seeds_offset = place(&end, 8 * ENVS);
    h.config_offset = place(&end, h.config_size);
    h.mask_size = MASK;
    if (MASK) h.masks_offset = place(&end, ENVS * MASK);
    h.total_size = (end + 4095) / 4096 * 4096;

    fd = shm_open(name, O_RDWR | O_CREAT | O_EXCL, 0600);
    if (fd < 0) return 0;
    /* not ftruncate: on a full /dev/shm the first write to a page would kill the game with SIGBUS */
    if (posix_fallocate(fd, 0, (off_t)h.total_size)) return 0;
    base = mmap(NULL, h.total_size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    close(fd);
    if (base == MAP_FAILED) return 0;
    memcpy(base, &h, sizeof h); /* magic and server_state are 0 still */
    memcpy(base + h.config_offset, CONFIG, h.config_size);
    STORE(H->magic, 0x4C524243u); /* who reads the magic finds all of the header */
    STORE(H->server_state, 1u);
    return 1;
}

/* -- waking and waiting */
static void wake_trainer(void)
{
    uint32_t sleeping = 1;
    FENCE();                           /* after the counter was written, before the flag is read */
    if (LOAD(H->client_flag) != 1) return;
    if (__atomic_compare_exchange_n(&H->client_flag, &sleeping, 0, 0, __ATOMIC_SEQ_CST, __ATOMIC_ACQUIRE))
        syscall(SYS_futex, &H->client_flag, FUTEX_WAKE, INT32_MAX, NULL, NULL, 0);
}

static void wait_for_request(uint64_t seen)
{
    struct timespec slice = {0, 20000000}; /* 20 ms: then look whether the trainer lives */
    int i;
    for (i = 0; i < 5000; i++)
        if (LOAD(H->action_seq) != seen) return;
    STORE(H->engine_flag, 1u);
    FENCE(); /* after the flag was written, before the counter is read again */
    if (LOAD(H->action_seq) == seen) syscall(SYS_futex, &H->engine_flag, FUTEX_WAIT, 1, &slice, NULL, 0);
    STORE(H->engine_flag, 0u);
}

/* -- sessions */
static int trainer_has_gone(void)
{
    uint32_t pid = LOAD(H->client_pid);
    return pid && (LOAD(H->client_state) == 2 || (kill((pid_t)pid, 0) < 0 && errno == ESRCH));
}

static void end_session(const char *why) /* NULL: the trainer has gone by itself */
{
    if (why) {
        STORE(H->reason_pid, 0u);
        snprintf(H->reason, sizeof H->reason, "%s", why);
        STORE(H->reason_pid, LOAD(H->client_pid));
    }
    STORE(H->client_since, 0u);
    STORE(H->client_state, 0u); /* anything of the old session that is still to be cleared comes before this */
    STORE(H->client_pid, 0u);   /* from here on another trainer may take the segment */
    wake_trainer();
}

/* -- one request; 0 where the trainer broke the rules */
static int answer(void)
{
    float actions[ENVS * ACT]; /* copied once: the trainer could change them while they are read */
    uint8_t ask[ENVS];
    int env;
    memcpy(actions, base + H->act_offset, sizeof actions);
    memcpy(ask, base + H->ask_offset, sizeof ask);
    for (env = 0; env < ENVS; env++)
        if (ask[env] > 2 || (ask[env] == 1 && !isfinite(actions[env]))) return 0;
    for (env = 0; env < ENVS; env++) {
        if (ask[env] == 0) continue; /* left alone */
        if (ask[env] == 2) {
            int64_t seed = AS(int64_t, H->seeds_offset)[env];
            position[env] = seed < 0 ? 0.0f : (float)(seed % 3) / 4, steps[env] = 0;
        } else {
            position[env] += actions[env], steps[env]++;
        }
        answer_env(env, ask[env] == 1);
    }
    return 1;
}

int main(int count, char **arguments)
{
    const char *name = count > 1 ? arguments[1] : "arena";
    char path[256];
    uint64_t seen = 0, now;
    struct sigaction end = {.sa_handler = stop};
    sigaction(SIGINT, &end, NULL);
    sigaction(SIGTERM, &end, NULL);
    snprintf(path, sizeof path, "/%s", name);
    if (!make(path)) {
        perror(path);
        return 1;
    }
    while (!stopped) {
        wait_for_request(seen);
        COUNT(H->heartbeat);
        now = LOAD(H->action_seq); /* acquire: actions, ask, resets and seeds are there */
        if (now == seen) {
            if (trainer_has_gone()) end_session(NULL);
            continue;
        }
        if (!LOAD(H->client_pid)) { /* of a trainer whose session was ended: ignore it */
            seen = now;
            continue;
        }
        if (now != seen + 1 || !answer()) { /* it asked twice, or asked for nonsense */
            seen = now;
            end_session("the trainer asked twice, or for what cannot be");
            continue;
        }
        seen = now;
        H->answered_seq = seen; /* the count below publishes it, too */
        COUNT(H->frame_seq);    /* release: all of the answer is there */
        wake_trainer();
    }
    STORE(H->server_state, 2u);
    wake_trainer();
    shm_unlink(path);
    return 0;
}
