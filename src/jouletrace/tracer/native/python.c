// The interpreter of the program, if there is one: functions for hooks.py, which a thread of ours runs in it.
#include "native.h"
#include <dlfcn.h>
#include <limits.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

typedef struct Object Object;
typedef struct { const char *name; void *function; int flags; const char *doc; } Method;
typedef Object *const *Arguments;
typedef Object *Called(Object *function, Arguments given, size_t n, Object *names); // by PEP 590
enum { FASTCALL = 0x80, FILE_INPUT = 257, EARLY_MS = 20, EARLY = 250, SOON_MS = 100, LATE_MS = 1000 };

static struct {
  int (*IsInitialized)(void);
  int (*IsFinalizing)(void);
  int (*Ensure)(void);
  void (*Release)(int);
  Object *(*NewFunction)(Method *, Object *, Object *);
  Object *(*NewDict)(void);
  int (*Put)(Object *, const char *, Object *);
  Object *(*Get)(Object *, const char *);
  Object *(*Run)(const char *, int, Object *, Object *);
  Object *(*Call)(Object *, Object *);
  Object *(*Builtins)(void);
  Object *(*Tuple)(intptr_t);
  Object *(*FromLong)(long);
  Object *(*Value)(const char *, ...);
  long (*AsLong)(Object *);
  unsigned long long (*AsUnsigned)(Object *);
  const char *(*AsText)(Object *, intptr_t *);
  void (*Keep)(Object *);
  void (*Drop)(Object *);
  void (*Clear)(void);
  Object *(*Interned)(const char *);
  Object *(*Attribute)(Object *, Object *);
  Object *none;
} python;

static bool resolve(void) {
  static const struct { const char *name; void **at; } symbols[] = {
      {"Py_IsInitialized", (void **)&python.IsInitialized}, {"PyGILState_Ensure", (void **)&python.Ensure},
      {"PyGILState_Release", (void **)&python.Release}, {"PyCFunction_NewEx", (void **)&python.NewFunction},
      {"PyDict_New", (void **)&python.NewDict}, {"PyDict_SetItemString", (void **)&python.Put},
      {"PyDict_GetItemString", (void **)&python.Get}, {"PyRun_String", (void **)&python.Run},
      {"PyObject_CallObject", (void **)&python.Call}, {"PyEval_GetBuiltins", (void **)&python.Builtins},
      {"PyTuple_New", (void **)&python.Tuple}, {"PyLong_FromLong", (void **)&python.FromLong},
      {"Py_BuildValue", (void **)&python.Value}, {"PyLong_AsLong", (void **)&python.AsLong},
      {"PyLong_AsUnsignedLongLong", (void **)&python.AsUnsigned}, {"PyUnicode_AsUTF8AndSize", (void **)&python.AsText},
      {"Py_IncRef", (void **)&python.Keep}, {"Py_DecRef", (void **)&python.Drop}, {"PyErr_Clear", (void **)&python.Clear},
      {"PyUnicode_InternFromString", (void **)&python.Interned}, {"PyObject_GetAttr", (void **)&python.Attribute},
      {"_Py_NoneStruct", (void **)&python.none}};
  bool found = true;
  for (size_t k = 0; k < sizeof symbols / sizeof symbols[0]; k++)
    found = (*symbols[k].at = dlsym(RTLD_DEFAULT, symbols[k].name)) && found;
  void *ending = dlsym(RTLD_DEFAULT, "Py_IsFinalizing");
  if (!ending) ending = dlsym(RTLD_DEFAULT, "_Py_IsFinalizing");
  *(void **)&python.IsFinalizing = ending;
  return found && ending;
}

static Object *nothing(void) { return python.Keep(python.none), python.none; }
static uint32_t number(Object *object) { return (uint32_t)python.AsLong(object); }

static Object *enter(Object *self, Arguments given, intptr_t n) { return (void)self, (void)n, python.FromLong(code_enter(number(given[0]))); }
// Enters the mark of a module: the depth before, or -1 if it has none.
static Object *within(Object *self, Arguments given, intptr_t n) {
  (void)self, (void)n;
  uint32_t found = object_mark((uintptr_t)given[0]);
  return python.FromLong(found ? (long)code_enter(found) : -1);
}
static Object *marked(Object *self, Arguments given, intptr_t n) {
  return (void)self, (void)n, python.FromLong(object_mark((uintptr_t)python.AsUnsigned(given[0])));
}
static Object *remember(Object *self, Arguments given, intptr_t n) {
  return (void)self, (void)n, object_remember((uintptr_t)python.AsUnsigned(given[0]), number(given[1])), nothing();
}
static Object *leave(Object *self, Arguments given, intptr_t n) { return (void)self, (void)n, code_leave(number(given[0])), nothing(); }
static Object *pop(Object *self, Arguments given, intptr_t n) { return (void)self, (void)given, (void)n, range_pop(), nothing(); }

