/* Sends prepared HTTP requests over persistent connections and prints how they were answered, as one line of JSON.

   load FILE PORT CONNECTIONS SECONDS COUNT RATE

   FILE holds requests, each after its length (32 bits, little-endian); after the last comes the first again. The value
   of X-GitHub-Delivery, 36 characters where there is one, is replaced by a new one each time. Connections go to
   127.0.0.1. With RATE 0 each is always waiting for an answer; otherwise so many requests a second are due, spread
   evenly, and an answer's time counts from when its request was due: what waits behind a slow answer is slow itself.
   It ends after SECONDS, or after COUNT requests (0: any number), and waits at most GRACE seconds for the last answers. */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/tcp.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/timerfd.h>
#include <time.h>
#include <unistd.h>

enum { EVENTS = 256, HEAD = 16384, GUID = 36, STATUSES = 600 };
static const double GRACE = 10.0;

struct connection {
    int socket, waiting;          /* waiting: for an answer */
    char *request;                /* a copy, with its own delivery id */
    size_t length, sent;
    double due;                   /* when it was, or will be, time to send */
    char head[HEAD];              /* of the answer, until its end was seen */
    size_t held, left;            /* bytes of the head; bytes of the body still to come */
    int status;                   /* 0 until the head is complete */
};

static struct connection *connections;
static const char **requests;
static uint32_t *lengths;
static size_t number_of_requests, longest, started, answered, room;
static float *times;              /* milliseconds */
static long statuses[STATUSES], errors;
static int number_of_connections, open_connections, poller, timer;
static double ends, interval, last;
static size_t most;
static char prefix[13];

static void fail(const char *what) {
    fprintf(stderr, "load: %s: %s\n", what, strerror(errno));
    exit(1);
}

static double now(void) {
    struct timespec at;
    clock_gettime(CLOCK_MONOTONIC, &at);
    return (double)at.tv_sec + (double)at.tv_nsec / 1e9;
}

static void read_requests(const char *path) {
    struct stat found;
    int file = open(path, O_RDONLY);
    if (file < 0 || fstat(file, &found) < 0) fail(path);
    size_t size = (size_t)found.st_size, at = 0, space = 0;
    const char *data = mmap(NULL, size, PROT_READ, MAP_PRIVATE | MAP_POPULATE, file, 0);
    if (data == MAP_FAILED) fail(path);
    while (at + 4 <= size) {
        uint32_t length;
        memcpy(&length, data + at, 4);
        if (length > size - at - 4) break;
        if (number_of_requests == space) {
            space = space ? 2 * space : 64;
            requests = realloc(requests, space * sizeof *requests);
            lengths = realloc(lengths, space * sizeof *lengths);
            if (!requests || !lengths) fail("memory");
        }
        requests[number_of_requests] = data + at + 4;
        lengths[number_of_requests++] = length;
        if (length > longest) longest = length;
        at += 4 + length;
    }
    if (!number_of_requests || at != size) {
        fprintf(stderr, "load: %s is not a file of requests\n", path);
        exit(1);
    }
}

static void end_connection(struct connection *one) {
    close(one->socket);           /* which takes it out of the poller */
    one->socket = -1;
    open_connections--;
}

static void watch(struct connection *one, uint32_t events) {
    struct epoll_event event = {.events = events, .data.ptr = one};
    if (epoll_ctl(poller, EPOLL_CTL_MOD, one->socket, &event) < 0) fail("epoll_ctl");
}

static void write_on(struct connection *one) {
    while (one->sent < one->length) {
        ssize_t done = send(one->socket, one->request + one->sent, one->length - one->sent, MSG_NOSIGNAL);
        if (done < 0 && errno == EAGAIN) {
            watch(one, EPOLLIN | EPOLLOUT);
            return;
        }
        if (done < 0) {
            errors++;
            end_connection(one);
            return;
        }
        one->sent += (size_t)done;
    }
}

