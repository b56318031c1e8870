"""Loads on servers, with joules per request and token, and bills: ``jouletrace bench`` and ``jouletrace bill``."""

from jouletrace.wing import Wing

WING = Wing(
    commands={
        "bench": "jouletrace.wings.serving.commands.bench",
        "bill": "jouletrace.wings.serving.commands.bill",
    },
    formats={
        "aiperf": "jouletrace.wings.serving.importers.aiperf",
        "inferencex": "jouletrace.wings.serving.importers.inferencex",
        "vllm_bench": "jouletrace.wings.serving.importers.vllm_bench",
    },
    kinds={"serving": "jouletrace.wings.serving.kind"},
    targets={"server": "jouletrace.wings.serving.targets"},
    libraries={"aiohttp": "loads on servers (pip install 'jouletrace[serving]')"},
)
