/* Loaded into a program (LD_PRELOAD): reading files whose path holds $FAILING_FILE gives EIO. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/types.h>
#include <sys/uio.h>
#include <unistd.h>

static int fails(int fd)
{
    const char *wanted = getenv("FAILING_FILE");
    char link[64], path[4096];
    ssize_t length;

    if (wanted == NULL)
        return 0;
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    length = readlink(link, path, sizeof path - 1);
    if (length < 0)
        return 0;
    path[length] = '\0';
    return strstr(path, wanted) != NULL;
}

#define FAILING(type, name, parameters, ...)                          \
    type name parameters                                              \
    {                                                                 \
        static type(*real) parameters;                                \
        if (real == NULL)                                             \
            real = (type(*) parameters)dlsym(RTLD_NEXT, #name);       \
        if (fails(fd)) {                                              \
            errno = EIO;                                              \
            return -1;                                                \
        }                                                             \
        return real(__VA_ARGS__);                                     \
    }

FAILING(ssize_t, read, (int fd, void *to, size_t size), fd, to, size)
FAILING(ssize_t, pread, (int fd, void *to, size_t size, off_t at), fd, to, size, at)
FAILING(ssize_t, pread64, (int fd, void *to, size_t size, off_t at), fd, to, size, at)
FAILING(ssize_t, preadv, (int fd, const struct iovec *to, int n, off_t at), fd, to, n, at)
FAILING(ssize_t, preadv64, (int fd, const struct iovec *to, int n, off_t at), fd, to, n, at)
FAILING(ssize_t, preadv2, (int fd, const struct iovec *to, int n, off_t at, int how), fd, to, n, at,
        how)
FAILING(ssize_t, preadv64v2, (int fd, const struct iovec *to, int n, off_t at, int how), fd, to, n,
        at, how)
