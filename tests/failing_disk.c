/* Loaded into a program (LD_PRELOAD): reading files whose path holds $FAILING_FILE gives EIO; opening
   and looking at paths that hold $FAILING_PATH, or end with it if a "$" ends it, gives the error of
   the number $FAILING_ERRNO; names of paths that hold $FAILING_UNLINK cannot be removed. */
#define _GNU_SOURCE
#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
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

static int is_closed(const char *path)
{
    const char *wanted = getenv("FAILING_PATH"), *number = getenv("FAILING_ERRNO");

    size_t length, size;

    if (wanted == NULL || path == NULL)
        return 0;
    length = strlen(wanted);
    size = strlen(path);
    if (length > 0 && wanted[length - 1] == '$') {
        length--;
        if (size < length || strncmp(path + size - length, wanted, length) != 0)
            return 0;
    } else if (strstr(path, wanted) == NULL) {
        return 0;
    }
    errno = number == NULL ? EIO : atoi(number);
    return 1;
}

#define CLOSED(type, failed, name, parameters, ...)                   \
    type name parameters                                              \
    {                                                                 \
        static type(*real) parameters;                                \
        if (real == NULL)                                             \
            real = (type(*) parameters)dlsym(RTLD_NEXT, #name);       \
        return is_closed(path) ? failed : real(__VA_ARGS__);          \
    }

CLOSED(DIR *, NULL, opendir, (const char *path), path)
CLOSED(int, -1, stat, (const char *path, struct stat *to), path, to)
CLOSED(int, -1, stat64, (const char *path, struct stat64 *to), path, to)
CLOSED(int, -1, lstat, (const char *path, struct stat *to), path, to)
CLOSED(int, -1, lstat64, (const char *path, struct stat64 *to), path, to)

int unlink(const char *path)
{
    static int (*real)(const char *);
    const char *wanted = getenv("FAILING_UNLINK");

    if (real == NULL)
        real = (int (*)(const char *))dlsym(RTLD_NEXT, "unlink");
    if (wanted != NULL && strstr(path, wanted) != NULL) {
        errno = EACCES;
        return -1;
    }
    return real(path);
}

#define CLOSED_TO_OPEN(name)                                          \
    int name(const char *path, int flags, ...)                        \
    {                                                                 \
        static int (*real)(const char *, int, ...);                   \
        va_list more;                                                 \
        int mode = 0;                                                 \
        if (real == NULL)                                             \
            real = (int (*)(const char *, int, ...))dlsym(RTLD_NEXT, #name); \
        if (flags & (O_CREAT | __O_TMPFILE)) {                        \
            va_start(more, flags);                                    \
            mode = va_arg(more, int);                                 \
            va_end(more);                                             \
        }                                                             \
        return is_closed(path) ? -1 : real(path, flags, mode);        \
    }

CLOSED_TO_OPEN(open)
CLOSED_TO_OPEN(open64)
