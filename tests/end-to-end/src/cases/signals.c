// Signal handlers that interrupt calls on sockets: they make calls themselves, or leave the interrupted one for good. All of it
// is allowed (signal-safety(7)), and wget does the latter.
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <semaphore.h>
#include <setjmp.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/select.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

#pragma GCC diagnostic ignored "-Wdeprecated-declarations" // siginterrupt

static int one, other;
static volatile sig_atomic_t handled;
static sigjmp_buf before;

static void check(int good, const char *what) {
    if (!good) {
        printf("%s: %s\n", what, strerror(errno));
        fflush(stdout);
        _exit(1);
    }
}

static int connected(const char *address) {
    struct sockaddr_in to = {.sin_family = AF_INET, .sin_port = htons(9400)};
    inet_pton(AF_INET, address, &to.sin_addr);
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    check(fd >= 0 && !connect(fd, (void *)&to, sizeof to), "connect");
    return fd;
}

// The peer says each byte again: 'l' after a while.
static void exchange(int fd, char byte) {
    char said = 0;
    check(send(fd, &byte, 1, 0) == 1, "send");
    ssize_t got;
    while ((got = recv(fd, &said, 1, 0)) < 0 && errno == EINTR)
        ;
    check(got == 1 && said == byte, "exchange");
}

static void handle(void (*handler)(int), int flags) {
    struct sigaction action = {.sa_handler = handler, .sa_flags = flags};
    check(!sigaction(SIGALRM, &action, 0), "sigaction");
}

static void ring(long microseconds, int again) {
    struct itimerval timer = {.it_value = {0, microseconds}};
    if (again)
        timer.it_interval = timer.it_value;
    setitimer(ITIMER_REAL, &timer, 0);
}

static void looks(int signal) {
    int kept = errno;
    char byte;
    check(recv(other, &byte, 1, MSG_DONTWAIT) < 0 && errno == EAGAIN, "recv in a handler");
    handled++;
    errno = kept;
}

static void exchanges(int signal) {
    int kept = errno;
    exchange(other, 'x');
    handled++;
    errno = kept;
}

static void leaves(int signal) { siglongjmp(before, 1); }

static void *sleeper(void *fd) {
    sigset_t all;
    sigfillset(&all);
    pthread_sigmask(SIG_BLOCK, &all, 0);
    char byte;
    recv(*(int *)fd, &byte, 1, 0);
    return 0;
}

// `waits` for ever, or as long as `one` says nothing: a handler makes an exchange meanwhile.
static void interrupted(void (*waits)(void)) {
    for (int restart = 0; restart < 2; restart++) {
        handled = 0;
        handle(exchanges, restart ? SA_RESTART : 0);
        ring(50000, 0);
        waits();
        check(handled == 1, "the handler");
        exchange(one, 'x');
    }
}

static void in_recv(void) { exchange(one, 'l'); }

static void in_epoll(void) {
    int set = epoll_create1(0);
    struct epoll_event event = {.events = EPOLLIN};
    check(!epoll_ctl(set, EPOLL_CTL_ADD, one, &event), "epoll_ctl");
    check(epoll_wait(set, &event, 1, 5000) < 0 && errno == EINTR, "epoll_wait");
    close(set);
}

// A handler leaves `recv` and `epoll_wait` for good.
static void left(void) {
    handle(leaves, 0);
    int set = epoll_create1(0);
    struct epoll_event event = {.events = EPOLLIN};
    check(!epoll_ctl(set, EPOLL_CTL_ADD, one, &event), "epoll_ctl");
    for (volatile int round = 0; round < 6; round++) {
        char byte;
        if (sigsetjmp(before, 1) == 0) {
            ring(100000, 0);
            if (round % 2)
                epoll_wait(set, &event, 1, -1);
            else
                recv(one, &byte, 1, 0);
            check(0, "not left");
        }
        exchange(one, 'x');
    }
    check(send(one, "l", 1, 0) == 1, "send");
    check(epoll_wait(set, &event, 1, 5000) == 1, "epoll_wait");
    char byte;
    check(recv(one, &byte, 1, 0) == 1, "recv");
    close(set);
}

// A handler leaves calls for good that don't wait, wherever they are.
static void left_anywhere(void) {
    handle(leaves, 0);
    int set = epoll_create1(0);
    struct epoll_event event = {.events = EPOLLIN};
    check(!epoll_ctl(set, EPOLL_CTL_ADD, one, &event), "epoll_ctl");
    for (volatile int round = 0; round < 2000; round++) {
        char byte;
        if (sigsetjmp(before, 1) == 0) {
            ring(50 + round % 100, 0);
            for (;;) {
                struct pollfd list[2] = {{.fd = one, .events = POLLIN}, {.fd = other, .events = POLLIN}};
                struct timeval now = {0};
                fd_set read;
                FD_ZERO(&read);
                FD_SET(one, &read);
                check(recv(one, &byte, 1, MSG_DONTWAIT) < 0 && errno == EAGAIN, "recv");
                check(poll(list, 2, 0) == 0, "poll");
                check(select(one + 1, &read, 0, 0, &now) == 0, "select");
                check(epoll_wait(set, &event, 1, 0) == 0, "epoll_wait");
            }
        }
    }
    exchange(one, 'x');
    close(set);
}

// Handlers of another signal don't matter.
static void begun_again(void) {
    struct sigaction action = {.sa_handler = looks};
    check(!sigaction(SIGUSR1, &action, 0), "sigaction");
    handle(looks, SA_RESTART);
    handled = 0;
    check(send(one, "l", 1, 0) == 1, "send");
    ring(50000, 0);
    char byte;
    check(recv(one, &byte, 1, 0) == 1 && handled == 1, "recv with SA_RESTART");
    signal(SIGUSR1, SIG_DFL);
}

