// Rows in a memory-mapped file, and text appended by single writes: both outlive a process that is killed.
#include "native.h"
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

enum { HEADER = 4096, WINDOW = 65536, WINDOW_BYTES = WINDOW * sizeof(Row), PATH = 4096 };

typedef struct {
  char magic[8];
  uint32_t version, row;
  _Atomic uint64_t rows;
  uint64_t dropped, pid, flushed_ns, ended_ns;
} Header;

// A program may close descriptors that it doesn't know, and get their numbers for files of its own: a file is known by
// its inode, and opened again.
typedef struct { char path[PATH]; int fd; dev_t device; ino_t inode; } File;

int64_t clock_offset_ns;

__attribute__((constructor)) void clock_share(void) {
  const char *given = getenv("JOULETRACE_CLOCK");
  clock_offset_ns = given && *given ? strtoll(given, NULL, 10) : read_clock(CLOCK_REALTIME) - read_clock(CLOCK_BOOTTIME);
}

static File rows_file, text_file;
static Header *header;
static Row *window;
static _Atomic uint64_t count; // rows in all
static uint64_t base, put;      // rows before the window; those that the header doesn't count yet
static bool full, mute;
static pthread_mutex_t rows_mutex = PTHREAD_MUTEX_INITIALIZER, text_mutex = PTHREAD_MUTEX_INITIALIZER;

static bool opened(File *file, int flags) {
  struct stat s;
  file->fd = open(file->path, flags | O_CLOEXEC | O_NOFOLLOW, 0600);
  if (file->fd < 0 || fstat(file->fd, &s)) return false;
  file->device = s.st_dev, file->inode = s.st_ino;
  return true;
}

static bool is_open(const File *file, struct stat *s) {
  return file->fd >= 0 && !fstat(file->fd, s) && s->st_dev == file->device && s->st_ino == file->inode;
}

static bool still_open(File *file, int flags, struct stat *s) {
  if (is_open(file, s)) return true;
  file->fd = open(file->path, flags | O_CLOEXEC | O_NOFOLLOW);
  if (is_open(file, s)) return true;
  if (file->fd >= 0) close(file->fd); // another file has its path
  file->fd = -1;
  return false;
}

// A write beyond RLIMIT_FSIZE would send SIGXFSZ to the program.
static bool allowed(uint64_t size) {
  struct rlimit limit;
  return !getrlimit(RLIMIT_FSIZE, &limit) && (limit.rlim_cur == RLIM_INFINITY || size <= limit.rlim_cur);
}

// Where a mapping begins: at a page, whose size differs between machines, at or before what is asked for.
static size_t within_page(uint64_t at) { return at % (uint64_t)sysconf(_SC_PAGESIZE); }

// Space is reserved: a page of a sparse file that finds the disk full sends SIGBUS.
static void *reserved(uint64_t offset, size_t size) {
  int error = EFBIG;
  if (allowed(offset + size))
    do error = posix_fallocate(rows_file.fd, (off_t)offset, (off_t)size);
    while (error == EINTR); // by a signal of the program's
  if (error) return NULL;
  size_t before = within_page(offset);
  char *mapped = mmap(NULL, size + before, PROT_READ | PROT_WRITE, MAP_SHARED, rows_file.fd, (off_t)(offset - before));
  return mapped == MAP_FAILED ? NULL : mapped + before;
}

static void release(void *reserved_at, size_t size) {
  size_t before = within_page((uintptr_t)reserved_at);
  munmap((char *)reserved_at - before, size + before);
}

