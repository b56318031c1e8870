"""Runs WARM steps of a program, then MEASURED in a range; with TRUTH, these by torch's profiler.

    steps.py PROGRAM WARM MEASURED [TRUTH.json]

The truth is a list of [kernel, operator, module] in the order of launches: by Kineto's own correlation of launches with
operators, modules by annotations of hooks, and backward by autograd's sequence numbers.
"""

import bisect
import gc
import json
import os
import runpy
import sys
import tempfile
import threading
import types
from collections import defaultdict
from pathlib import Path

import torch

WRAPPERS = ("_orig_mod", "_fsdp_wrapped_module", "_checkpoint_wrapped_module")


def names_of_modules():
    found = {}
    every = [one for one in gc.get_objects() if issubclass(type(one), torch.nn.Module)]
    inner = {id(child) for one in every for child in one.children()}
    for root in every:
        if id(root) in inner:
            continue
        for name, one in root.named_modules():
            words = [word for word in name.split(".") if word not in WRAPPERS]
            found.setdefault(id(one), ".".join(filter(None, words)) or type(one).__name__)
    return found


def truth_of(events):
    """Owners of kernels of a Chrome trace."""
    threads = defaultdict(list)
    launches, kernels, forward = {}, [], {}
    for event in events:
        kind, args = event.get("cat"), event.get("args", {})
        if kind in ("cpu_op", "user_annotation"):
            threads[event["tid"]].append((event["ts"], event["ts"] + event["dur"], event["name"], args))
        elif kind in ("cuda_runtime", "cuda_driver") and "correlation" in args:
            launches.setdefault(args["correlation"], (event["ts"], event["tid"]))
        elif kind in ("kernel", "gpu_memcpy", "gpu_memset"):
            kernels.append((args["correlation"], event["ts"], event["name"]))
    starts = {}
    for tid, found in threads.items():
        found.sort(key=lambda one: (one[0], -one[1]))
        starts[tid] = [one[0] for one in found]

    def stack(ts, tid):
        found = threads.get(tid, [])
        at = bisect.bisect_right(starts.get(tid, []), ts)
        return [one for one in found[max(0, at - 4000) : at] if one[1] >= ts]

    def module_in(open_):
        for _, _, name, args in reversed(open_):
            if name.startswith("MODULE "):
                return name[7:]
            if name.startswith("autograd::engine::evaluate_function") and args.get("Sequence number", -1) >= 0:
                return forward.get(args["Sequence number"], "")
        return ""

    for tid, found in threads.items():
        for begin, _, name, args in found:
            if "Sequence number" in args and not args.get("Fwd thread id") and not name.startswith("autograd::"):
                forward[args["Sequence number"]] = module_in(stack(begin, tid))
    rows = []
    for correlation, _, name in sorted(kernels):
        at, tid = launches.get(correlation, (None, None))
        open_ = stack(at, tid) if at is not None else []
        operators = [one[2] for one in open_ if "::" in one[2]]
        operator = operators[-1] if operators else ""
        rows.append([name, operator.replace("autograd::engine::evaluate_function: ", ""), module_in(open_)])
    return rows


def main():
    program, warm, measured = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
    place = sys.argv[4] if len(sys.argv) > 4 else None

    def loop(step, sync, **_):
        for _ in range(warm):
            step()
        sync()
        torch.manual_seed(123)
        if place is None:
            torch.cuda.nvtx.range_push("measured")
            for _ in range(measured):
                step()
            sync()
            torch.cuda.nvtx.range_pop()
            return
        names = names_of_modules()
        stacks = defaultdict(list)

        def enter(module, _):
            if torch.compiler.is_compiling():
                return
            made = torch.profiler.record_function(f"MODULE {names.get(id(module), type(module).__name__)}")
            made.__enter__()
            stacks[threading.get_ident()].append(made)

        def leave(*_):
            if torch.compiler.is_compiling():
                return
            stack = stacks[threading.get_ident()]
            if stack:
                stack.pop().__exit__(None, None, None)

        hooks = torch.nn.modules.module
        if "compiled" not in program:
            hooks.register_module_forward_pre_hook(enter)
            hooks.register_module_forward_hook(leave, always_call=True)
        kinds = [torch.profiler.ProfilerActivity.CPU, torch.profiler.ProfilerActivity.CUDA]
        every = torch._C._profiler._ExperimentalConfig(profile_all_threads=True)
        with torch.profiler.profile(activities=kinds, experimental_config=every) as profiler:
            for _ in range(measured):
                step()
            sync()
        with tempfile.TemporaryDirectory() as folder:
            profiler.export_chrome_trace(os.path.join(folder, "trace.json"))
            events = json.loads(Path(folder, "trace.json").read_text())["traceEvents"]
        Path(place).write_text(json.dumps(truth_of(events)))

    sys.modules["loop"] = types.SimpleNamespace(loop=loop)
    sys.argv = [program]
    sys.path.insert(0, str(Path(program).parent))
    runpy.run_path(program, run_name="__main__")


if __name__ == "__main__":
    main()
