// Records of CUPTI as rows: found by dlopen, read at offsets that didn't move from CUDA 12.0 to 13.5.
#include "native.h"
#include <dlfcn.h>
#include <link.h>
#include <limits.h>
#include <locale.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { RECORD_COPY = 1, RECORD_SET = 2, RECORD_KERNEL = 10, RECORD_PEER_COPY = 22 };
enum { DRIVER_CALL = 1, RESOURCE = 3, NODE_CREATED = 13, NODE_DESTROYED = 14, NODE_CLONED = 20 };
enum { CALLS = 2048, LAUNCHES = 1 << 20, NODES = 1 << 20, BLOCK = 64, SHAPES = 1 << 14, TRIES = 256, HELD = 39 };
enum { SMALL = 64 << 10, FEW = 16, MANY = 16384, RECORD = 256, POOL = 8, DEVICES = 64 };
enum { FLUSH_MS = 250, CALLS_MS = 1000, TICK_MS = 50, SETTLE_S = 2, FINISH_S = 3 };

typedef int (*Callback)(void *, int, uint32_t, const void *);
static struct {
  int (*GetVersion)(uint32_t *);
  int (*Subscribe)(void **, void (*)(void *, int, uint32_t, const void *), void *);
  int (*Unsubscribe)(void *);
  int (*EnableCallback)(uint32_t, void *, int, uint32_t);
  int (*GetCallbackName)(int, uint32_t, const char **);
  int (*ActivityRegisterCallbacks)(void (*)(uint8_t **, size_t *, size_t *),
                                   void (*)(void *, uint32_t, uint8_t *, size_t, size_t));
  int (*ActivityRegisterTimestampCallback)(uint64_t (*)(void));
  int (*ActivityEnable)(int);
  int (*ActivityDisable)(int);
  int (*ActivityFlushAll)(uint32_t);
  int (*ActivityGetNextRecord)(uint8_t *, size_t, uint8_t **);
  int (*ActivityGetNumDroppedRecords)(void *, uint32_t, size_t *);
  int (*GetGraphNodeId)(void *, uint64_t *);
  int (*GetResultString)(int, const char **);
} cupti;

static const int RECORDS[] = {RECORD_KERNEL, RECORD_COPY, RECORD_SET, RECORD_PEER_COPY};
enum { RECORD_KINDS = sizeof RECORDS / sizeof RECORDS[0] };

static char problem[512];
static void *subscriber;
static _Atomic bool on;
static bool recording, held, checked;
static uint64_t began_ns;
static uintptr_t beginnings; // how often tracing has begun
static pthread_mutex_t state = PTHREAD_MUTEX_INITIALIZER;

// --- whose a launch is

static struct { _Atomic uint32_t correlation; Owner owner; } launches[LAUNCHES];
static struct { _Atomic uint64_t node; Owner owner; bool destroyed; } nodes[NODES];
enum { LAUNCH = 1, WAIT = 2 };
static uint8_t calls[CALLS]; // by number: calls of the runtime launch by those of the driver, which cost less (run-h100.md)
static _Thread_local struct { uint32_t correlation; uint64_t since; } wait;
static _Thread_local bool ours; // a thread of the tracer, whose waits aren't the program's

static bool begins(const char *name, const char *const *words) {
  for (; *words; words++)
    if (!strncmp(name, *words, strlen(*words))) return true;
  return false;
}

static uint8_t meaning(const char *name) {
  static const char *const launch[] = {"cuLaunchKernel", "cuLaunchCooperative", "cuGraphLaunch", "cuMemcpy", "cuMemset", NULL};
  static const char *const waits[] = {"cuStreamSynchronize", "cuEventSynchronize", "cuCtxSynchronize", NULL};
  return begins(name, launch) ? LAUNCH : begins(name, waits) ? WAIT : 0;
}

// Numbers of a graph's nodes follow one another: blocks of them share pages.
static uint32_t node_place(uint64_t node) {
  return (uint32_t)(node / BLOCK * 0x9E3779B97F4A7C15u >> 50) * BLOCK + node % BLOCK;
}
_Static_assert(NODES == BLOCK << 14, "the hash of a block has 14 bits");

