// The functions that others call: CUDA's driver as it starts, Python through ctypes.
#include "native.h"
#include <stdlib.h>
#include <string.h>

static void at_exit(void) { (void)tracing_stop(); }

// Called by the driver within cuInit, where nothing may call Python or CUDA's own start again.
EXPORT int InitializeInjection(void) {
  const char *folder = getenv("JOULETRACE_TRACE"), *operators = getenv("JOULETRACE_OPERATORS");
  if (!folder || !*folder || tracing_start(folder, getenv("JOULETRACE_DUTY"), false)) return 1; // the program goes on without us
  atexit(at_exit);
  python_begin(!operators || strcmp(operators, "0"));
  return 1;
}

// A recording in this process keeps its ranges by itself, also those before CUDA starts.
EXPORT void *jt_functions(void) {
  if (!tracing_is_on()) ranges_from_outside = false;
  return python_functions();
}

EXPORT int jt_start(const char *folder, int operators, const char *duty, int after_profiler) {
  if (!tracing_is_on()) ranges_from_outside = false, clock_share();
  int code = tracing_start(folder, duty, after_profiler != 0);
  if (!code) python_begin(operators != 0);
  return code;
}

EXPORT void jt_end_hooks(void) { python_end(); }
EXPORT int jt_stop(void) { return !tracing_stop(); } // not 0: it goes on ending, and files lack its last rows
EXPORT const char *jt_problem(void) { return tracing_problem(); }