// Signals that are queued come once each, in their order, with what they say, whatever their thread is about.
enum { QUEUED = 20000 };
static volatile sig_atomic_t heard;

static void hears(int signal, siginfo_t *info, void *context) {
    check(info->si_code == SI_QUEUE && info->si_value.sival_int == heard && context, "what a signal says");
    heard++;
}

static void *queues(void *thread) {
    for (int number = 0; number < QUEUED; number++) {
        union sigval value = {.sival_int = number};
        while (pthread_sigqueue(*(pthread_t *)thread, SIGRTMIN, value))
            check(errno == EAGAIN || errno == 0, "pthread_sigqueue");
    }
    return 0;
}

static void queued(void) {
    struct sigaction action = {.sa_sigaction = hears, .sa_flags = SA_SIGINFO | SA_RESTART};
    check(!sigaction(SIGRTMIN, &action, 0), "sigaction");
    pthread_t self = pthread_self(), thread;
    check(!pthread_create(&thread, 0, queues, &self), "a thread");
    while (heard < QUEUED)
        exchange(one, 'x');
    pthread_join(thread, 0);
    sigset_t blocked;
    check(!pthread_sigmask(SIG_BLOCK, 0, &blocked) && sigisemptyset(&blocked), "what is blocked after handlers");
}

// A thread that sleeps on a socket, and drives the stack, is kept by a handler, or leaves its call and makes no other.
static sem_t inside, goes_on;
static __thread sigjmp_buf out;

static void stays(int signal) {
    sem_post(&inside);
    while (sem_wait(&goes_on))
        ;
}

static void leaves_thread(int signal) { siglongjmp(out, 1); }

static void *kept(void *fd) {
    char byte;
    if (sigsetjmp(out, 1) == 0)
        recv(*(int *)fd, &byte, 1, 0);
    stays(0);
    return 0;
}

static void others_go_on(void (*handler)(int)) {
    sem_init(&inside, 0, 0);
    sem_init(&goes_on, 0, 0);
    signal(SIGUSR2, handler);
    pthread_t thread;
    check(!pthread_create(&thread, 0, kept, &other), "a thread");
    exchange(one, 'l');
    pthread_kill(thread, SIGUSR2);
    while (sem_wait(&inside))
        ;
    exchange(one, 'x');
    // What comes while nothing is to be sent has no timer that would look for it.
    check(send(one, "lll", 3, 0) == 3, "send");
    char said[3];
    check(recv(one, said, 3, MSG_WAITALL) == 3, "recv beside a handler");
    // The handler lets it go, and its call goes on.
    char byte = 'x';
    if (handler == stays)
        check(send(other, &byte, 1, 0) == 1 && !sem_post(&goes_on), "send");
    sem_post(&goes_on);
    pthread_join(thread, 0);
}

// What a program has set is what it is told.
static void dispositions(void) {
    struct sigaction old, action = {.sa_handler = looks, .sa_flags = SA_RESTART | SA_RESETHAND};
    sigaddset(&action.sa_mask, SIGUSR2);
    check(!sigaction(SIGUSR1, &action, &old) && old.sa_handler == SIG_DFL, "the handler before");
    check(!sigaction(SIGUSR1, 0, &old) && old.sa_handler == looks, "the handler");
    check(!(old.sa_flags & SA_SIGINFO) && old.sa_flags & SA_RESTART, "flags");
    check(sigismember(&old.sa_mask, SIGUSR2) && !sigismember(&old.sa_mask, SIGUSR1), "the mask");
    raise(SIGUSR1);
    check(!sigaction(SIGUSR1, 0, &old) && old.sa_handler == SIG_DFL, "a handler that runs once");
    check(signal(SIGUSR1, leaves) == SIG_DFL && signal(SIGUSR1, SIG_IGN) == leaves, "signal");
    check(signal(SIGUSR1, looks) == SIG_IGN, "signal");
    check(!sigaction(SIGUSR1, 0, &old) && old.sa_flags & SA_RESTART, "signal's flags");
    check(!siginterrupt(SIGUSR1, 1) && signal(SIGUSR1, looks) == looks, "siginterrupt");
    check(!sigaction(SIGUSR1, 0, &old) && !(old.sa_flags & SA_RESTART), "siginterrupt's flags");
    check(signal(SIGKILL, looks) == SIG_ERR && errno == EINVAL, "SIGKILL");
    check(signal(4000, looks) == SIG_ERR && sigaction(-1, &action, 0) < 0 && errno == EINVAL, "no signal");
    signal(SIGUSR1, SIG_DFL);
}

int main(int count, char **arguments) {
    one = connected(arguments[1]);
    other = connected(arguments[1]);
    dispositions();
    // Handlers while calls are being made.
    handle(looks, SA_RESTART);
    ring(200, 1);
    while (handled < 3000) {
        char byte;
        check(recv(one, &byte, 1, MSG_DONTWAIT) < 0 && errno == EAGAIN, "recv");
    }
    ring(0, 0);
    interrupted(in_recv);
    interrupted(in_epoll);
    begun_again();
    left();
    left_anywhere();
    queued();
    others_go_on(stays);
    others_go_on(leaves_thread);
    // With another thread that sleeps, and drives the stack.
    int idle = connected(arguments[1]);
    pthread_t thread;
    check(!pthread_create(&thread, 0, sleeper, &idle), "a thread");
    interrupted(in_recv);
    left();
    puts("all");
    fflush(stdout);
    _exit(0);
}
