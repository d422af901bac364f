/* Is preloaded beside Skink, and counts calls. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <unistd.h>

int seen;

ssize_t write(int fd, const void *at, size_t count)
{
    ssize_t (*next)(int, const void *, size_t) = (ssize_t(*)(int, const void *, size_t))dlsym(RTLD_NEXT, "write");
    seen++;
    return next(fd, at, count);
}
