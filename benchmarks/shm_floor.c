/* What two processes cannot do without: the floors that benchmarks/bench_shm.py compares with.
 *
 *   spin ROUNDS            ping-pong over two counters in shared memory, both sides spinning all the time
 *   echo ROUNDS BYTES      ping-pong of so many bytes over a TCP socket on loopback, both sides blocking
 *   copy ROUNDS UP DOWN    spin, with a memcpy of UP bytes by the one side and of DOWN bytes by the other
 *
 * Prints the median of a round in nanoseconds.
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static uint64_t *seq; /* [0] and, a cache line further, [16] */
static size_t up, down;

static int64_t now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

static int order(const void *a, const void *b)
{
    int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
    return (x > y) - (x < y);
}

static void spin_until(uint64_t *word, uint64_t until)
{
    while (__atomic_load_n(word, __ATOMIC_ACQUIRE) < until) {
#if defined(__x86_64__)
        __builtin_ia32_pause();
#endif
    }
}

static void *shared(size_t size)
{
    void *memory = mmap(NULL, size ? size : 1, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED) exit(2);
    return memory;
}

static void all(int fd, char *data, size_t size, int writing)
{
    while (size) {
        ssize_t n = writing ? write(fd, data, size) : read(fd, data, size);
        if (n <= 0) exit(0);
        data += n;
        size -= (size_t)n;
    }
}

static int connected(int *other)
{
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t length = sizeof address;
    int one = 1, listener = socket(AF_INET, SOCK_STREAM, 0), client = socket(AF_INET, SOCK_STREAM, 0);
    if (bind(listener, (struct sockaddr *)&address, sizeof address) || listen(listener, 1)) exit(2);
    getsockname(listener, (struct sockaddr *)&address, &length);
    if (connect(client, (struct sockaddr *)&address, sizeof address)) exit(2);
    *other = accept(listener, NULL, NULL);
    setsockopt(client, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
    setsockopt(*other, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
    close(listener);
    return client;
}

int main(int argc, char **argv)
{
    if (argc < 3) return 2;
    long rounds = atol(argv[2]);
    int echo = !strcmp(argv[1], "echo"), there = -1, here = -1;
    size_t bytes = argc > 3 ? (size_t)atol(argv[3]) : 1;
    if (!strcmp(argv[1], "copy")) up = (size_t)atol(argv[3]), down = (size_t)atol(argv[4]);
    seq = shared(4096);
    char *to = shared(up), *back = shared(down), *mine = malloc(up + 1), *theirs = malloc(down + 1);
    memset(mine, 1, up + 1);
    memset(theirs, 1, down + 1);
    char *line = calloc(1, bytes);
    if (echo) here = connected(&there);
    pid_t child = fork();
    if (child == 0) {
        if (echo) {
            close(here);
            for (;;) all(there, line, bytes, 0), all(there, line, bytes, 1);
        }
        for (uint64_t i = 1; i <= (uint64_t)rounds; i++) {
            spin_until(&seq[0], i);
            if (down) memcpy(back, theirs, down);
            __atomic_store_n(&seq[16], i, __ATOMIC_RELEASE);
        }
        _exit(0);
    }
    if (echo) close(there);
    int64_t *took = calloc((size_t)rounds, sizeof *took);
    for (uint64_t i = 1; i <= (uint64_t)rounds; i++) {
        int64_t begun = now();
        if (echo) {
            all(here, line, bytes, 1), all(here, line, bytes, 0);
        } else {
            if (up) memcpy(to, mine, up);
            __atomic_store_n(&seq[0], i, __ATOMIC_RELEASE);
            spin_until(&seq[16], i);
        }
        took[i - 1] = now() - begun;
    }
    if (echo) kill(child, SIGTERM);
    waitpid(child, NULL, 0);
    qsort(took, (size_t)rounds, sizeof *took, order);
    printf("%lld\n", (long long)took[rounds / 2]);
    return 0;
}
