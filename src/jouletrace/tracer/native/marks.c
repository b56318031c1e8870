// Names and marks as numbers, and the marks that are open in each thread.
#include "native.h"
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MOST = 1 << 20, TABLE = 1 << 21, DEEP = 256, SEQUENCES = 1 << 20, STARTED = 64, MODULES = 1 << 18, TRIES = 256 };

typedef struct { uint64_t hash; char *name; uint32_t length; } Name;
typedef struct { uint64_t hash; uint32_t parent, name; char kind; } Mark;

static Name names[MOST];
static Mark marks[MOST];
static _Atomic uint32_t name_table[TABLE], mark_table[TABLE]; // numbers plus one
static uint32_t names_used, marks_used = 1;
static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static _Atomic uint32_t calls[MOST]; // of modules outside of others, by mark
static uint32_t calls_said[MOST];

static uint64_t mixed(uint64_t h) {
  h ^= h >> 32, h *= 0xD6E8FEB86659FD93u, h ^= h >> 32;
  return h ? h : 1;
}

static uint64_t hash_of(const char *name, size_t length) {
  uint64_t h = length * 0x9E3779B97F4A7C15u + 1, word;
  for (; length >= 8; length -= 8, name += 8) {
    memcpy(&word, name, 8);
    h = (h ^ word) * 0xD6E8FEB86659FD93u, h ^= h >> 29;
  }
  word = 0;
  memcpy(&word, name, length);
  return mixed((h ^ word) * 0xD6E8FEB86659FD93u);
}

static void write_name(uint32_t at) { text("n %.*s", (int)names[at].length, names[at].name); }
static void write_mark(uint32_t at) { text("m %u %c %u", marks[at].parent, marks[at].kind, marks[at].name); }

// The number of a name; 0, which is "?", where there are too many.
uint32_t name_of(const char *name, size_t length) {
  uint64_t hash = hash_of(name, length);
  for (;;) {
    uint32_t place = (uint32_t)hash & (TABLE - 1), found;
    for (; (found = atomic_load_explicit(&name_table[place], memory_order_acquire)); place = (place + 1) & (TABLE - 1)) {
      const Name *one = &names[found - 1];
      if (one->hash == hash && one->length == length && !memcmp(one->name, name, length)) return found - 1;
    }
    pthread_mutex_lock(&mutex);
    if (names_used < 1) {
      names[0] = (Name){1, "?", 1}, names_used = 1;
      write_name(0);
    }
    if (!atomic_load(&name_table[place])) {
      char *copy = names_used < MOST ? malloc(length + 1) : NULL;
      uint32_t at = 0;
      if (copy) {
        memcpy(copy, name, length), copy[length] = 0;
        at = names_used++;
        names[at] = (Name){hash, copy, (uint32_t)length};
        atomic_store_explicit(&name_table[place], at + 1, memory_order_release);
        write_name(at);
      }
      pthread_mutex_unlock(&mutex);
      return at;
    }
    pthread_mutex_unlock(&mutex); // another thread was first: look again
  }
}

const char *name_at(uint32_t number) { return names[number].name; }

// The number of a mark; its parent's where there are too many.
uint32_t mark_of(uint32_t parent, char kind, const char *name, size_t length) {
  uint32_t named = name_of(name, length);
  uint64_t hash = mixed(((uint64_t)parent << 32 | named) * 0x9E3779B97F4A7C15u + (uint64_t)kind);
  for (;;) {
    uint32_t place = (uint32_t)hash & (TABLE - 1), found;
    for (; (found = atomic_load_explicit(&mark_table[place], memory_order_acquire)); place = (place + 1) & (TABLE - 1)) {
      const Mark *one = &marks[found - 1];
      if (one->hash == hash && one->parent == parent && one->name == named && one->kind == kind) return found - 1;
    }
    pthread_mutex_lock(&mutex);
    if (!atomic_load(&mark_table[place])) {
      uint32_t at = parent;
      if (marks_used < MOST) {
        at = marks_used++;
        marks[at] = (Mark){hash, parent, named, kind};
        atomic_store_explicit(&mark_table[place], at + 1, memory_order_release);
        write_mark(at);
      }
      pthread_mutex_unlock(&mutex);
      return at;
    }
    pthread_mutex_unlock(&mutex);
  }
}

bool marks_open(const char *folder) {
  pthread_mutex_lock(&mutex); // what others intern meanwhile comes after what is known
  bool open = files_open(folder);
  for (uint32_t at = 0; at < names_used; at++) write_name(at);
  for (uint32_t at = 1; at < marks_used; at++) write_mark(at), calls[at] = calls_said[at] = 0;
  pthread_mutex_unlock(&mutex);
  return open;
}

// --- what is open in a thread

