/* Makes its system calls by instructions of its own, as Rust's rustix does: serves two connections, each in a thread that waits on an epoll
 * set, and tries what the trap for such calls must leave as it is. */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/syscall.h>
#include <sys/wait.h>

#define CALL(number, a, b, c, d, e, f) ({ \
    long answer; \
    register long fourth __asm__("r10") = (long)(d), fifth __asm__("r8") = (long)(e), sixth __asm__("r9") = (long)(f); \
    __asm__ volatile("syscall" : "=a"(answer) : "a"(number), "D"((long)(a)), "S"((long)(b)), "d"((long)(c)), "r"(fourth), \
                     "r"(fifth), "r"(sixth) : "rcx", "r11", "memory"); \
    answer; })
#define HOLDS(condition) do { if (!(condition)) { printf("line %d: " #condition "\n", __LINE__); exit(1); } } while (0)

static int listener;
static volatile sig_atomic_t seen;

static void note(int signal) {
    (void)signal;
    seen += 1;
    /* A call in a handler, which may have interrupted one that waits. */
    HOLDS(CALL(SYS_getpid, 0, 0, 0, 0, 0, 0) > 0);
}

/* `rt_sigreturn`. */
__attribute__((naked)) static void restore(void) {
    __asm__("mov $15, %eax\n\tsyscall");
}

static void *ask(void *unused) {
    HOLDS(CALL(SYS_getpid, 0, 0, 0, 0, 0, 0) > 0);
    return unused;
}

static int wait_for(int set, struct epoll_event *event) {
    long count;
    do
        count = CALL(SYS_epoll_pwait, set, event, 1, 20000, 0, 8);
    while (count == -EINTR);
    return count;
}

static void *serve(void *unused) {
    (void)unused;
    int set = CALL(SYS_epoll_create1, EPOLL_CLOEXEC, 0, 0, 0, 0, 0);
    struct epoll_event event = {EPOLLIN, {.u64 = 7}};
    HOLDS(set >= 0 && CALL(SYS_epoll_ctl, set, EPOLL_CTL_ADD, listener, &event, 0, 0) == 0);
    long connection;
    do {
        HOLDS(wait_for(set, &event) == 1 && event.data.u64 == 7);
        connection = CALL(SYS_accept4, listener, 0, 0, SOCK_NONBLOCK | SOCK_CLOEXEC, 0, 0);
    } while (connection == -EAGAIN);
    HOLDS(connection >= 0);
    HOLDS(CALL(SYS_epoll_ctl, set, EPOLL_CTL_DEL, listener, 0, 0, 0) == 0);
    event = (struct epoll_event){EPOLLIN, {.u64 = 8}};
    HOLDS(CALL(SYS_epoll_ctl, set, EPOLL_CTL_ADD, connection, &event, 0, 0) == 0);
    char bytes[4096];
    for (;;) {
        errno = 77;
        long count = CALL(SYS_recvfrom, connection, bytes, sizeof bytes, 0, 0, 0);
        HOLDS(errno == 77);
        if (count == -EAGAIN) {
            HOLDS(wait_for(set, &event) == 1 && event.data.u64 == 8);
            continue;
        }
        HOLDS(count >= 0);
        if (count == 0)
            break;
        HOLDS(CALL(SYS_sendto, connection, bytes, count, MSG_NOSIGNAL, 0, 0) == count);
    }
    HOLDS(CALL(SYS_close, connection, 0, 0, 0, 0, 0) == 0 && CALL(SYS_close, set, 0, 0, 0, 0, 0) == 0);
    return 0;
}