static void begin(struct connection *one) {
    if (now() >= ends || (most && started >= most)) {
        end_connection(one);
        return;
    }
    size_t which = started % number_of_requests;
    char *guid;
    one->length = lengths[which];
    memcpy(one->request, requests[which], one->length);
    size_t looked = one->length < 4096 ? one->length : 4096;
    if ((guid = memmem(one->request, looked, "X-GitHub-Delivery: ", 19)) && guid + 19 + GUID <= one->request + looked) {
        char fresh[GUID + 1];
        snprintf(fresh, sizeof fresh, "%.8s-%.4s-4000-8000-%012zx", prefix, prefix + 8, started & 0xffffffffffff);
        memcpy(guid + 19, fresh, GUID);
    }
    started++;
    one->sent = one->held = one->left = 0;
    one->status = 0;
    one->waiting = 1;
    write_on(one);
}

static void set_timer(void) {     /* for the first connection whose time has not come, or for the end of the wait */
    double first = ends + GRACE;
    for (int at = 0; interval > 0 && at < number_of_connections; at++) {
        double due = connections[at].due < ends ? connections[at].due : ends;
        if (connections[at].socket >= 0 && !connections[at].waiting && due < first) first = due;
    }
    struct itimerspec when = {.it_value = {(time_t)first, (long)((first - (double)(time_t)first) * 1e9) + 1}};
    if (timerfd_settime(timer, TFD_TIMER_ABSTIME, &when, NULL) < 0) fail("timerfd_settime");
}

static void take(struct connection *one) {
    double at = now();
    if (answered == room) {
        room = room ? 2 * room : 65536;
        if (!(times = realloc(times, room * sizeof *times))) fail("memory");
    }
    times[answered++] = (float)((at - one->due) * 1000);
    statuses[one->status]++;
    last = at;
    one->waiting = 0;
    if (interval > 0) {
        one->due += interval;
        if (one->due > at) return;
    } else {
        one->due = at;
    }
    begin(one);
}

static int read_head(struct connection *one) {
    char *end = memmem(one->head, one->held, "\r\n\r\n", 4);
    if (!end) return one->held == HEAD ? -1 : 0;
    size_t length = (size_t)(end + 4 - one->head);
    *end = 0;
    char *field = strcasestr(one->head, "\r\ncontent-length:");
    one->status = one->held > 12 ? atoi(one->head + 9) : 0;
    if (one->status < 100 || one->status >= STATUSES) return -1;
    size_t body = field ? strtoul(field + 17, NULL, 10) : 0, here = one->held - length;
    if (here > body) return -1;   /* an answer that nobody asked for */
    one->left = body - here;
    return 1;
}

static void read_on(struct connection *one) {
    static char rest[65536];
    for (;;) {
        int in_head = !one->status;
        char *to = in_head ? one->head + one->held : rest;
        ssize_t got = recv(one->socket, to, in_head ? HEAD - one->held : sizeof rest, 0);
        if (got < 0 && errno == EAGAIN) return;
        if (got <= 0 || (!in_head && (size_t)got > one->left)) {
            errors++;
            end_connection(one);
            return;
        }
        if (in_head) {
            one->held += (size_t)got;
            int found = read_head(one);
            if (found < 0) {
                errors++;
                end_connection(one);
                return;
            }
            if (!found) continue;
        } else {
            one->left -= (size_t)got;
        }
        if (!one->left) {
            take(one);
            return;
        }
    }
}

static void connect_all(int port) {
    struct sockaddr_in server = {.sin_family = AF_INET, .sin_port = htons((uint16_t)port)};
    inet_pton(AF_INET, "127.0.0.1", &server.sin_addr);
    connections = calloc((size_t)number_of_connections, sizeof *connections);
    if (!connections) fail("memory");
    for (int at = 0; at < number_of_connections; at++) {
        struct connection *one = &connections[at];
        int yes = 1;
        one->socket = socket(AF_INET, SOCK_STREAM, 0);
        if (one->socket < 0 || connect(one->socket, (struct sockaddr *)&server, sizeof server) < 0) fail("connect");
        setsockopt(one->socket, IPPROTO_TCP, TCP_NODELAY, &yes, sizeof yes);
        fcntl(one->socket, F_SETFL, O_NONBLOCK);
        if (!(one->request = malloc(longest))) fail("memory");
        struct epoll_event event = {.events = EPOLLIN, .data.ptr = one};
        if (epoll_ctl(poller, EPOLL_CTL_ADD, one->socket, &event) < 0) fail("epoll_ctl");
        open_connections++;
    }
}

