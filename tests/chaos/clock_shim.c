// A wall clock that a test can move while a program runs: preloaded (LD_PRELOAD) into one program,
// so that no other program's clock moves. The environment variable CHAOS_CLOCK names a file of
// eight bytes, the nanoseconds to add to the kernel's wall clock. Monotonic clocks stay as they
// are, as when an administrator sets the date. If CHAOS_CLOCK_SLEEPS is set, the time since the
// machine's start moves, too, as when the machine has slept.
//
// Waits until a wall-clock time end at once where the jump passed that time, as the kernel's do:
// each is divided into waits of 50 ms, after which the caller looks at the clock again (a wake
// without a reason, which every caller must expect).

#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/futex.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

static const int64_t kSecond = 1000000000, kSlice = 50000000;
static const volatile int64_t* g_offset;
static int g_sleeps;
static long (*g_syscall)(long, ...);

__attribute__((constructor)) static void Open(void) {
  g_sleeps = getenv("CHAOS_CLOCK_SLEEPS") != NULL;
  const char* path = getenv("CHAOS_CLOCK");
  const int fd = path == NULL ? -1 : open(path, O_RDONLY | O_CLOEXEC);
  if (fd < 0) return;
  void* const page = mmap(NULL, sizeof(int64_t), PROT_READ, MAP_SHARED, fd, 0);
  if (page != MAP_FAILED) g_offset = page;
  close(fd);
}

static long Kernel(long number, long a, long b, long c, long d, long e, long f) {
  if (g_syscall == NULL) g_syscall = (long (*)(long, ...))dlsym(RTLD_NEXT, "syscall");
  return g_syscall(number, a, b, c, d, e, f);
}

static int64_t Offset(void) { return g_offset == NULL ? 0 : *g_offset; }
static int64_t Nanoseconds(const struct timespec* t) { return t->tv_sec * kSecond + t->tv_nsec; }
static struct timespec Timespec(int64_t nanoseconds) {
  const struct timespec t = {nanoseconds / kSecond, nanoseconds % kSecond};
  return t;
}

static int64_t TrueNow(void) {
  struct timespec now;
  Kernel(SYS_clock_gettime, CLOCK_REALTIME, (long)&now, 0, 0, 0, 0);
  return Nanoseconds(&now);
}

static int IsWall(clockid_t clock) {
  return clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE;
}

int clock_gettime(clockid_t clock, struct timespec* t) {
  static int (*next)(clockid_t, struct timespec*);
  if (next == NULL) next = (int (*)(clockid_t, struct timespec*))dlsym(RTLD_NEXT, "clock_gettime");
  const int result = next(clock, t);
  const int moves = IsWall(clock) || (g_sleeps && clock == CLOCK_BOOTTIME);
  if (result == 0 && moves) *t = Timespec(Nanoseconds(t) + Offset());
  return result;
}

int gettimeofday(struct timeval* t, void* zone) {
  (void)zone;
  struct timespec now;
  clock_gettime(CLOCK_REALTIME, &now);
  t->tv_sec = now.tv_sec;
  t->tv_usec = now.tv_nsec / 1000;
  return 0;
}

time_t time(time_t* t) {
  struct timespec now;
  clock_gettime(CLOCK_REALTIME, &now);
  if (t != NULL) *t = now.tv_sec;
  return now.tv_sec;
}

// The kernel's time to wait until for a moved wall-clock `deadline`; whether that is a slice alone.
static int Slice(const struct timespec* deadline, struct timespec* until) {
  const int64_t now = TrueNow(), end = Nanoseconds(deadline) - Offset();
  const int sliced = end > now + kSlice;
  *until = Timespec(sliced ? now + kSlice : end);
  if (until->tv_sec < 0) *until = Timespec(0);
  return sliced;
}

int pthread_cond_clockwait(pthread_cond_t* condition, pthread_mutex_t* mutex, clockid_t clock,
                           const struct timespec* deadline) {
  static int (*next)(pthread_cond_t*, pthread_mutex_t*, clockid_t, const struct timespec*);
  if (next == NULL) {
    next = (int (*)(pthread_cond_t*, pthread_mutex_t*, clockid_t, const struct timespec*))dlsym(
        RTLD_NEXT, "pthread_cond_clockwait");
  }
  if (!IsWall(clock)) return next(condition, mutex, clock, deadline);
  struct timespec until;
  const int sliced = Slice(deadline, &until);
  const int result = next(condition, mutex, clock, &until);
  return sliced && result == ETIMEDOUT ? 0 : result;
}

int pthread_cond_timedwait(pthread_cond_t* condition, pthread_mutex_t* mutex,
                           const struct timespec* deadline) {
  static int (*next)(pthread_cond_t*, pthread_mutex_t*, const struct timespec*);
  if (next == NULL) {
    void* found = dlvsym(RTLD_NEXT, "pthread_cond_timedwait", "GLIBC_2.3.2");
    if (found == NULL) found = dlsym(RTLD_NEXT, "pthread_cond_timedwait");
    next = (int (*)(pthread_cond_t*, pthread_mutex_t*, const struct timespec*))found;
  }
  // The condition knows its clock and does not tell. No machine has run for as long as since 1970.
  if (deadline->tv_sec < 1000000000 - 2 * 86400) return next(condition, mutex, deadline);
  struct timespec until;
  const int sliced = Slice(deadline, &until);
  const int result = next(condition, mutex, &until);
  return sliced && result == ETIMEDOUT ? 0 : result;
}

// Abseil's mutexes wait by the system call itself.
long syscall(long number, ...) {
  va_list list;
  va_start(list, number);
  long a[6];
  for (int i = 0; i < 6; ++i) a[i] = va_arg(list, long);
  va_end(list);
  const struct timespec* deadline = (const struct timespec*)a[3];
  if (number != SYS_futex || !(a[1] & FUTEX_CLOCK_REALTIME) || deadline == NULL) {
    return Kernel(number, a[0], a[1], a[2], a[3], a[4], a[5]);
  }
  struct timespec until;
  const int sliced = Slice(deadline, &until);
  const long result = Kernel(number, a[0], a[1], a[2], (long)&until, a[4], a[5]);
  if (sliced && result == -1 && errno == ETIMEDOUT) errno = EINTR;
  return result;
}