int main(int count, char **words) {
    HOLDS(count == 2);
    /* The mask, and a signal that waits for it. */
    struct sigaction action = {.sa_handler = note};
    sigfillset(&action.sa_mask);
    HOLDS(sigaction(SIGUSR1, &action, 0) == 0);
    unsigned long one = 1UL << (SIGUSR1 - 1), before = ~0UL, none = 0;
    HOLDS(CALL(SYS_rt_sigprocmask, SIG_BLOCK, &one, &before, 8, 0, 0) == 0 && (before & one) == 0);
    int own = CALL(SYS_getpid, 0, 0, 0, 0, 0, 0);
    HOLDS(CALL(SYS_kill, own, SIGUSR1, 0, 0, 0, 0) == 0 && seen == 0);
    HOLDS(CALL(SYS_rt_sigprocmask, SIG_SETMASK, &none, &before, 8, 0, 0) == 0 && (before & one) != 0);
    HOLDS(CALL(SYS_getpid, 0, 0, 0, 0, 0, 0) == own && seen == 1);
    /* The kernel's own structure, with an end of a handler that the program has: the trap goes on after it. */
    struct { void (*handler)(int); unsigned long flags; void (*restorer)(void); unsigned long mask; } raw = {note, 0x04000000, restore, ~0UL};
    HOLDS(CALL(SYS_rt_sigaction, SIGUSR2, &raw, 0, 8, 0, 0) == 0 && CALL(SYS_kill, own, SIGUSR2, 0, 0, 0, 0) == 0 && seen == 2);
    HOLDS(CALL(SYS_rt_sigaction, SIGSYS, &raw, &raw, 8, 0, 0) == 0);
    static char stack[65536];
    stack_t other = {.ss_sp = stack, .ss_size = sizeof stack}, told;
    HOLDS(CALL(SYS_sigaltstack, &other, 0, 0, 0, 0, 0) == 0 && CALL(SYS_sigaltstack, 0, &told, 0, 0, 0, 0) == 0);
    HOLDS(told.ss_sp == stack && told.ss_size == sizeof stack && told.ss_flags == 0);
    sigset_t all, some;
    sigfillset(&all);
    HOLDS(pthread_sigmask(SIG_SETMASK, &all, &some) == 0 && CALL(SYS_getpid, 0, 0, 0, 0, 0, 0) == own);
    /* Threads have the mask of who makes them. */
    pthread_t blocked;
    HOLDS(pthread_create(&blocked, 0, ask, 0) == 0 && pthread_join(blocked, 0) == 0);
    HOLDS(sigprocmask(SIG_SETMASK, &some, 0) == 0);
    HOLDS(CALL(SYS_rt_sigprocmask, 99, &none, 0, 8, 0, 0) == -EINVAL);
    /* A child, whose calls are its own. */
    long child = CALL(SYS_fork, 0, 0, 0, 0, 0, 0);
    if (child == 0) {
        int pair = CALL(SYS_socket, AF_INET, SOCK_STREAM, 0, 0, 0, 0);
        CALL(SYS_exit_group, pair >= 0 && CALL(SYS_getpid, 0, 0, 0, 0, 0, 0) != own ? 7 : 1, 0, 0, 0, 0, 0);
    }
    int status;
    HOLDS(child > 0 && CALL(SYS_wait4, child, &status, 0, 0, 0, 0) == child);
    HOLDS(WIFEXITED(status) && WEXITSTATUS(status) == 7);
    HOLDS(CALL(SYS_openat, AT_FDCWD, "/nowhere", 0, 0, 0, 0) == -ENOENT);

    struct sockaddr_in end = {.sin_family = AF_INET, .sin_port = htons(9450)};
    HOLDS(inet_pton(AF_INET, words[1], &end.sin_addr) == 1);
    listener = CALL(SYS_socket, AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0, 0, 0, 0);
    HOLDS(listener >= 0 && CALL(SYS_bind, listener, &end, sizeof end, 0, 0, 0) == 0);
    HOLDS(CALL(SYS_listen, listener, 5, 0, 0, 0, 0) == 0);
    pthread_t threads[2];
    for (int i = 0; i < 2; i++)
        HOLDS(pthread_create(&threads[i], 0, serve, 0) == 0);
    printf("listening\n");
    fflush(stdout);
    for (int i = 0; i < 2; i++) {
        pthread_kill(threads[i], SIGUSR1);
        HOLDS(pthread_join(threads[i], 0) == 0);
    }
    printf("done\n");
    return 0;
}