// The place of a node; of an unknown one NODES or, if it is to be remembered, a free place. A destroyed node keeps its place
// until another needs it: records of its last launch come later.
static uint32_t node_at(uint64_t node, bool remember) {
  uint32_t place = node_place(node), old = NODES;
  for (int tries = 0; tries < TRIES; tries++, place = (place + BLOCK) & (NODES - 1)) {
    uint64_t there = atomic_load(&nodes[place].node);
    if (there == node || (!there && remember)) return place;
    if (!there) return NODES;
    if (nodes[place].destroyed && (old == NODES || there < nodes[old].node)) old = place;
  }
  return remember ? old : NODES;
}

static void remember_node(uint64_t node, Owner owner) {
  uint32_t place = node_at(node, true);
  if (place == NODES) {
    static _Atomic bool said;
    if (!atomic_exchange(&said, true)) text("w records_dropped graphs have too many nodes at once: some of their kernels have no operator");
    return;
  }
  nodes[place].owner = owner, nodes[place].destroyed = false;
  atomic_store(&nodes[place].node, node);
}

static void on_graph(uint32_t number, const void *data) {
  void *graph = FIELD(void *, data, 16);
  uint64_t id, original;
  if (!graph || cupti.GetGraphNodeId(FIELD(void *, graph, 16), &id)) return;
  if (number == NODE_CREATED) {
    remember_node(id, owner_now());
    return;
  }
  uint32_t place = NODES;
  if (number == NODE_DESTROYED) {
    if ((place = node_at(id, false)) != NODES) nodes[place].destroyed = true;
    return;
  }
  if (!cupti.GetGraphNodeId(FIELD(void *, graph, 24), &original)) place = node_at(original, false);
  if (place != NODES) remember_node(id, nodes[place].owner);
}

// A pause hides the end of a wait or its beginning: both are of one call, or there is no row.
static void on_wait(bool enters, uint32_t correlation) {
  if (enters) {
    wait.correlation = correlation, wait.since = now_ns();
  } else if (wait.since && wait.correlation == correlation) {
    Row row = {.start = wait.since, .end = now_ns(), .thread = owner_now().thread, .kind = SYNC};
    wait.since = 0;
    rows_lock();
    rows_put(&row);
    rows_unlock();
  }
}

static void on_call(void *user, int domain, uint32_t number, const void *data) {
  (void)user;
  if (domain == RESOURCE) {
    on_graph(number, data);
    return;
  }
  if (domain != DRIVER_CALL || number >= CALLS) return;
  bool enters = !FIELD(int, data, 0);
  uint32_t correlation = FIELD(uint32_t, data, 64), place = correlation & (LAUNCHES - 1);
  if (ours) return;
  if (calls[number] == WAIT) {
    on_wait(enters, correlation);
  } else if (enters) {
    launches[place].owner = owner_now();
    atomic_store_explicit(&launches[place].correlation, correlation, memory_order_release);
  }
}

// --- buffers

static struct { uint8_t *at; size_t size; } pool[POOL];
static int pooled;
static pthread_mutex_t pool_mutex = PTHREAD_MUTEX_INITIALIZER;
static _Atomic size_t most_records = FEW;
static struct { uint64_t last_end, span_ns, records, room, seen_ns; } paces[DEVICES]; // of each GPU, lately

// CUPTI hands over whole buffers alone while a GPU is never idle, and fills one for each of several GPUs: a buffer has room for
// what even the slowest runs in a tenth of a second.
static void on_requested(uint8_t **buffer, size_t *size, size_t *most) {
  pthread_mutex_lock(&pool_mutex);
  *buffer = NULL, *most = most_records, *size = *most * RECORD > SMALL ? *most * RECORD : SMALL;
  while (pooled && !*buffer) {
    pooled--;
    if (pool[pooled].size == *size) *buffer = pool[pooled].at;
    else free(pool[pooled].at);
  }
  pthread_mutex_unlock(&pool_mutex);
  if (!*buffer) *buffer = aligned_alloc(8, *size);
  if (!*buffer) *size = 0;
}