static struct { Called *plain, *method; Object *compiled, *call; } modules;

// Does what the function does that stands for the call of a module, if that has a mark and is called within another:
// without a frame, which costs more than all the rest.
static Object *call_module(Object *function, Arguments given, size_t n, Object *names) {
  const size_t count = n & SIZE_MAX >> 1; // the first bit is a flag
  const uint32_t found = count && code_inside() ? object_mark((uintptr_t)given[0]) : 0;
  const uint32_t depth = found ? code_enter(found) : 0; // a call that is counted, outside of others, is entered once
  Object *compiled = found ? python.Attribute(given[0], modules.compiled) : NULL, *result = NULL;
  const bool quick = compiled == python.none;
  if (compiled) python.Drop(compiled);
  else python.Clear();
  if (quick) result = modules.method(modules.call, given, count, names);
  if (found) code_leave(depth);
  return quick ? result : modules.plain(function, given, n, names);
}

// Lets C stand for the function from Python 3.12 on. torch's compiler goes through the function's code all the same.
static Object *quicken(Object *self, Arguments given, intptr_t n) {
  (void)self, (void)n;
  Called *(*get)(Object *);
  void (*set)(Object *, Called *);
  *(void **)&get = dlsym(RTLD_DEFAULT, "PyVectorcall_Function");
  *(void **)&set = dlsym(RTLD_DEFAULT, "PyFunction_SetVectorcall");
  *(void **)&modules.method = dlsym(RTLD_DEFAULT, "PyObject_VectorcallMethod");
  if (get && set && modules.method) {
    modules.compiled = python.Interned("_compiled_call_impl"), modules.call = python.Interned("_call_impl");
    modules.plain = get(given[0]), set(given[0], call_module);
  }
  return nothing();
}

static const char *string(Object *object, intptr_t *length) {
  const char *found = python.AsText(object, length);
  if (!found) python.Clear(), found = "?", *length = 1; // a name with surrogates
  return found;
}

static Object *mark(Object *self, Arguments given, intptr_t n) {
  intptr_t length, letters;
  (void)self, (void)n;
  const char *name = string(given[2], &length), *kind = string(given[1], &letters);
  return python.FromLong(mark_of(number(given[0]), *kind, name, (size_t)(length < 1024 ? length : 1024)));
}

static Object *push(Object *self, Arguments given, intptr_t n) {
  intptr_t length;
  (void)self, (void)n;
  range_push(string(given[0], &length), false);
  return nothing();
}

static Object *span(Object *self, Arguments given, intptr_t n) {
  (void)self, (void)n;
  Row row = {.kind = (uint8_t)number(given[0]), .start = python.AsUnsigned(given[1]), .end = python.AsUnsigned(given[2]),
             .thread = owner_now().thread};
  rows_lock();
  rows_put(&row);
  rows_unlock();
  return nothing();
}

static Object *line(Object *self, Arguments given, intptr_t n) {
  intptr_t length;
  (void)self, (void)n;
  text("%s", string(given[0], &length));
  return nothing();
}

static Object *cost(Object *self, Arguments given, intptr_t n) {
  (void)self, (void)given, (void)n;
  return python.Value("(KK)", (unsigned long long)operator_events(), (unsigned long long)(now_ns() - tracing_began_ns()));
}

static Object *sampling(Object *self, Arguments given, intptr_t n) {
  (void)self, (void)n;
  thread_sampling(python.AsLong(given[0]) != 0);
  return nothing();
}

static Object *hold(Object *self, Arguments given, intptr_t n) { return (void)self, (void)given, (void)n, tracing_pause(), nothing(); }
static Object *release(Object *self, Arguments given, intptr_t n) { return (void)self, (void)given, (void)n, tracing_resume(), nothing(); }

// A new dict of the functions; the caller holds the interpreter's lock.
void *python_functions(void) {
  static Method methods[] = {
      {"enter", (void *)enter, FASTCALL, NULL}, {"leave", (void *)leave, FASTCALL, NULL}, {"mark", (void *)mark, FASTCALL, NULL},
      {"within", (void *)within, FASTCALL, NULL}, {"marked", (void *)marked, FASTCALL, NULL},
      {"remember", (void *)remember, FASTCALL, NULL}, {"push", (void *)push, FASTCALL, NULL},
      {"pop", (void *)pop, FASTCALL, NULL}, {"span", (void *)span, FASTCALL, NULL},
      {"text", (void *)line, FASTCALL, NULL}, {"cost", (void *)cost, FASTCALL, NULL},
      {"sampling", (void *)sampling, FASTCALL, NULL}, {"pause", (void *)hold, FASTCALL, NULL},
      {"resume", (void *)release, FASTCALL, NULL}, {"quicken", (void *)quicken, FASTCALL, NULL}};
  if (!python.none && !resolve()) return NULL;
  Object *functions = python.NewDict();
  for (size_t k = 0; functions && k < sizeof methods / sizeof methods[0]; k++) {
    Object *function = python.NewFunction(&methods[k], NULL, NULL);
    if (function) python.Put(functions, methods[k].name, function), python.Drop(function);
  }
  return functions;
}

