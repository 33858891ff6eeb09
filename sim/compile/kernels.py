"""Compiled kernels: a pure function of tensors as one fused loop, built once per machine and cached on disk.

The same function runs eagerly, as the reference in tests, or compiled. Arithmetic of separate columns, such
as one column per drone, becomes C++ (column_code.py) or CUDA code (cuda_code.py) that is built in a second or
two and serves any number of columns. All other functions go through PyTorch's ahead-of-time inductor, which
takes half a minute; on a GPU they are captured as a CUDA graph (captured.py). The name of a kernel file is a
hash of all that its machine code depends on, so a changed function has another file and no file is ever out
of date. A call takes about 10 us, a fifth of `torch.compile`.
"""

from __future__ import annotations

import hashlib
import os
import sys
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.fx.experimental.proxy_tensor import make_fx

from robo_rl.core.errors import ConfigError
from robo_rl.core.files.machine_code import cache_folder, cpp_compiler
from sim.compile.captured import captured
from sim.compile.column_build import build_columns, column_source, load_columns
from sim.compile.column_program import UnsupportedGraphError
from sim.compile.column_trace import ColumnProgram, trace_columns
from sim.compile.cuda_build import architecture, build_cuda, cuda_source, load_cuda
from sim.compile.kernel_build import OPTIONS, build_kernel

Layout = tuple[tuple[int, ...], torch.dtype, torch.device, bool]  # shape, type, place, contiguous
TensorFn = Callable[..., tuple[Tensor, ...]]


@dataclass
class Kernel:
    """A compiled function of tensors with fixed shapes. compile_s: CPU seconds to build it, 0 from disk."""

    run: Callable[[list[Tensor]], Sequence[Tensor]]
    compile_s: float
    compiled: bool
    expected: tuple[Layout, ...] = ()  # layouts of the inputs; empty: any
    checked: bool = False  # only the first inputs are compared with `expected`; machine code checks nothing

    def __call__(self, *inputs: Tensor) -> Sequence[Tensor]:
        if not self.checked:
            self.check(inputs)
            self.checked = True
        return self.run(list(inputs))

    def check(self, inputs: Sequence[Tensor]) -> None:
        """Raise ConfigError unless the inputs are what the kernel was compiled for."""
        found = _layout(inputs)
        for i, (is_, should) in enumerate(zip(found, self.expected, strict=False)):
            if is_ != should:
                raise ConfigError(
                    f"Input {i} of the compiled kernel is {_words(is_)}, it was compiled for "
                    f"{_words(should)}. Convert the input, or compile for it."
                )
        if self.expected and len(found) != len(self.expected):
            raise ConfigError(f"The compiled kernel takes {len(self.expected)} inputs, found {len(found)}.")


def compile_kernel(
    fn: TensorFn, examples: Sequence[Tensor], *, eager: bool = False, say: Callable[[str], None] | None = None
) -> Kernel:
    """Compile `fn(*tensors) -> tuple of tensors` for the shapes, types and device of `examples`.

    eager: do not compile. On a CPU without a C++ compiler the function runs eagerly too, with a warning that
    says what to install. say: called with a message before a first compilation that takes long.
    """
    if eager:
        return Kernel(lambda inputs: fn(*inputs), 0.0, compiled=False)
    if examples[0].device.type == "cpu" and cpp_compiler() is None:
        warnings.warn(
            "No C++ compiler was found: the simulator runs uncompiled, some 30 times slower. Install one, "
            "for example: sudo apt install g++",
            stacklevel=2,
        )
        return Kernel(lambda inputs: fn(*inputs), 0.0, compiled=False)
    if (traced := _columns_of(fn, examples)) is not None:
        return _compile_columns(traced, examples)
    return _compile_graph(_graph_of(fn, examples), examples, say or _print)


def _columns_of(fn: TensorFn, examples: Sequence[Tensor]) -> ColumnProgram | None:
    """Program of separate columns; None for a function that is none.

    A program is the same on any device, so it is traced with tensors of the CPU, which are never read.
    """
    on_cpu = examples[0].device.type == "cpu"
    given = examples if on_cpu else [torch.empty_like(x, device="cpu") for x in examples]
    try:
        return trace_columns(_graph_of(fn, given), given)
    except UnsupportedGraphError:
        return None
    except RuntimeError:
        if on_cpu:
            raise
        return None  # the function holds tensors of the device


def _graph_of(fn: TensorFn, examples: Sequence[Tensor]) -> torch.fx.GraphModule:
    """Operations of the function, found without running it."""
    traced = make_fx(lambda *inputs: tuple(fn(*inputs)), tracing_mode="fake", _allow_non_fake_inputs=True)
    with torch.no_grad():
        graph: torch.fx.GraphModule = traced(*examples)
    return graph