static void give_back(uint8_t *buffer, size_t size) {
  pthread_mutex_lock(&pool_mutex);
  bool keep = pooled < POOL;
  if (keep) pool[pooled].at = buffer, pool[pooled].size = size, pooled++;
  pthread_mutex_unlock(&pool_mutex);
  if (!keep) free(buffer);
}

static const char *const COPIES[] = {"", "HtoD", "DtoH", "HtoA", "AtoH", "AtoA", "AtoD", "DtoA", "DtoD", "HtoH", "PtoP"};

// CUPTI keeps one string a kernel while its module is loaded; another may lie there after that, so texts are compared.
static uint32_t kernel_name(const char *name) {
  static struct { const char *at; uint32_t number; } known[4096];
  if (!name) return name_of("kernel", 6);
  uint32_t place = (uint32_t)((uintptr_t)name * 0x9E3779B97F4A7C15u >> 52);
  if (known[place].at != name || strcmp(name_at(known[place].number), name))
    known[place].at = name, known[place].number = name_of(name, strlen(name));
  return known[place].number;
}

typedef struct {
  int32_t sizes[8]; // grid and block, bytes of static and dynamic shared memory a block, as in a record
  uint32_t registers;
} Shape;
static struct { Shape shape; uint32_t number; } shapes[SHAPES];
static uint32_t shapes_used;

// The number of the shape in which a kernel was launched, from 1 on; 0 where there are too many.
static uint32_t shape_of(const uint8_t *record) {
  Shape shape = {.registers = FIELD(uint16_t, record, 6)};
  memcpy(shape.sizes, record + 52, sizeof shape.sizes);
  uint64_t hash = shape.registers;
  for (int k = 0; k < 8; k++) hash = (hash ^ (uint32_t)shape.sizes[k]) * 0x9E3779B97F4A7C15u, hash ^= hash >> 32;
  uint32_t place = (uint32_t)hash & (SHAPES - 1);
  for (int tries = 0; tries < TRIES; tries++, place = (place + 1) & (SHAPES - 1)) {
    if (shapes[place].number && memcmp(&shapes[place].shape, &shape, sizeof shape)) continue;
    if (!shapes[place].number) {
      const int32_t *s = shape.sizes;
      shapes[place].shape = shape, shapes[place].number = ++shapes_used;
      text("c %d %d %d %d %d %d %u %d %d", s[0], s[1], s[2], s[3], s[4], s[5], shape.registers, s[6], s[7]);
    }
    return shapes[place].number;
  }
  return 0;
}

static bool noted[DEVICES]; // whose UUIDs are in the text
static void note_device(uint32_t device);

// Pauses aren't part of a pace: what follows one is as fast as what came before.
static void follow_pace(const Row *row) {
  enum { PAUSE_NS = 50000000 };
  if (row->device >= DEVICES || row->end <= paces[row->device].last_end) return;
  uint64_t last = paces[row->device].last_end, gap = row->start > last ? row->start - last : 0;
  paces[row->device].span_ns += row->end - (gap ? row->start : last) + (gap < PAUSE_NS ? gap : 0);
  paces[row->device].last_end = row->end, paces[row->device].records++;
}

static void size_buffers(void) {
  enum { BUFFER_NS = 100000000, LATELY_NS = 1000000000 };
  uint64_t now = now_ns(), most = 0;
  for (int k = 0; k < DEVICES; k++) {
    if (paces[k].records >= FEW / 2) {
      paces[k].room = paces[k].records * BUFFER_NS / (paces[k].span_ns + 1), paces[k].seen_ns = now;
      paces[k].span_ns /= 2, paces[k].records /= 2;
    }
    if (now - paces[k].seen_ns < LATELY_NS && (!most || paces[k].room < most)) most = paces[k].room;
  }
  if (most) most_records = most < FEW ? FEW : most > MANY ? MANY : most;
}

