/* Talks through libc's streams. `streams ask ADDRESS PORT DIRECTORY` asks a server that says each line
   again; `streams serve PORT` is such a server, for one connection. */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define BODY 1000003

/* The check that was passed last. */
static volatile int passed;

static void stuck(int signal)
{
    dprintf(2, "streams.c: after line %d nothing went on\n", passed);
    _exit(signal);
}

static void check(int holds, int line, const char *what)
{
    passed = line;
    if (!holds) {
        fprintf(stderr, "streams.c:%d: %s doesn't hold (%s)\n", line, what, strerror(errno));
        _exit(1);
    }
}
#define CHECK(what) check(!!(what), __LINE__, #what)

static struct sockaddr_storage peer;
static socklen_t peer_length;

static void name(const char *address, const char *port)
{
    struct sockaddr_in *v4 = (void *)&peer;
    struct sockaddr_in6 *v6 = (void *)&peer;
    if (inet_pton(AF_INET, address, &v4->sin_addr) == 1) {
        v4->sin_family = AF_INET;
        v4->sin_port = htons(atoi(port));
        peer_length = sizeof *v4;
    } else {
        CHECK(inet_pton(AF_INET6, address, &v6->sin6_addr) == 1);
        v6->sin6_family = AF_INET6;
        v6->sin6_port = htons(atoi(port));
        peer_length = sizeof *v6;
    }
}

static int dial(void)
{
    int fd = socket(peer.ss_family, SOCK_STREAM, 0);
    CHECK(fd >= 0);
    CHECK(connect(fd, (void *)&peer, peer_length) == 0);
    return fd;
}

static void hear(FILE *in, const char *expected)
{
    char line[200];
    CHECK(fgets(line, sizeof line, in));
    if (strcmp(line, expected)) {
        fprintf(stderr, "heard %s instead of %s", line, expected);
        _exit(1);
    }
}

static void tell(int fd, const char *format, ...)
{
    va_list list;
    va_start(list, format);
    CHECK(vdprintf(fd, format, list) > 0);
    va_end(list);
}

static char body(int at)
{
    return (at * 2654435761u) >> 24;
}

/* Two streams on one connection, and what goes by its descriptor. */
static void two_streams(void)
{
    int fd = dial();
    int copy = dup(fd);
    FILE *out = fdopen(fd, "w"), *in = fdopen(copy, "rb");
    CHECK(out && in);
    CHECK(fileno(out) == fd && fileno(in) == copy);
    CHECK(fprintf(out, "hello %d %s\n", 7, "there") == 14);
    CHECK(fflush(out) == 0);
    hear(in, "hello 7 there\n");
    CHECK(dprintf(fd, "%d %s %.2f %d %d %d %.1f %c\n", 1, "two", 3.25, 4, 5, 6, 7.5, '8') > 0);
    hear(in, "1 two 3.25 4 5 6 7.5 8\n");
    tell(fd, "%s %d %.1f %ld %d\n", "list", 1, 2.5, 3L, 4);
    hear(in, "list 1 2.5 3 4\n");
    CHECK(fseek(in, 0, SEEK_SET) == -1 && errno == ESPIPE);

    fprintf(out, "bytes %d\n", BODY);
    for (int at = 0; at < BODY;) {
        char piece[5000];
        int count = 0;
        for (; count < at % 4999 + 1 && at + count < BODY; count++)
            piece[count] = body(at + count);
        CHECK(fwrite(piece, 1, count, out) == (size_t)count);
        at += count;
    }
    CHECK(fflush(out) == 0);
    for (int at = 0; at < BODY; at++)
        CHECK((char)getc(in) == body(at));

    /* Each closes its own descriptor, once. */
    CHECK(fclose(out) == 0);
    CHECK(fcntl(fd, F_GETFD) == -1 && errno == EBADF);
    CHECK(open("/dev/null", O_RDONLY) == fd);
    CHECK(write(copy, "by the other\n", 13) == 13);
    hear(in, "by the other\n");
    CHECK(fclose(in) == 0);
    CHECK(fcntl(copy, F_GETFD) == -1 && errno == EBADF);
    CHECK(fcntl(fd, F_GETFD) != -1);
    close(fd);
}

/* One stream for both directions, which ends as an ordinary file's. */
static void one_stream(const char *directory)
{
    char path[300], line[100];
    int fd = dial();
    FILE *both = fdopen(fd, "r+");
    CHECK(both);
    for (int round = 0; round < 3; round++) {
        fprintf(both, "round %d\n", round);
        CHECK(fflush(both) == 0);
        snprintf(line, sizeof line, "round %d\n", round);
        hear(both, line);
    }
    fputs("left for freopen\n", both);
    snprintf(path, sizeof path, "%s/file", directory);
    both = freopen(path, "w+", both);
    CHECK(both && fileno(both) == fd);
    CHECK(fputs("in the file\n", both) >= 0);
    CHECK(dprintf(fd, "%s", "") == 0);
    CHECK(fseek(both, 3, SEEK_SET) == 0);
    hear(both, "the file\n");
    CHECK(fclose(both) == 0);
}

/* A connection in standard output's place, as a shell has it. */
static void standard_output(void)
{
    int fd = dial(), saved = dup(1);
    FILE *in = fdopen(fd, "r");
    printf("before\n");
    CHECK(dup2(fd, 1) == 1);
    printf("to the peer\n");
    CHECK(fflush(stdout) == 0);
    hear(in, "to the peer\n");
    CHECK(dup2(saved, 1) == 1);
    printf("after\n");
    CHECK(fflush(stdout) == 0);
    fclose(in);
    close(saved);
}

static int ask(const char *directory)
{
    CHECK(fdopen(-1, "r") == NULL && errno == EBADF);
    two_streams();
    one_stream(directory);
    standard_output();
    int fd = dial();
    CHECK(fdopen(fd, "nonsense") == NULL && errno == EINVAL);
    FILE *last = fdopen(fd, "w");
    fputs("left over", last);
    /* Nobody flushes. */
    return 0;
}

static int serve(const char *port)
{
    struct sockaddr_in6 any = {.sin6_family = AF_INET6, .sin6_port = htons(atoi(port))};
    int listener = socket(AF_INET6, SOCK_STREAM, 0), one = 1;
    CHECK(setsockopt(listener, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one) == 0);
    CHECK(bind(listener, (void *)&any, sizeof any) == 0 && listen(listener, 5) == 0);
    puts("ready");
    fflush(stdout);
    FILE *both = fdopen(accept(listener, NULL, NULL), "r+");
    CHECK(both);
    char *line = NULL;
    size_t room = 0;
    ssize_t count;
    while ((count = getline(&line, &room, both)) > 0) {
        CHECK(fflush(both) == 0);
        CHECK(fwrite(line, 1, count, both) == (size_t)count);
        CHECK(fflush(both) == 0);
    }
    CHECK(feof(both) && !ferror(both));
    fputs("goodbye", both);
    return fclose(both) == 0 ? 0 : 1;
}

int main(int count, char **arguments)
{
    signal(SIGALRM, stuck);
    alarm(60);
    if (count == 5 && !strcmp(arguments[1], "ask")) {
        name(arguments[2], arguments[3]);
        return ask(arguments[4]);
    }
    return count == 3 ? serve(arguments[2]) : 2;
}