typedef struct { uint32_t mark, base; } Code;                         // base: the module, or the backward of an operator
typedef struct { enum { RANGE, OPERATOR, EVALUATION, NEITHER } kind; uint32_t depth; } Pushed;

static _Thread_local struct {
  uint32_t number, depth, ranges, pushes;
  uint32_t last, evaluations; // the module of the last node of backward, and how many are evaluated within one another
  bool sampling;
  Code code[DEEP];
  uint32_t range[DEEP];
  Pushed pushed[DEEP];
} thread;

static _Atomic uint32_t threads;
static _Atomic uint64_t events;
// Number and module of forward, by torch's sequence numbers: those of the program, and those of what backward computes
// again, of which each thread has numbers of its own.
static _Atomic uint64_t sequences[2][SEQUENCES];
static struct { uint64_t id; uint32_t mark; } started[STARTED];
static _Atomic uint32_t started_used, started_range; // started_range: the innermost of these
static _Atomic uint32_t last_range; // innermost in the thread that last opened or closed one
static uint64_t started_id;

// Ranges come from NVTX, or from a recording in this process alone, which keeps them.
bool ranges_from_outside = true;

static uint32_t top(uint32_t depth) { return depth < DEEP ? depth : DEEP; }
static Code code_now(void) {
  uint32_t depth = top(thread.depth);
  return depth ? thread.code[depth - 1] : (Code){0, 0};
}
// A thread without ranges of its own, as autograd's, works for the one that last opened or closed one.
static uint32_t range_now(void) {
  return thread.ranges ? thread.range[thread.ranges - 1] : atomic_load_explicit(&last_range, memory_order_relaxed);
}
static uint32_t range_around(void) { return thread.ranges ? thread.range[thread.ranges - 1] : started_range; }

Owner owner_now(void) {
  if (!thread.number) thread.number = 1 + atomic_fetch_add(&threads, 1);
  Code code = code_now();
  bool within = code.mark && marks[code.mark].kind != 'm';
  return (Owner){code.mark, range_now(), thread.number, thread.sampling || within};
}

static uint32_t code_push(Code code) {
  if (thread.depth < DEEP) thread.code[thread.depth] = code;
  return thread.depth++;
}

bool code_inside(void) { return thread.depth > 0; }

uint32_t code_enter(uint32_t mark) {
  if (!thread.depth) atomic_fetch_add_explicit(&calls[mark], 1, memory_order_relaxed);
  return code_push((Code){mark, mark});
}
void calls_write(void) {
  for (uint32_t at = 1; at < marks_used; at++) {
    uint32_t now = calls[at];
    if (now != calls_said[at] && marks[at].kind == 'm') text("r %u %u", at, calls_said[at] = now);
  }
}
void code_leave(uint32_t depth) {
  if (depth < thread.depth) thread.depth = depth;
}

// Marks of the interpreter's objects by their address, which a later object may have again: 0 once one is gone. Of more
// objects than there is room for, some have none.
static struct { _Atomic uintptr_t object; _Atomic uint32_t mark; } modules[MODULES];

static uint32_t object_place(uintptr_t object) { return (uint32_t)((uint64_t)object * 0x9E3779B97F4A7C15u >> 46); }
_Static_assert(MODULES == 1 << 18, "the hash of an object has 18 bits");

uint32_t object_mark(uintptr_t object) {
  uint32_t place = object_place(object);
  for (int tries = 0; tries < TRIES; tries++, place = (place + 1) & (MODULES - 1)) {
    uintptr_t there = atomic_load_explicit(&modules[place].object, memory_order_acquire);
    if (there == object) return atomic_load_explicit(&modules[place].mark, memory_order_relaxed);
    if (!there) break;
  }
  return 0;
}

void object_remember(uintptr_t object, uint32_t mark) {
  uint32_t place = object_place(object), vacant = MODULES;
  pthread_mutex_lock(&mutex);
  for (int tries = 0; tries < TRIES; tries++, place = (place + 1) & (MODULES - 1)) {
    uintptr_t there = modules[place].object;
    if (there == object || ((!there || !modules[place].mark) && vacant == MODULES)) vacant = place;
    if (there == object || !there) break;
  }
  if (vacant != MODULES && (mark || modules[vacant].object == object)) {
    modules[vacant].mark = mark;
    atomic_store_explicit(&modules[vacant].object, object, memory_order_release);
  }
  pthread_mutex_unlock(&mutex);
}

void thread_sampling(bool on) { thread.sampling = on; }

uint64_t operator_events(void) { return atomic_load(&events); }

static const char BACKWARD[] = "autograd::engine::evaluate_function: ";
static const char OPERATOR_ID[] = ", op_id = ", SEQUENCE[] = ", seq = ";