// False at a record that makes no sense, in an unknown layout.
static bool put_record(const uint8_t *at) {
  Row row = {.sampled = 0};
  uint64_t node = 0;
  switch (FIELD(int, at, 0)) {
  case RECORD_KERNEL:
    row = (Row){.kind = KERNEL, .name = kernel_name(FIELD(const char *, at, 104)), .correlation = FIELD(uint32_t, at, 92),
                .stream = FIELD(uint32_t, at, 48), .device = (uint16_t)FIELD(uint32_t, at, 40), .extra = shape_of(at)};
    node = FIELD(uint64_t, at, 144);
    break;
  case RECORD_COPY:
  case RECORD_PEER_COPY: {
    bool peer = FIELD(int, at, 0) == RECORD_PEER_COPY;
    uint8_t copy = FIELD(uint8_t, at, 4);
    char name[24];
    int n = snprintf(name, sizeof name, "memcpy %s", copy < sizeof COPIES / sizeof COPIES[0] ? COPIES[copy] : "");
    if (name[n - 1] == ' ') n--;
    uint64_t bytes = FIELD(uint64_t, at, 8);
    row = (Row){.kind = COPY, .name = name_of(name, (size_t)n), .correlation = FIELD(uint32_t, at, peer ? 60 : 44),
                .stream = FIELD(uint32_t, at, 40), .device = (uint16_t)FIELD(uint32_t, at, 32),
                .extra = bytes < UINT32_MAX ? (uint32_t)bytes : UINT32_MAX};
    node = FIELD(uint64_t, at, peer ? 72 : 64);
    break;
  }
  case RECORD_SET: {
    uint64_t bytes = FIELD(uint64_t, at, 8);
    row = (Row){.kind = SET, .name = name_of("memset", 6), .correlation = FIELD(uint32_t, at, 44),
                .stream = FIELD(uint32_t, at, 40), .device = (uint16_t)FIELD(uint32_t, at, 32),
                .extra = bytes < UINT32_MAX ? (uint32_t)bytes : UINT32_MAX};
    node = FIELD(uint64_t, at, 64);
    break;
  }
  default:
    return true;
  }
  row.start = FIELD(uint64_t, at, 16), row.end = FIELD(uint64_t, at, 24);
  if (!row.end) return rows_dropped(1), true; // the program ended before it
  if (!checked && row.kind == KERNEL) {
    uint64_t now = now_ns();
    checked = row.start <= row.end && row.start + 1000000000u > began_ns && row.end < now + 1000000000u && row.device < DEVICES;
    if (!checked) return false;
  }
  note_device(row.device);
  // A graph's kernels belong to the code that they were captured in, and to the range that launches them, if there is one.
  const uint32_t launch = row.correlation & (LAUNCHES - 1), captured = node ? node_at(node, false) : NODES;
  Owner owner = {0}, code;
  if (atomic_load_explicit(&launches[launch].correlation, memory_order_acquire) == row.correlation)
    owner = launches[launch].owner;
  code = captured != NODES ? nodes[captured].owner : owner;
  row.owner = code.owner, row.sampled = code.sampled;
  row.range = owner.range ? owner.range : code.range, row.thread = owner.thread ? owner.thread : code.thread;
  follow_pace(&row);
  rows_put(&row);
  return true;
}

static _Atomic bool nonsense; // records have come in an unknown layout

static void on_completed(void *context, uint32_t stream, uint8_t *buffer, size_t size, size_t valid) {
  (void)context, (void)stream;
  uint8_t *record = NULL;
  bool sound = !nonsense;
  if (sound && files_are_open()) {
    rows_lock();
    while (sound && valid && !cupti.ActivityGetNextRecord(buffer, valid, &record)) sound = put_record(record);
    size_buffers();
    rows_unlock();
  }
  give_back(buffer, size);
  if (!sound && !atomic_exchange(&nonsense, true)) text("w not_traced kernels: records of this version of CUPTI make no sense");
}

// --- devices

static void *driver(const char *name) {
  static void *library;
  if (!library) library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_NOLOAD);
  return library ? dlsym(library, name) : NULL;
}