bool files_open(const char *folder) {
  char own[PATH - 16];
  int n = snprintf(own, sizeof own, "%s/%d-%llu", folder, (int)getpid(), (unsigned long long)now_ns());
  if (n < 0 || (size_t)n >= sizeof own || mkdir(own, 0700)) return false;
  snprintf(rows_file.path, PATH, "%s/rows", own);
  snprintf(text_file.path, PATH, "%s/text", own);
  count = 0;
  base = put = 0, window = NULL, full = mute = false;
  if (!opened(&rows_file, O_RDWR | O_CREAT | O_EXCL) || !(header = reserved(0, HEADER))) return false;
  *header = (Header){.version = 1, .row = sizeof(Row), .pid = (uint64_t)getpid()};
  memcpy(header->magic, "JTROWS1", 8);
  return opened(&text_file, O_WRONLY | O_APPEND | O_CREAT | O_EXCL);
}

void files_close(bool ended) {
  pthread_mutex_lock(&rows_mutex);
  pthread_mutex_lock(&text_mutex);
  if (header && ended) header->ended_ns = now_ns();
  if (header) release(header, HEADER);
  if (window) release(window, WINDOW_BYTES);
  header = NULL, window = NULL;
  struct stat s;
  if (is_open(&rows_file, &s)) close(rows_file.fd);
  if (is_open(&text_file, &s)) close(text_file.fd);
  rows_file.fd = text_file.fd = -1;
  pthread_mutex_unlock(&text_mutex);
  pthread_mutex_unlock(&rows_mutex);
}

void files_abandon(void) {
  pthread_mutex_init(&rows_mutex, NULL);
  pthread_mutex_init(&text_mutex, NULL);
  if (header) files_close(false);
}

bool files_are_open(void) { return header != NULL; }

bool files_are_removed(void) {
  struct stat s;
  pthread_mutex_lock(&rows_mutex);
  bool removed = is_open(&rows_file, &s) && !s.st_nlink;
  pthread_mutex_unlock(&rows_mutex);
  return removed;
}

void rows_lock(void) { pthread_mutex_lock(&rows_mutex); }

void rows_put(const Row *row) {
  if (!header) return;
  uint64_t at = count + put;
  if (!full && (!window || at >= base + WINDOW)) {
    struct stat s;
    if (window) release(window, WINDOW_BYTES);
    base = at - at % WINDOW;
    window = still_open(&rows_file, O_RDWR, &s) ? reserved(HEADER + base * sizeof(Row), WINDOW_BYTES) : NULL;
    full = !window;
    if (full) text("i full its file couldn't grow: a full disk, or a limit of the process");
  }
  if (full) {
    header->dropped++;
    return;
  }
  window[at - base] = *row;
  put++;
}

void rows_dropped(uint64_t number) {
  if (header) header->dropped += number;
}

void rows_unlock(void) {
  count += put;
  put = 0;
  if (header) atomic_store_explicit(&header->rows, count, memory_order_release);
  pthread_mutex_unlock(&rows_mutex);
}

uint64_t rows_count(void) { return count; }

void rows_flushed(uint64_t ns) {
  if (header) header->flushed_ns = ns;
}

void text(const char *format, ...) {
  char small[512], *line = small;
  va_list given;
  va_start(given, format);
  int n = vsnprintf(small, sizeof small - 1, format, given);
  va_end(given);
  char large[16384]; // longer lines are cut
  if (n >= (int)sizeof small - 1) {
    va_start(given, format);
    n = vsnprintf(large, sizeof large - 1, format, given);
    va_end(given);
    line = large;
    if (n > (int)sizeof large - 2) n = sizeof large - 2;
  }
  if (n <= 0) return;
  for (int i = 0; i < n; i++)
    if ((unsigned char)line[i] < 32 && line[i] != 31) line[i] = ' ';
  line[n++] = '\n';
  pthread_mutex_lock(&text_mutex);
  struct stat s;
  if (header && !mute && still_open(&text_file, O_WRONLY | O_APPEND, &s)) {
    ssize_t written = -1;
    if (allowed((uint64_t)s.st_size + (uint64_t)n))
      do written = write(text_file.fd, line, (size_t)n);
      while (written < 0 && errno == EINTR);
    mute = written != n; // a name that is missing would shift all that follow
  }
  pthread_mutex_unlock(&text_mutex);
}
