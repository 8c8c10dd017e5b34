/* An engine that costs as little as possible, so that what is measured is the client.
 *
 *   engine [--envs N] [--obs N] [--act N] [--port P]     speaks docs/protocol.md, both wirings
 *   engine --bare REQUEST REPLY [--port P]               no protocol: per connection, reads REQUEST bytes, writes
 *                                                        REPLY bytes, and again
 *
 * Prints "PORT <n>" and serves clients one after the other until its standard input closes.
 *
 * Nothing is simulated: the state rows are prepared once, and a request costs one pass over its bytes. A line that asks
 * all envs (as many rows as there are envs) is answered with one prepared line; a line that asks for some is answered
 * for the ENVs that it names. Rows asked are always counted, so a client that asks for too little or too much gets
 * stuck or a wrong count. Requests are not checked. The wiring is the client's choice: a line on the first connection
 * is the shared channel, a second connection means per-env sockets.
 *
 * Build: cc -O3 -march=native -o engine engine.c     (POSIX: Linux, macOS, BSD)
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#ifndef MSG_NOSIGNAL
#define MSG_NOSIGNAL 0 /* SIGPIPE is ignored anyway */
#endif
#define BUFFER (1 << 22)
#define SPIN_NS 200000

struct peer {
    int fd;
    int env; /* -1: the first connection */
    size_t held; /* bytes of an unfinished line, kept in `store` */
    char *store;
};

static int envs = 1, obs = 8, act = 2;
static size_t bare_request, bare_reply;
static char **rows; /* each without newline */
static size_t *row_len;
static char *all; /* the whole batch, with newline */
static size_t all_len;
static char *out;
static struct peer *peers;
static struct pollfd *polls;
static int peer_count;

static _Noreturn void die(const char *what)
{
    perror(what);
    exit(1);
}

static void *need(size_t size)
{
    void *memory = malloc(size);
    if (!memory) die("malloc");
    return memory;
}

static void prepare_rows(void)
{
    size_t one = 64 + 24 * (size_t)obs;
    rows = need(sizeof *rows * envs);
    row_len = need(sizeof *row_len * envs);
    all = need(one * envs + 2);
    out = need(one * envs + 2);
    for (int i = 0; i < envs; i++) {
        char *p = rows[i] = need(one);
        p += sprintf(p, "OBS=");
        for (int k = 0; k < obs; k++)
            p += sprintf(p, "%s%.6g", k ? "," : "", ((i * 37 + k * 101) % 1999 - 999) / 1013.0);
        p += sprintf(p, ";REW=%.2g;DONE=0;ENV=%d", (i % 7) / 8.0, i);
        row_len[i] = (size_t)(p - rows[i]);
        if (i) {
            memcpy(all + all_len, "||", 2);
            all_len += 2;
        }
        memcpy(all + all_len, rows[i], row_len[i]);
        all_len += row_len[i];
    }
    all[all_len++] = '\n';
}

static int write_all(int fd, const char *data, size_t left)
{
    while (left) {
        ssize_t n = send(fd, data, left, MSG_NOSIGNAL);
        if (n < 0) {
            if (errno == EINTR) continue;
            return -1;
        }
        data += n;
        left -= (size_t)n;
    }
    return 0;
}

static size_t count_bars(const char *data, size_t size)
{
    size_t bars = 0;
    for (size_t i = 0; i < size; i++) bars += data[i] == '|';
    return bars;
}

/* One line of the shared channel. */
static int answer_batch(int fd, const char *line, size_t size)
{
    if (count_bars(line, size) / 2 + 1 == (size_t)envs) return write_all(fd, all, all_len);
    char *p = out;
    const char *at = line, *end = line + size;
    while ((at = memmem(at, (size_t)(end - at), "ENV=", 4))) {
        int env = 0;
        for (at += 4; at < end && *at >= '0' && *at <= '9' && env < envs; at++) env = env * 10 + (*at - '0');
        if (env >= envs || p + row_len[env] + 3 > out + all_len + 1) return -1;
        if (p != out) {
            memcpy(p, "||", 2);
            p += 2;
        }
        memcpy(p, rows[env], row_len[env]);
        p += row_len[env];
    }
    *p++ = '\n';
    return write_all(fd, out, (size_t)(p - out));
}

/* Reads once and answers every whole line. Returns 1 if something came, 0 if not, -1 where the client has gone or what
 * it sent cannot be read. */
static int serve(struct peer *peer, char *buffer)
{
    ssize_t got = recv(peer->fd, buffer + peer->held, BUFFER - peer->held, MSG_DONTWAIT);
    if (got <= 0) return got < 0 && (errno == EINTR || errno == EAGAIN || errno == EWOULDBLOCK) ? 0 : -1;
    if (peer->held) memcpy(buffer, peer->store, peer->held);
    char *line = buffer, *end = buffer + peer->held + got, *newline;
    if (bare_request) {
        for (; (size_t)(end - line) >= bare_request; line += bare_request)
            if (write_all(peer->fd, out, bare_reply)) return -1;
    } else {
        for (; (newline = memchr(line, '\n', (size_t)(end - line))); line = newline + 1) {
            int env = peer->env;
            if (env < 0 ? answer_batch(peer->fd, line, (size_t)(newline - line))
                        : write_all(peer->fd, rows[env], row_len[env] + 1))
                return -1;
        }
    }
    peer->held = (size_t)(end - line);
    if (peer->held == BUFFER) return -1;
    if (peer->held) {
        if (!peer->store) peer->store = need(BUFFER);
        memcpy(peer->store, line, peer->held);
    }
    return 1;
}