static void note_device(uint32_t device) {
  if (device >= DEVICES || noted[device]) return;
  noted[device] = true;
  int (*get)(int *, int), (*uuid)(unsigned char *, int), (*called)(char *, int, int), handle;
  *(void **)&get = driver("cuDeviceGet");
  *(void **)&uuid = driver("cuDeviceGetUuid_v2"), *(void **)&called = driver("cuDeviceGetName");
  unsigned char b[16];
  char name[256] = "";
  if (!get || !uuid || get(&handle, (int)device) || uuid(b, handle)) return;
  if (called) called(name, sizeof name, handle);
  text("i device %u %s-%02x%02x%02x%02x-%02x%02x-%02x%02x-%02x%02x-%02x%02x%02x%02x%02x%02x", device,
       strstr(name, " MIG ") ? "MIG" : "GPU", b[0], b[1], b[2], b[3], b[4], b[5], b[6], b[7], b[8], b[9], b[10], b[11], b[12], b[13], b[14], b[15]);
}

// --- the library

static int mapped(struct dl_phdr_info *info, size_t size, void *found) {
  (void)size;
  const char *base = strrchr(info->dlpi_name, '/');
  if (base && !strncmp(base, "/libcupti.so", 12)) snprintf(found, PATH_MAX, "%s", info->dlpi_name);
  return 0;
}

static int beside(struct dl_phdr_info *info, size_t size, void *found) {
  (void)size;
  const char *base = strrchr(info->dlpi_name, '/');
  if (base && !strncmp(base, "/libcudart.so", 13)) snprintf(found, PATH_MAX, "%.*s", (int)(base - info->dlpi_name), info->dlpi_name);
  return 0;
}

// The newest libcupti in a place that the driver can have; the place is the beginning of a path, or empty for the loader's.
static void *newest(const char *place, int length, const char *rest, int major) {
  char name[2 * PATH_MAX];
  void *library = NULL;
  for (; major >= 12 && !library; major--) {
    snprintf(name, sizeof name, "%.*s%slibcupti.so.%d", length, place, rest, major);
    library = dlopen(name, RTLD_NOW);
  }
  return library;
}

// The libcupti that is mapped, else the one of the program's runtime, else those of JOULETRACE_CUPTI: never a second one.
static void *find_cupti(void) {
  static const char *const places[] = {"/", "/../../cuda_cupti/lib/", "/../extras/CUPTI/lib64/"};
  char path[PATH_MAX] = "", folder[PATH_MAX] = "";
  void *library = NULL;
  dl_iterate_phdr(mapped, path);
  if (*path && (library = dlopen(path, RTLD_NOW))) return library;
  int version = 0, (*get)(int *);
  *(void **)&get = driver("cuDriverGetVersion");
  if (get) get(&version);
  int major = version && version < 14000 ? version / 1000 : 14;
  dl_iterate_phdr(beside, folder);
  for (size_t k = 0; *folder && k < sizeof places / sizeof places[0] && !library; k++)
    library = newest(folder, PATH_MAX, places[k], major);
  for (const char *at = getenv("JOULETRACE_CUPTI"), *end; at && *at && !library; at = *end ? end + 1 : end) {
    end = strchrnul(at, ':');
    library = newest(at, (int)(end - at), "/", major);
  }
  return library ? library : newest("", 0, "", major);
}

static bool refused(const char *function, int error) {
  const char *why = NULL, *said = NULL;
  if (!error) return false;
  switch (error) {
  case 15: why = "CUPTI is not initialised: check that a CUDA driver is installed"; break;
  case 35: why = "no permission to trace: ask the administrator for NVreg_RestrictProfilingToAdminUsers=0, or run as root"; break;
  case 36: why = "another profiler holds the GPU through an older interface: end it first"; break;
  case HELD: why = "another profiler holds CUPTI in this process: end it first"; break;
  case 40: why = "no permission to trace in this virtual machine: the host must allow profiling"; break;
  case 43: why = "kernels can't be traced on a MIG instance with this driver"; break;
  default: break;
  }
  if (cupti.GetResultString) cupti.GetResultString(error, &said);
  if (why) snprintf(problem, sizeof problem, "%s", why);
  else snprintf(problem, sizeof problem, "%s failed: %s", function, said ? said : "for an unknown reason");
  return true;
}