def _compile_columns(traced: ColumnProgram, examples: Sequence[Tensor]) -> Kernel:
    """Kernel of a program of columns: another number of columns finds the same file."""
    device, start_s, compile_s = examples[0].device, _cpu_s(), 0.0
    on_gpu = device.type == "cuda"
    arch = architecture(device) if on_gpu else ""
    if on_gpu:
        source, name = cuda_source(traced, arch)
        path = cache_folder() / "kernels" / f"{name}.cubin"
    else:
        source, path = column_source(traced)
    if not os.path.exists(path):  # false also where it may not be read
        if on_gpu:
            build_cuda(source, path, arch)
        else:
            build_columns(source, path)
        compile_s = _cpu_s() - start_s
    run = load_cuda(path, traced, device) if on_gpu else load_columns(path, traced)
    return Kernel(run, compile_s, compiled=True, expected=_layout(examples))


def _compile_graph(
    graph: torch.fx.GraphModule, examples: Sequence[Tensor], say: Callable[[str], None]
) -> Kernel:
    """Kernel of any graph, by torch's inductor."""
    if examples[0].device.type == "cuda":
        return Kernel(captured(graph, examples), 0.0, compiled=True, expected=_layout(examples))
    path = cache_folder() / "kernels" / f"{_name(graph, examples)}.pt2"
    start_s, compile_s = _cpu_s(), 0.0
    if not os.path.exists(path):  # false also where it may not be read
        say("compiling a kernel (once per task and number of environments, some 25 s on an idle core) ...")
        build_kernel(graph, examples, path)
        compile_s = _cpu_s() - start_s
    run = torch._inductor.aoti_load_package(str(path)).loader.run
    return Kernel(lambda inputs: run(inputs), compile_s, compiled=True, expected=_layout(examples))


def differentiable(
    fn: TensorFn, examples: Sequence[Tensor], wanted: Sequence[int], **options: Any
) -> tuple[Callable[..., tuple[Tensor, ...]], float]:
    """`fn` as an autograd function with compiled forward and backward kernels, and the CPU seconds of
    building them.

    wanted: positions of the inputs that get gradients. The backward kernel recomputes the forward pass from
    the inputs instead of storing intermediate values: they stay in registers, and storing them would take
    more time.
    """
    forward = compile_kernel(fn, examples, **options)
    with torch.no_grad():
        outputs = fn(*examples)

    def pull(*inputs: Tensor) -> tuple[Tensor, ...]:
        primals, cotangents = list(inputs[: len(examples)]), inputs[len(examples) :]

        def of_wanted(*chosen: Tensor) -> tuple[Tensor, ...]:
            for i, value in zip(wanted, chosen, strict=True):
                primals[i] = value
            return tuple(fn(*primals))

        pulled = torch.func.vjp(of_wanted, *(primals[i] for i in wanted))
        grads: tuple[Tensor, ...] = pulled[1](tuple(cotangents))
        return grads

    backward = compile_kernel(pull, [*examples, *(torch.zeros_like(out) for out in outputs)], **options)

    class Compiled(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, *inputs: Tensor) -> tuple[Tensor, ...]:
            ctx.save_for_backward(*inputs)
            return tuple(forward(*inputs))

        @staticmethod
        def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
            found = backward(*ctx.saved_tensors, *(grad.contiguous() for grad in grads))
            result: list[Tensor | None] = [None] * len(examples)
            for i, grad in zip(wanted, found, strict=True):
                result[i] = grad
            return tuple(result)

    return Compiled.apply, forward.compile_s + backward.compile_s


def _name(graph: torch.fx.GraphModule, examples: Sequence[Tensor]) -> str:
    """Hash of everything that the machine code depends on: graph, constant tensors, shapes, versions."""
    shapes = [(tuple(x.shape), x.stride(), str(x.dtype), str(x.device)) for x in examples]
    capability = torch.backends.cpu.get_cpu_capability()
    held = [
        (name, _bytes_of(value)) for name, value in sorted(vars(graph).items()) if isinstance(value, Tensor)
    ]
    held += [(name, _bytes_of(value)) for name, value in graph.named_buffers()]
    text = "\n".join(
        [graph.code, repr(held), *map(repr, (shapes, torch.__version__, sys.version, capability, OPTIONS))]
    )
    return hashlib.sha256(text.encode()).hexdigest()[:24]


def _bytes_of(value: Tensor) -> tuple[str, str]:
    array = value.detach().cpu().contiguous()
    return f"{array.dtype} {tuple(array.shape)}", hashlib.sha256(array.numpy().tobytes()).hexdigest()


def _layout(inputs: Sequence[Tensor]) -> tuple[Layout, ...]:
    return tuple((tuple(x.shape), x.dtype, x.device, x.is_contiguous()) for x in inputs)


def _words(layout: Layout) -> str:
    shape, dtype, device, contiguous = layout
    return (
        f"{str(dtype).removeprefix('torch.')} {shape} on {device}{'' if contiguous else ', not contiguous'}"
    )


def _cpu_s() -> float:
    used = os.times()
    return used.user + used.system + used.children_user + used.children_system


def _print(message: str) -> None:
    """Print on a separate line above a progress bar."""
    from tqdm import tqdm

    tqdm.write(message, file=sys.stderr)
    sys.stderr.flush()
