/* A system with pages of 64 KiB, for a program that loads this library before others. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <stdint.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

enum { PAGE = 65536 };

long sysconf(int name) {
  long (*real)(int) = NULL;
  *(void **)&real = dlsym(RTLD_NEXT, "sysconf");
  return name == _SC_PAGESIZE ? PAGE : real(name);
}
static char *map(void *at, size_t size, int protection, int flags, int file, off_t offset) {
  return (char *)syscall(SYS_mmap, at, size, protection, flags, file, offset);
}
void *mmap(void *at, size_t size, int protection, int flags, int file, off_t offset) {
  if (!(flags & MAP_SHARED)) return map(at, size, protection, flags, file, offset);
  if (offset % PAGE) return errno = EINVAL, MAP_FAILED;
  char *room = map(NULL, size + PAGE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  room += -(uintptr_t)room % PAGE;
  return map(room, size, protection, flags | MAP_FIXED, file, offset);
}
