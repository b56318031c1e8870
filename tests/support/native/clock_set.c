// Sets the host's clock by SET_S seconds once the file SET_FILE is there.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>
int clock_gettime(clockid_t clock, struct timespec *t) {
  static int (*real)(clockid_t, struct timespec *);
  if (!real) real = dlsym(RTLD_NEXT, "clock_gettime");
  int code = real(clock, t);
  if (clock == CLOCK_REALTIME && !access(getenv("SET_FILE"), F_OK)) t->tv_sec += atol(getenv("SET_S"));
  return code;
}