static _Atomic uint64_t *module_of(long sequence, uint32_t evaluations) {
  return &sequences[evaluations > 0][sequence & (SEQUENCES - 1)];
}

// The node of autograd's graph that begins within its evaluation: it has the number of its forward, hence the module.
static Pushed push_node(long sequence, const char *name, size_t length) {
  if (sequence >= 0) {
    uint64_t known = atomic_load_explicit(module_of(sequence, thread.evaluations - 1), memory_order_relaxed);
    thread.last = (uint32_t)(known >> 32) == (uint32_t)sequence ? (uint32_t)known : 0;
  }
  uint32_t mark = mark_of(thread.last, 'b', name, length);
  if (thread.depth <= DEEP) thread.code[thread.depth - 1] = (Code){mark, mark}; // what the evaluation adds up is the node's
  return (Pushed){OPERATOR, code_push((Code){mark, mark})};
}

// Names that torch's NVTX state emits: "aten::addmm, seq = 12, op_id = 345" in forward; in backward
// "autograd::engine::evaluate_function: AddmmBackward0, op_id = 346", and within it "AddmmBackward0, seq = 12, op_id = 347".
static Pushed push_operator(const char *name, const char *end) {
  atomic_fetch_add_explicit(&events, 1, memory_order_relaxed);
  const char *numbered = strstr(name, SEQUENCE), *colons = strstr(name, "::");
  long sequence = numbered ? strtol(numbered + sizeof SEQUENCE - 1, NULL, 10) : -1;
  if (numbered && numbered < end) end = numbered;
  Code now = code_now();
  if (!strncmp(name, BACKWARD, sizeof BACKWARD - 1)) {
    name += sizeof BACKWARD - 1, thread.evaluations++;
    uint32_t mark = mark_of(thread.last, 'b', name, (size_t)(end - name));
    return (Pushed){EVALUATION, code_push((Code){mark, mark})};
  }
  const Mark *within = &marks[now.mark];
  const Name *around = &names[within->name];
  if (within->kind == 'b' && around->length == (size_t)(end - name) && !memcmp(around->name, name, around->length))
    return push_node(sequence, name, around->length);
  if (!colons || colons > end) return (Pushed){NEITHER, 0}; // a range of torch or of the program, which comes by itself
  if (sequence >= 0)
    atomic_store_explicit(module_of(sequence, thread.evaluations), (uint64_t)sequence << 32 | now.base, memory_order_relaxed);
  return (Pushed){OPERATOR, code_push((Code){mark_of(now.base, 'o', name, (size_t)(end - name)), now.base})};
}

void range_push(const char *name, bool outside) {
  if (thread.pushes >= DEEP) { // deeper ones are counted alone
    thread.pushes++;
    return;
  }
  Pushed pushed = {RANGE, 0};
  const char *end = name ? strstr(name, OPERATOR_ID) : NULL;
  if (!name) name = "range";
  if (end) {
    pushed = push_operator(name, end);
  } else if (!ranges_from_outside && outside) {
    pushed.kind = NEITHER;
  } else {
    last_range = thread.range[thread.ranges] = mark_of(range_around(), 'r', name, strnlen(name, 1024));
    thread.ranges++;
  }
  thread.pushed[thread.pushes++] = pushed;
}

void range_pop(void) {
  if (!thread.pushes) return; // pushed before we came
  if (--thread.pushes >= DEEP) return;
  Pushed pushed = thread.pushed[thread.pushes];
  if (pushed.kind == EVALUATION && thread.evaluations) thread.evaluations--;
  if (pushed.kind <= EVALUATION && pushed.kind != RANGE) code_leave(pushed.depth);
  if (pushed.kind != RANGE || !thread.ranges) return;
  thread.ranges--;
  last_range = range_around();
}

uint64_t range_start(const char *name) {
  if (!ranges_from_outside) return 0;
  if (!name) name = "range";
  uint32_t mark = mark_of(range_around(), 'r', name, strnlen(name, 1024));
  pthread_mutex_lock(&mutex);
  uint64_t id = ++started_id;
  uint32_t used = started_used;
  if (used < STARTED) {
    started[used].id = id, started[used].mark = mark;
    started_used = used + 1;
    started_range = last_range = mark;
  }
  pthread_mutex_unlock(&mutex);
  return id;
}

void range_end(uint64_t id) {
  pthread_mutex_lock(&mutex);
  uint32_t used = started_used, at = 0;
  while (at < used && started[at].id != id) at++;
  if (at < used) {
    memmove(&started[at], &started[at + 1], (used - at - 1) * sizeof started[0]);
    started_used = --used;
    started_range = used ? started[used - 1].mark : 0;
    last_range = range_around();
  }
  pthread_mutex_unlock(&mutex);
}

void marks_forked(void) { pthread_mutex_init(&mutex, NULL); }