static bool load(void) {
  static const struct { const char *name; void **at; bool needed; } functions[] = {
#define FUNCTION(name, needed) {"cupti" #name, (void **)&cupti.name, needed}
      FUNCTION(GetVersion, true), FUNCTION(Subscribe, true), FUNCTION(Unsubscribe, true), FUNCTION(EnableCallback, true),
      FUNCTION(GetCallbackName, true), FUNCTION(ActivityRegisterCallbacks, true), FUNCTION(ActivityEnable, true),
      FUNCTION(ActivityDisable, true), FUNCTION(ActivityFlushAll, true), FUNCTION(ActivityGetNextRecord, true),
      FUNCTION(ActivityGetNumDroppedRecords, false), FUNCTION(GetGraphNodeId, false), FUNCTION(GetResultString, false),
      FUNCTION(ActivityRegisterTimestampCallback, false)};
  void *library = find_cupti();
  if (!library) {
    snprintf(problem, sizeof problem, "libcupti is not installed; CUDA builds of torch and the CUDA Toolkit include it");
    return false;
  }
  for (size_t k = 0; k < sizeof functions / sizeof functions[0]; k++)
    if (!(*functions[k].at = dlsym(library, functions[k].name)) && functions[k].needed) {
      snprintf(problem, sizeof problem, "libcupti has no %s", functions[k].name);
      return false;
    }
  uint32_t version = 0;
  if (refused("cuptiGetVersion", cupti.GetVersion(&version))) return false;
  if (version < 18) snprintf(problem, sizeof problem, "libcupti is version %u; CUDA 12 or later is required", version);
  else text("i cupti %u", version);
  return version >= 18;
}

static void callbacks(uint32_t enable) {
  if (!subscriber) return;
  for (uint32_t number = 1; number < CALLS; number++) {
    const char *name = NULL;
    if (!calls[number] && enable && !cupti.GetCallbackName(DRIVER_CALL, number, &name) && name) calls[number] = meaning(name);
    if (calls[number]) cupti.EnableCallback(enable, subscriber, DRIVER_CALL, number);
  }
  // Graphs may be captured while tracing pauses, and launched later.
  if (enable && cupti.GetGraphNodeId) {
    cupti.EnableCallback(1, subscriber, RESOURCE, NODE_CREATED);
    cupti.EnableCallback(1, subscriber, RESOURCE, NODE_DESTROYED);
    cupti.EnableCallback(1, subscriber, RESOURCE, NODE_CLONED);
  }
}

static bool records(bool enable) {
  uint64_t before = now_ns();
  for (int k = 0; k < RECORD_KINDS; k++) {
    int error = enable ? cupti.ActivityEnable(RECORDS[k]) : cupti.ActivityDisable(RECORDS[k]);
    if (error && enable && !k && refused("cuptiActivityEnable", error)) return false;
  }
  if (enable != recording) text("%c %llu", enable ? 's' : 'e', (unsigned long long)(enable ? before : now_ns()));
  recording = enable;
  return true;
}

static void detach(uint32_t forced) {
  if (recording) records(false);
  callbacks(0);
  cupti.ActivityFlushAll(forced);
  if (subscriber) cupti.Unsubscribe(subscriber);
  subscriber = NULL;
}

// Takes CUPTI. torch's profiler keeps its one subscription after its end: records come without one, but have no owners, which
// the warning though_held says; it is NULL where another profiler may be recording. It also leaves stamps in a clock of its
// own, which it sets anew whenever it begins.
static bool attach(const char *though_held) {
  int error = cupti.Subscribe(&subscriber, on_call, NULL);
  if (error) subscriber = NULL;
  if (error == HELD && though_held) {
    text("w profiler_inside %s", though_held);
    if (cupti.ActivityRegisterTimestampCallback) cupti.ActivityRegisterTimestampCallback(now_ns);
  } else if (refused("cuptiSubscribe", error)) return false;
  bool done = !refused("cuptiActivityRegisterCallbacks", cupti.ActivityRegisterCallbacks(on_requested, on_completed));
  if (done) callbacks(1), done = records(true);
  if (!done) detach(0); // a profiler of the program's own may take it
  return done;
}

