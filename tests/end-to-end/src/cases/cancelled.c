// Threads that are cancelled while they wait for sockets, or just before, or that a signal handler ends: each ends there, and its
// cleanup is run; the others go on. (pthreads(7) has the calls.) So does the process when its first thread ends, until all have.
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <semaphore.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/select.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

static struct sockaddr_in peer = {.sin_family = AF_INET};
static int listener, connection, datagrams, set;
static sem_t begun;
static int cleaned;
static volatile int number;

static void check(int good, const char *what) {
    if (!good) {
        printf("%s: %s\n", what, strerror(errno));
        fflush(stdout);
        _exit(1);
    }
}

static void clean(void *nothing) { cleaned++; }

static void wait_for(int what) {
    static char bytes[1 << 16];
    struct pollfd entry = {listener, POLLIN, 0};
    struct epoll_event event;
    fd_set readable;
    FD_ZERO(&readable);
    FD_SET(listener, &readable);
    switch (what) {
    case 0: accept(listener, NULL, NULL); break;
    case 1: recv(connection, bytes, 1, 0); break;
    case 2: read(connection, bytes, 1); break;
    case 3: recvfrom(datagrams, bytes, 1, 0, NULL, NULL); break;
    case 4: poll(&entry, 1, -1); break;
    case 5: select(listener + 1, &readable, NULL, NULL, NULL); break;
    case 6: epoll_wait(set, &event, 1, -1); break;
    case 7: for (;;) sendto(datagrams, bytes, 1, 0, (void *)&peer, sizeof peer);
    }
}
#define KINDS 8

static void *run(void *what) {
    pthread_cleanup_push(clean, NULL);
    number = gettid();
    sem_post(&begun);
    wait_for((int)(long)what);
    pthread_cleanup_pop(0);
    return NULL;
}

// Is cancelled before it calls.
static void *run_late(void *what) {
    int before;
    pthread_cleanup_push(clean, NULL);
    pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &before);
    sem_wait(&begun);
    pthread_setcancelstate(before, NULL);
    wait_for((int)(long)what);
    pthread_cleanup_pop(0);
    return NULL;
}

// Forbids it, and isn't disturbed; then it allows it, and ends.
static void *run_forbidding(void *unused) {
    struct pollfd entry = {listener, POLLIN, 0};
    int before;
    pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &before);
    sem_post(&begun);
    check(!poll(&entry, 1, 200), "poll while it is forbidden");
    pthread_setcancelstate(before, NULL);
    wait_for(1);
    return NULL;
}

// Is cancelled where nothing of Skink's is.
static void *run_elsewhere(void *unused) {
    sem_t never;
    sem_init(&never, 0, 0);
    sem_post(&begun);
    sem_wait(&never);
    return NULL;
}

// Has, most likely, the number of one that was cancelled.
static void *run_innocently(void *unused) {
    char byte;
    struct timeval limit = {.tv_usec = 100000};
    setsockopt(datagrams, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
    check(recv(datagrams, &byte, 1, 0) < 0 && errno == EAGAIN, "recv of another thread");
    return NULL;
}

static void ends(int signal) { pthread_exit(PTHREAD_CANCELED); }

// Waits until the thread that says its number sleeps.
static void wait_for_sleep(void) {
    char path[64], line[512], state = 0;
    snprintf(path, sizeof path, "/proc/self/task/%d/stat", number);
    while (state != 'S') {
        FILE *file = fopen(path, "r");
        check(file && fgets(line, sizeof line, file) && sscanf(strrchr(line, ')'), ") %c", &state) == 1, path);
        fclose(file);
        sched_yield();
    }
}

// The last thread of the process.
static void *run_on(void *first) {
    pthread_join(*(pthread_t *)first, NULL);
    char byte = 'l';
    check(send(connection, &byte, 1, 0) == 1 && recv(connection, &byte, 1, 0) == 1, "exchange at last");
    puts("all");
    return NULL;
}

static void *joined(void *(*what)(void *), int is_cancelled) {
    pthread_t thread;
    void *answer;
    check(!pthread_create(&thread, NULL, what, NULL), "pthread_create");
    if (is_cancelled) {
        sem_wait(&begun);
        check(!pthread_cancel(thread), "pthread_cancel");
    }
    struct timespec limit;
    clock_gettime(CLOCK_REALTIME, &limit);
    limit.tv_sec += 20;
    errno = pthread_timedjoin_np(thread, &answer, &limit);
    check(!errno, "pthread_join");
    return answer;
}

int main(int count, char **words) {
    struct sockaddr_in own = {.sin_family = AF_INET, .sin_port = htons(9500)};
    struct epoll_event event = {.events = EPOLLIN};
    inet_pton(AF_INET, words[1], &peer.sin_addr);
    peer.sin_port = htons(9400);
    inet_pton(AF_INET, words[2], &own.sin_addr);
    sem_init(&begun, 0, 0);
    listener = socket(AF_INET, SOCK_STREAM, 0);
    check(!bind(listener, (void *)&own, sizeof own) && !listen(listener, 5), "listen");
    datagrams = socket(AF_INET, SOCK_DGRAM, 0);
    check(!bind(datagrams, (void *)&own, sizeof own), "bind");
    connection = socket(AF_INET, SOCK_STREAM, 0);
    check(!connect(connection, (void *)&peer, sizeof peer), "connect");
    set = epoll_create1(0);
    check(!epoll_ctl(set, EPOLL_CTL_ADD, listener, &event), "epoll_ctl");
    signal(SIGUSR1, ends);
    for (int round = 0; round < 40 * KINDS; round++) {
        pthread_t thread;
        void *what = (void *)(long)(round % KINDS), *answer;
        int late = round / KINDS % 4 == 0;
        // (The last kind doesn't sleep.)
        int handler = round / KINDS % 4 == 1 && round % KINDS < KINDS - 1;
        check(!pthread_create(&thread, NULL, late ? run_late : run, what), "pthread_create");
        if (!late)
            sem_wait(&begun);
        if (handler) {
            wait_for_sleep();
            pthread_kill(thread, SIGUSR1);
        } else {
            check(!pthread_cancel(thread), "pthread_cancel");
        }
        if (late)
            sem_post(&begun);
        struct timespec limit;
        clock_gettime(CLOCK_REALTIME, &limit);
        limit.tv_sec += 20;
        errno = pthread_timedjoin_np(thread, &answer, &limit);
        char name[64];
        snprintf(name, sizeof name, "round %d of %s %d", round, late ? "late" : handler ? "handler" : "early", round % KINDS);
        check(!errno && answer == PTHREAD_CANCELED && cleaned == round + 1, name);
    }
    check(joined(run_forbidding, 1) == PTHREAD_CANCELED, "allowed at last");
    for (int round = 0; round < 3; round++) {
        check(joined(run_elsewhere, 1) == PTHREAD_CANCELED, "cancelled elsewhere");
        joined(run_innocently, 0);
    }
    char byte = 'x';
    check(send(connection, &byte, 1, 0) == 1 && recv(connection, &byte, 1, 0) == 1, "exchange");
    pthread_t first = pthread_self(), last;
    check(!pthread_create(&last, NULL, run_on, &first), "the last thread");
    pthread_exit(NULL);
}