static bool operators;

static char *source(void) {
  Dl_info here;
  char path[PATH_MAX];
  if (!dladdr((void *)python_functions, &here) || !here.dli_fname) return NULL;
  const char *slash = strrchr(here.dli_fname, '/');
  snprintf(path, sizeof path, "%.*shooks.py", slash ? (int)(slash - here.dli_fname + 1) : 0, here.dli_fname);
  FILE *file = fopen(path, "re");
  if (!file) return NULL;
  char *code = calloc(1, 1 << 18);
  if (code && !fread(code, 1, (1 << 18) - 1, file)) free(code), code = NULL;
  fclose(file);
  return code;
}

static char *code; // of the hooks, read at once: the program may become another user, or leave for another root

// The hooks' globals, NULL if they can't run; the lock is held.
static Object *hooks(void) {
  Object *globals = code ? python_functions() : NULL;
  if (globals) {
    Object *flag = python.FromLong(operators), *ranges = python.FromLong(ranges_from_outside);
    python.Put(globals, "OPERATORS", flag), python.Drop(flag);
    python.Put(globals, "RANGES", ranges), python.Drop(ranges);
    python.Put(globals, "__builtins__", python.Builtins());
    Object *done = python.Run(code, FILE_INPUT, globals, globals);
    if (!done) python.Clear(), globals = NULL;
    else python.Drop(done);
  }
  return globals;
}

static bool alive(void) { return tracing_is_on() && python.IsInitialized() && !python.IsFinalizing(); }

// Without memory Python ends the process where a thread takes its lock for the first time.
static bool room(void) {
  void *volatile some = malloc(1 << 20);
  free(some);
  return some;
}

// Calls a function of the hooks; true if it returned something true.
static bool call(Object *globals, const char *name) {
  Object *function = python.Get(globals, name), *done = function ? python.Call(function, NULL) : NULL;
  bool yes = done && python.AsLong(done) > 0;
  python.Clear();
  if (done) python.Drop(done);
  return yes;
}

static Object *globals; // of the hooks that run
static _Atomic bool ended;
static _Atomic uintptr_t beginnings;

static void end_hooks(Object *of) {
  call(of, "end");
  python.Drop(of);
}

// The globals of hooks that run now; the lock is held, save where their text imports.
static Object *begun(uintptr_t mine) {
  Object *made = hooks();
  if (!made) {
    text("w hooks_failed modules and operators: the hooks can't run in this Python");
    ended = true;
  } else if (ended || mine != beginnings) { // meanwhile
    end_hooks(made), made = NULL;
  }
  return made;
}

// A pending call waits for ever behind a main thread that sleeps; a thread has the lock after some milliseconds.
static void *look(void *given) {
  const uintptr_t mine = (uintptr_t)given;
  bool was_alive = false, installed = false; // an interpreter that begins again has no hooks: those of the former are gone
  for (int ticks = 0; alive() || (tracing_is_on() && !was_alive && !python.IsInitialized()); ticks++) {
    if (alive() && room()) {
      int lock = python.Ensure();
      was_alive = true;
      bool over = ended || mine != beginnings; // a later recording has a thread of its own
      if (!over && !globals) globals = begun(mine), over = !globals;
      if (!over) installed = call(globals, "look");
      python.Release(lock);
      if (over) return NULL;
    }
    usleep(1000 * (installed ? LATE_MS : ticks < EARLY ? EARLY_MS : SOON_MS));
  }
  return NULL;
}

// Takes the hooks out again; the caller holds the interpreter's lock.
void python_end(void) {
  Object *running = globals;
  ended = true;
  globals = NULL;
  if (running) end_hooks(running);
}

void python_begin(bool with_operators) {
  pthread_t thread;
  operators = with_operators, ended = false;
  uintptr_t mine = ++beginnings;
  if (!resolve()) return;
  if (!code) code = source(), dlopen("libgcc_s.so.1", RTLD_LAZY); // Python may end our thread, which needs it
  if (!thread_create(&thread, look, (void *)mine)) pthread_detach(thread);
}
