// Ranges of NVTX, in any language: our own handlers in the table that the header-only library asks for.
#include "native.h"
#include <stdlib.h>
#include <string.h>

typedef void (*Function)(void);
typedef Function **Table;
typedef const void *(*GetTable)(uint32_t);
typedef struct { size_t size; int (*module)(uint32_t, Table *, unsigned *); } Callbacks;
enum { CALLBACKS = 1, CORE = 1, CORE2 = 5, ASCII = 1, REGISTERED = 3 };

// Domains: those of libraries hold ranges that aren't the program's.
static char of_program, of_library;
static const char *const LIBRARIES[] = {"NCCL", "CCCL", "libcudf", "cuBLAS", "cuDNN", "cuFFT", "cuSPARSE", "cuSOLVER", "TSL", NULL};

static const char *message(const void *attributes) {
  int type = FIELD(int, attributes, 32);
  return type == ASCII || type == REGISTERED ? FIELD(const char *, attributes, 40) : NULL;
}

static int push(const char *name) { return range_push(name, true), 0; }
static int push_ex(const void *attributes) { return range_push(message(attributes), true), 0; }
static int pop(void) { return range_pop(), 0; }
static uint64_t start(const char *name) { return range_start(name); }
static uint64_t start_ex(const void *attributes) { return range_start(message(attributes)); }
static void end(uint64_t id) { range_end(id); }

static int domain_push(void *domain, const void *attributes) { return domain == &of_library ? 0 : push_ex(attributes); }
static int domain_pop(void *domain) { return domain == &of_library ? 0 : pop(); }
static uint64_t domain_start(void *domain, const void *attributes) { return domain == &of_library ? 0 : start_ex(attributes); }
static void domain_end(void *domain, uint64_t id) {
  if (domain != &of_library) end(id);
}
static void *domain_create(const char *name) {
  for (const char *const *one = LIBRARIES; name && *one; one++)
    if (!strcmp(name, *one)) return &of_library;
  return &of_program;
}
static void *domain_register(void *domain, const char *text) { return (void)domain, strdup(text ? text : "range"); }

static void put(Table table, unsigned size, unsigned at, Function function) {
  if (at < size && table[at]) *table[at] = function;
}

EXPORT int InitializeInjectionNvtx2(GetTable get) {
  const Callbacks *callbacks = get(CALLBACKS);
  Table core = NULL, core2 = NULL;
  unsigned size = 0, size2 = 0;
  if (!callbacks || !callbacks->module(CORE, &core, &size)) return 0;
  put(core, size, 4, (Function)start_ex), put(core, size, 5, (Function)start), put(core, size, 7, (Function)end);
  put(core, size, 8, (Function)push_ex), put(core, size, 9, (Function)push), put(core, size, 11, (Function)pop);
  if (callbacks->module(CORE2, &core2, &size2)) {
    put(core2, size2, 2, (Function)domain_start), put(core2, size2, 3, (Function)domain_end);
    put(core2, size2, 4, (Function)domain_push), put(core2, size2, 5, (Function)domain_pop);
    put(core2, size2, 10, (Function)domain_register), put(core2, size2, 12, (Function)domain_create);
  }
  return 1;
}
