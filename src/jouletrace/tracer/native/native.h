// The inner interface of the tracer: rows and text of one process, marks of its threads, CUPTI, NVTX, Python.
#pragma once
#define _GNU_SOURCE
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <time.h>

#define EXPORT __attribute__((visibility("default")))
#define FIELD(type, at, offset) (*(type const *)((const char *)(at) + (offset)))

enum Kind { KERNEL, COPY, SET, SYNC, LOAD };

typedef struct {
  uint64_t start, end; // ns since the Unix epoch
  uint32_t name, owner, range, correlation, stream, thread;
  uint16_t device;
  uint8_t kind, sampled;
  uint32_t extra; // the shape of a kernel's launch, bytes of a copy or set
} Row;
_Static_assert(sizeof(Row) == 48, "the format of rows");

static inline int64_t read_clock(clockid_t clock) {
  struct timespec t;
  clock_gettime(clock, &t);
  return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

// The time since the Unix epoch by a clock that never steps, as run/steady.py has it.
extern int64_t clock_offset_ns;
static inline uint64_t now_ns(void) { return (uint64_t)(clock_offset_ns + read_clock(CLOCK_BOOTTIME)); }

// A thread of ours takes none of the program's signals.
static inline int thread_create(pthread_t *thread, void *(*function)(void *), void *given) {
  sigset_t all, before;
  sigfillset(&all);
  pthread_sigmask(SIG_BLOCK, &all, &before);
  int error = pthread_create(thread, NULL, function, given);
  pthread_sigmask(SIG_SETMASK, &before, NULL);
  return error;
}

// rows.c: the files of this process, and its clock
void clock_share(void);                     // takes the clock of the recording
bool files_open(const char *folder);        // false if nothing can be written
void files_close(bool ended);
void files_abandon(void);                   // in a forked child, whose files are the parent's
bool files_are_open(void);
bool files_are_removed(void);               // the Run has been saved without this process, which outlives its program
void rows_lock(void);                       // rows are put between lock and unlock
void rows_put(const Row *row);
void rows_dropped(uint64_t number);
void rows_unlock(void);
uint64_t rows_count(void);
void rows_flushed(uint64_t ns);
void text(const char *format, ...) __attribute__((format(printf, 1, 2)));

// marks.c: names, marks, and the marks that are open in each thread
uint32_t name_of(const char *name, size_t length);
const char *name_at(uint32_t number);
uint32_t mark_of(uint32_t parent, char kind, const char *name, size_t length);
bool marks_open(const char *folder);        // opens the files, and writes what was interned before
typedef struct { uint32_t owner, range, thread; bool sampled; } Owner;
Owner owner_now(void);
bool code_inside(void);                     // within another mark
uint32_t code_enter(uint32_t mark);         // returns the depth before
void code_leave(uint32_t depth);
void calls_write(void);                     // how often each module has been called outside of others, where that changed
uint32_t object_mark(uintptr_t object);     // 0 if it has none
void object_remember(uintptr_t object, uint32_t mark);
extern bool ranges_from_outside;            // whether those of NVTX count
void range_push(const char *name, bool outside);
void range_pop(void);
uint64_t range_start(const char *name);     // a range of the process, from any thread to any other
void range_end(uint64_t id);
void thread_sampling(bool on);
uint64_t operator_events(void);
void marks_forked(void);

// cupti.c
// Returns 0, or why it doesn't trace: 1 traced already, 2 no CUPTI, 3 refused. After torch's profiler, which keeps CUPTI's
// subscription when it ends, kernels are traced without their owners.
int tracing_start(const char *folder, const char *duty, bool after_profiler);
bool tracing_stop(void);                    // false if it hasn't ended in time
void tracing_pause(void);                   // leave CUPTI to the program's own profiler
void tracing_resume(void);
bool tracing_is_on(void);
uint64_t tracing_began_ns(void);
const char *tracing_problem(void);

// python.c
void python_begin(bool operators);
void python_end(void);
void *python_functions(void);
