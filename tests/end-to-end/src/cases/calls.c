/* Calls that aren't about the network, of a program that has a socket. `calls` makes them with one thread, then with two;
   `calls seen` asks a library that is preloaded too whether it has seen them. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <unistd.h>

#define CHECK(what) \
    do { \
        if (!(what)) { \
            fprintf(stderr, "calls.c:%d: %s doesn't hold (%s)\n", __LINE__, #what, strerror(errno)); \
            _exit(1); \
        } \
    } while (0)

static int ends[2], listener;

static void exchange(void)
{
    char few[8] = "";
    struct iovec parts[2] = {{"ab", 2}, {"cd", 2}};
    struct iovec places[2] = {{few, 3}, {few + 3, 5}};
    struct epoll_event event = {.events = EPOLLIN, .data.u64 = 7};
    int epoll = epoll_create1(0);
    CHECK(epoll_ctl(epoll, EPOLL_CTL_ADD, ends[0], &event) == 0);
    CHECK(epoll_wait(epoll, &event, 1, 0) == 0);
    CHECK(read(ends[0], few, sizeof few) == -1 && errno == EAGAIN);
    CHECK(write(ends[1], "1234", 4) == 4);
    CHECK(writev(ends[1], parts, 2) == 4);
    CHECK(epoll_wait(epoll, &event, 1, -1) == 1 && event.data.u64 == 7);
    CHECK(read(ends[0], few, 4) == 4 && memcmp(few, "1234", 4) == 0);
    CHECK(readv(ends[0], places, 2) == 4 && memcmp(few, "abcd", 4) == 0);
    CHECK(close(epoll) == 0);
    CHECK(close(epoll) == -1 && errno == EBADF);
    CHECK(write(epoll, "", 1) == -1 && errno == EBADF);
    CHECK(epoll_wait(epoll, &event, 1, 0) == -1 && errno == EBADF);
}

/* The mode counts, and errors are told, by each of the names. */
static void files(void)
{
    struct stat state;
    char few[8] = "", name[] = "/tmp/skink-calls-XXXXXX";
    CHECK(mkdtemp(name) != NULL);
    int directory = open(name, O_RDONLY | O_DIRECTORY);
    int file = openat(directory, "file", O_RDWR | O_CREAT | O_EXCL, 0640);
    CHECK(directory >= 0 && file >= 0);
    CHECK(fstat(file, &state) == 0 && (state.st_mode & 0777) == 0640);
    CHECK(openat64(directory, "file", O_RDWR | O_CREAT | O_EXCL, 0640) == -1 && errno == EEXIST);
    CHECK(pwrite(file, "1234", 4, 2) == 4 && pwrite64(file, "ab", 2, 0) == 2);
    CHECK(pread(file, few, 8, 0) == 6 && memcmp(few, "ab1234", 6) == 0);
    CHECK(pread64(file, few, 8, 4) == 2 && memcmp(few, "34", 2) == 0);
    CHECK(unlinkat(directory, "file", 0) == 0 && rmdir(name) == 0);
    CHECK(open(name, O_RDONLY) == -1 && errno == ENOENT && open64(name, O_RDONLY) == -1);
    CHECK(close(file) == 0 && close(directory) == 0);
    CHECK(pread(listener, few, 1, 0) == -1 && errno == ESPIPE);
    CHECK(pwrite(listener, few, 1, 0) == -1 && errno == ESPIPE);
}

static void *wait_for_ever(void *end)
{
    char byte;
    read(*(int *)end, &byte, 1);
    return NULL;
}

/* Once a thread may be cancelled, it is, also where it waits. */
static void cancel(void)
{
    int silent[2];
    pthread_t thread;
    void *result;
    CHECK(pipe(silent) == 0);
    CHECK(pthread_create(&thread, NULL, wait_for_ever, &silent[0]) == 0);
    CHECK(pthread_cancel(thread) == 0);
    CHECK(pthread_join(thread, &result) == 0 && result == PTHREAD_CANCELED);
}

int main(int count, char **arguments)
{
    struct sockaddr_in any = {.sin_family = AF_INET, .sin_port = htons(9400)};
    listener = socket(AF_INET, SOCK_STREAM, 0);
    CHECK(bind(listener, (void *)&any, sizeof any) == 0 && listen(listener, 1) == 0);
    CHECK(pipe2(ends, O_NONBLOCK) == 0);
    exchange();
    files();
    if (count > 1) {
        int *seen = dlsym(RTLD_DEFAULT, arguments[1]);
        CHECK(seen && *seen == 2);
        return 0;
    }
    cancel();
    exchange();
    files();
    return 0;
}
