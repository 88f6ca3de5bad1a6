/* The wall clock of the processes that load this (LD_PRELOAD) is off by the seconds that stand, as
 * one native 64-bit number, in the file FAULTS_CLOCK. Clocks that only count on are left alone, and
 * so is every sleep: libfaketime turns those too, and who sleeps then sleeps for hours. */

#define _GNU_SOURCE
#include <fcntl.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

static volatile const int64_t *off;

__attribute__((constructor)) static void begin(void)
{
    const char *name = getenv("FAULTS_CLOCK");
    int file = name ? open(name, O_RDONLY | O_CLOEXEC) : -1;
    if (file < 0)
        return;
    void *seen = mmap(NULL, sizeof *off, PROT_READ, MAP_SHARED, file, 0);
    if (seen != MAP_FAILED)
        off = seen;
    close(file);
}

static time_t now(struct timespec *at, clockid_t clock)
{
    syscall(SYS_clock_gettime, clock, at);
    return at->tv_sec += off ? *off : 0;
}

int clock_gettime(clockid_t clock, struct timespec *at)
{
    if (clock != CLOCK_REALTIME && clock != CLOCK_REALTIME_COARSE)
        return (int)syscall(SYS_clock_gettime, clock, at);
    now(at, clock);
    return 0;
}

int gettimeofday(struct timeval *at, void *zone)
{
    struct timespec exact;
    (void)zone;
    at->tv_sec = now(&exact, CLOCK_REALTIME);
    at->tv_usec = exact.tv_nsec / 1000;
    return 0;
}

time_t time(time_t *at)
{
    struct timespec exact;
    time_t seconds = now(&exact, CLOCK_REALTIME);
    if (at)
        *at = seconds;
    return seconds;
}