static int by_size(const void *a, const void *b) {
    float x = *(const float *)a, y = *(const float *)b;
    return (x > y) - (x < y);
}

static double share(double part) { return answered ? times[(size_t)((double)(answered - 1) * part)] : 0; }

static void print(double began) {
    struct rusage used;
    getrusage(RUSAGE_SELF, &used);
    double cpu = (double)(used.ru_utime.tv_sec + used.ru_stime.tv_sec)
               + (double)(used.ru_utime.tv_usec + used.ru_stime.tv_usec) / 1e6;
    double took = last > began ? last - began : 1e-9;
    qsort(times, answered, sizeof *times, by_size);
    printf("{\"generator\": \"load.c\", \"answers\": %zu, \"per_second\": %.1f, \"statuses\": {", answered, (double)answered / took);
    const char *comma = "";
    for (int status = 0; status < STATUSES; status++)
        if (statuses[status]) {
            printf("%s\"%d\": %ld", comma, status, statuses[status]);
            comma = ", ";
        }
    printf("}, \"errors\": %ld, \"p50_ms\": %.2f, \"p90_ms\": %.2f, \"p95_ms\": %.2f, \"p99_ms\": %.2f, \"max_ms\": %.2f, "
           "\"generator_cpu_share\": %.3f}\n",
           errors, share(0.5), share(0.9), share(0.95), share(0.99), share(1), cpu / took);
}

int main(int count, char **words) {
    if (count != 7) {
        fprintf(stderr, "usage: load FILE PORT CONNECTIONS SECONDS COUNT RATE\n");
        return 2;
    }
    read_requests(words[1]);
    number_of_connections = atoi(words[3]);
    most = strtoul(words[5], NULL, 10);
    double rate = atof(words[6]);
    interval = rate > 0 ? number_of_connections / rate : 0;
    poller = epoll_create1(0);
    timer = timerfd_create(CLOCK_MONOTONIC, TFD_NONBLOCK);
    struct epoll_event tick = {.events = EPOLLIN, .data.ptr = NULL}, events[EVENTS];
    if (poller < 0 || timer < 0 || epoll_ctl(poller, EPOLL_CTL_ADD, timer, &tick) < 0) fail("epoll");
    connect_all(atoi(words[2]));
    double began = now();
    snprintf(prefix, sizeof prefix, "%06x%06x", (unsigned)(began * 1e6) & 0xffffff, (unsigned)getpid() & 0xffffff);
    ends = began + atof(words[4]);
    for (int at = 0; at < number_of_connections; at++) {
        connections[at].due = began + interval * at / number_of_connections; /* paced, they take turns */
        if (interval == 0) begin(&connections[at]);
    }
    set_timer();
    while (open_connections) {
        int ready = epoll_wait(poller, events, EVENTS, -1);
        for (int at = 0; at < ready; at++) {
            struct connection *one = events[at].data.ptr;
            if (!one || one->socket < 0) continue;
            if (one->waiting && one->sent < one->length && events[at].events & EPOLLOUT) {
                write_on(one);
                if (one->socket >= 0 && one->sent == one->length) watch(one, EPOLLIN);
            }
            if (one->socket >= 0 && events[at].events & ~(uint32_t)EPOLLOUT) read_on(one);
        }
        double at = now();
        if (interval == 0 && at < ends + GRACE) continue;
        for (int which = 0; which < number_of_connections; which++) {
            struct connection *one = &connections[which];
            if (one->socket < 0) continue;
            if (at >= ends + GRACE) {
                errors++;
                end_connection(one);
            } else if (!one->waiting && (one->due <= at || at >= ends)) {
                begin(one);
            }
        }
        set_timer();
    }
    print(began);
    return 0;
}
