"""One call of an operator, as counted with fake tensors."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Operator:
    """One call of an operator that launches a kernel.

    Attributes:
        op: Name with its namespace ("aten.addmm").
        shapes: Types and shapes of its tensor inputs ("f16[64,768] f16[768]").
        module: Qualified name of the innermost module, "" outside of all; in backward, the module
            of the forward operator.
        call: Number of the module's call, as of ``module_names.CallSite``.
        backward: Whether autograd calls it.
        flops: Floating-point operations of products and convolutions; 0 for other operators.
        bytes_moved: Bytes of its inputs read and of its outputs written.
        dtype: Type of the arithmetic: "fp16", "bf16", "fp32", "fp64", or the type's own name.
        host_calls: Operators that the host called for it, including those without a kernel since the
            last one with a kernel.
    """

    op: str
    shapes: str
    module: str
    call: str
    backward: bool
    flops: float
    bytes_moved: float
    dtype: str
    host_calls: int