// --- which part of the program is traced

static struct {
  double first_s, first_kernels, traced_s, every_s, most_kernels;
  uint64_t since_ns, kernels;
  bool beginning;
} duty;

static void duty_begin(const char *given) {
  duty.first_s = 1e18, duty.first_kernels = 1.5e6, duty.traced_s = 5, duty.every_s = 60, duty.most_kernels = 4e6;
  locale_t plain = newlocale(LC_ALL_MASK, "C", 0), before = uselocale(plain); // numbers of the program's may have commas
  if (given) sscanf(given, "%lf %lf %lf %lf %lf", &duty.first_s, &duty.first_kernels, &duty.traced_s, &duty.every_s, &duty.most_kernels);
  uselocale(before);
  if (plain) freelocale(plain);
  duty.since_ns = now_ns(), duty.beginning = true;
}

static void duty_follow(void) {
  double seconds = (double)(now_ns() - duty.since_ns) / 1e9;
  uint64_t kernels = rows_count();
  if (recording) {
    bool over = duty.beginning ? seconds >= duty.first_s || (double)kernels >= duty.first_kernels : seconds >= duty.traced_s;
    if (!over) return;
    if (duty.beginning) duty.kernels = kernels;
    else if ((double)(kernels - duty.kernels) > duty.most_kernels) duty.kernels = kernels, duty.every_s *= 2;
    duty.beginning = false;
    callbacks(0);
    records(false);
    cupti.ActivityFlushAll(0);
  } else if (seconds < duty.every_s - duty.traced_s) {
    return;
  } else {
    callbacks(1);
    records(true);
  }
  duty.since_ns = now_ns();
}

static void *follow(void *mine) {
  for (int ticks = 1;; ticks++) {
    usleep(TICK_MS * 1000);
    pthread_mutex_lock(&state);
    bool go = on && (uintptr_t)mine == beginnings; // a later beginning has a thread of its own
    if (go && !held && (nonsense || files_are_removed())) held = true, detach(0);
    if (go && !held) {
      if (recording && ticks % (FLUSH_MS / TICK_MS) == 0) cupti.ActivityFlushAll(0), rows_flushed(now_ns());
      duty_follow();
    }
    if (go && ticks % (CALLS_MS / TICK_MS) == 0) calls_write(); // a program that is killed ends here
    pthread_mutex_unlock(&state);
    if (!go) return NULL;
  }
}

// --- begin and end

static void forked(void) {
  pthread_mutex_init(&state, NULL);
  pthread_mutex_init(&pool_mutex, NULL);
  marks_forked();
  files_abandon();
  on = false;
}

// Before CUDA starts, too: ranges of NVTX are interned from the program's first.
__attribute__((constructor)) static void loaded(void) { pthread_atfork(NULL, NULL, forked); }

static void command_line(void) {
  char words[8192];
  FILE *file = fopen("/proc/self/cmdline", "re");
  size_t n = file ? fread(words, 1, sizeof words - 1, file) : 0;
  if (file) fclose(file);
  while (n && !words[n - 1]) n--;
  for (size_t k = 0; k < n; k++)
    if (!words[k]) words[k] = 31;
  words[n] = 0;
  text("i cmdline %s", words);
  const char *rank = getenv("RANK"), *world = getenv("WORLD_SIZE");
  if (rank && world && atoi(world) > 1) text("i rank %d", atoi(rank));
}