static void drop_all(void)
{
    for (int i = 0; i < peer_count; i++) {
        close(peers[i].fd);
        free(peers[i].store);
    }
    peer_count = 0;
}

static int welcome(int listener)
{
    int fd = accept(listener, NULL, NULL), on = 1;
    if (fd < 0) return -1;
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    if (!bare_request && peer_count > envs) {
        close(fd);
        return 0;
    }
    peers[peer_count] = (struct peer){.fd = fd, .env = peer_count - 1, .store = NULL};
    polls[2 + peer_count] = (struct pollfd){.fd = fd, .events = POLLIN};
    peer_count++;
    if (!bare_request && peer_count == 1) {
        char text[160];
        int n = snprintf(text, sizeof text, "CONFIG:OBS=%d;ACT=%d;ENV_TYPE=MULTI;ENV_COUNT=%d;VERSION=1;CHANNEL=ANY\n",
                         obs, act, envs);
        return write_all(fd, text, (size_t)n);
    }
    return 0;
}

static long long now_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec * 1000000000LL + t.tv_nsec;
}

int main(int argc, char **argv)
{
    int port = 0, on = 1, room;
    for (int i = 1; i < argc; i++) {
        if (!strcmp(argv[i], "--envs") && i + 1 < argc) envs = atoi(argv[++i]);
        else if (!strcmp(argv[i], "--obs") && i + 1 < argc) obs = atoi(argv[++i]);
        else if (!strcmp(argv[i], "--act") && i + 1 < argc) act = atoi(argv[++i]);
        else if (!strcmp(argv[i], "--port") && i + 1 < argc) port = atoi(argv[++i]);
        else if (!strcmp(argv[i], "--bare") && i + 2 < argc) {
            bare_request = (size_t)atol(argv[++i]);
            bare_reply = (size_t)atol(argv[++i]);
        } else {
            fprintf(stderr,
                    "usage: engine [--envs N] [--obs N] [--act N] [--port P] | --bare REQUEST REPLY [--port P]\n");
            return 2;
        }
    }
    if (envs < 1 || obs < 1 || act < 1 || bare_request > BUFFER) return 2;
    signal(SIGPIPE, SIG_IGN);
    if (bare_request) {
        out = need(bare_reply + 1);
        memset(out, 'x', bare_reply);
        envs = 4096;
    } else {
        prepare_rows();
        for (int i = 0; i < envs; i++) rows[i][row_len[i]] = '\n'; /* for per-env sockets */
    }
    room = envs + 1;
    peers = need(sizeof *peers * (size_t)room);
    polls = need(sizeof *polls * (size_t)(room + 2));
    char *buffer = need(BUFFER + 1);

    int listener = socket(AF_INET, SOCK_STREAM, 0);
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons((unsigned short)port)};
    socklen_t length = sizeof address;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    setsockopt(listener, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
    if (listener < 0 || bind(listener, (struct sockaddr *)&address, length) || listen(listener, room) ||
        getsockname(listener, (struct sockaddr *)&address, &length))
        die("listen");
    printf("PORT %d\n", ntohs(address.sin_port));
    fflush(stdout);

    polls[0] = (struct pollfd){.fd = STDIN_FILENO, .events = POLLIN};
    polls[1] = (struct pollfd){.fd = listener, .events = POLLIN};
    /* Looks at every client for SPIN_NS before it sleeps: waking a sleeping process would be charged to the client. */
    int knock = 0; /* someone waits at the listener */
    for (long long idle_since = now_ns();;) {
        int busy = 0;
        for (int i = 0, before = peer_count; i < before; i++) {
            int answered = serve(&peers[i], buffer);
            if (answered < 0) {
                drop_all(); /* one client at a time: with one socket the whole session ends */
                break;
            }
            busy |= answered;
        }
        /* Only now, after another look at the clients: a client that left before this one came has been noticed. */
        if (knock && peer_count < room) welcome(listener);
        if (busy || knock) {
            idle_since = now_ns();
            knock = 0;
            continue;
        }
        int sleep = now_ns() - idle_since > SPIN_NS;
        if (poll(polls, (nfds_t)(sleep ? 2 + peer_count : 2), sleep ? -1 : 0) < 0 && errno != EINTR) die("poll");
        if (polls[0].revents) return 0; /* whoever started it has gone */
        knock = polls[1].revents && peer_count < room;
        if (sleep) idle_since = now_ns();
    }
}
