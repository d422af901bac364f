// Signal handlers that interrupt calls on sockets: they make calls themselves, or leave the interrupted one for good. All of it
// is allowed (signal-safety(7)), and wget does the latter.
#include <arpa/inet.h>
#include <errno.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

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

int main(int count, char **arguments) {
    one = connected(arguments[1]);
    other = connected(arguments[1]);
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
    left();
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