static void *settle(void *nothing) {
  int count = 0, (*counted)(int *), (*get)(int *, int), (*active)(int, unsigned *, int *), (*retain)(void **, int), (*release)(int);
  int (*push)(void *), (*pop)(void **), (*synchronize)(void);
  ours = true;
  *(void **)&counted = driver("cuDeviceGetCount"), *(void **)&get = driver("cuDeviceGet");
  *(void **)&active = driver("cuDevicePrimaryCtxGetState"), *(void **)&retain = driver("cuDevicePrimaryCtxRetain");
  *(void **)&release = driver("cuDevicePrimaryCtxRelease_v2"), *(void **)&push = driver("cuCtxPushCurrent_v2");
  *(void **)&pop = driver("cuCtxPopCurrent_v2"), *(void **)&synchronize = driver("cuCtxSynchronize");
  if (!counted || !get || !active || !retain || !release || !push || !pop || !synchronize || counted(&count)) return nothing;
  for (int k = 0; k < count; k++) {
    int device, is_active = 0;
    unsigned flags;
    void *context = NULL;
    if (get(&device, k) || active(device, &flags, &is_active) || !is_active || retain(&context, device)) continue;
    if (!push(context)) synchronize(), pop(&context);
    release(device);
  }
  return nothing;
}

// Calls a function in a thread of ours and waits for it, but not for ever; false without a thread.
static bool bounded(void *(*function)(void *), int seconds) {
  pthread_t thread;
  if (thread_create(&thread, function, NULL)) return false;
  struct timespec until;
  clock_gettime(CLOCK_REALTIME, &until);
  until.tv_sec += seconds;
  if (pthread_timedjoin_np(thread, NULL, &until)) pthread_detach(thread);
  return true;
}

int tracing_start(const char *folder, const char *given, bool after_profiler) {
  static const char BEFORE[] = "torch's profiler, which the program used before, keeps CUPTI: kernels have no modules and ranges";
  pthread_mutex_lock(&state);
  int code = on ? 1 : 0;
  if (!code) {
    *problem = 0, checked = held = nonsense = false, began_ns = now_ns();
    memset(noted, 0, sizeof noted), memset(shapes, 0, sizeof shapes), shapes_used = 0;
    if (!marks_open(folder)) snprintf(problem, sizeof problem, "no file can be written in %s", folder), code = 3;
  } else {
    snprintf(problem, sizeof problem, "this process is traced already, and its kernels are in that Run");
  }
  if (!code) {
    command_line();
    duty_begin(given);
    code = !load() ? 2 : !attach(after_profiler ? BEFORE : NULL) ? 3 : 0;
    on = !code;
    pthread_t thread;
    if (on && thread_create(&thread, follow, (void *)++beginnings)) {
      snprintf(problem, sizeof problem, "no thread can be created");
      code = 3;
      on = false;
      detach(0);
    } else if (on) {
      pthread_detach(thread);
    }
    if (code) text("w not_traced kernels: %s", problem);
    if (code) files_close(true);
  }
  pthread_mutex_unlock(&state);
  return code;
}

static void *finish(void *nothing) {
  size_t dropped = 0;
  pthread_mutex_lock(&state);
  on = false;
  detach(1);
  calls_write();
  if (cupti.ActivityGetNumDroppedRecords && !cupti.ActivityGetNumDroppedRecords(NULL, 0, &dropped)) rows_dropped(dropped);
  rows_flushed(now_ns());
  files_close(true);
  pthread_mutex_unlock(&state);
  return nothing;
}

// A collective whose peer has died never ends, and a signal's handler may call exit while its thread holds a lock of ours or
// of CUPTI's: then the files stay as they are.
bool tracing_stop(void) {
  if (!on) return true;
  bounded(settle, SETTLE_S);
  if (!bounded(finish, FINISH_S)) finish(NULL);
  return !on && !files_are_open();
}

void tracing_pause(void) {
  pthread_mutex_lock(&state);
  if (on && !held) held = true, detach(1);
  pthread_mutex_unlock(&state);
}

void tracing_resume(void) {
  static const char AFTER[] = "after it, kernels are recorded without their modules, since it keeps CUPTI";
  pthread_mutex_lock(&state);
  if (on && held && !nonsense && attach(AFTER)) held = false;
  else if (on && held && !nonsense) text("w not_traced kernels: %s; kernels after torch's profiler are missing", problem);
  pthread_mutex_unlock(&state);
}

bool tracing_is_on(void) { return on; }
uint64_t tracing_began_ns(void) { return began_ns; }
const char *tracing_problem(void) { return problem; }
