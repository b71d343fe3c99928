"""What is refused before tracing, because it would be dropped silently or fail later without a reason."""

import torch

from .capture import strip
from .errors import ExportError
from .left_out import require_no_backward_hooks
from .places import Places
from .plain_tensors import require_plain_tensor
from .shared_memory import require_own_memory

TRAINED = (torch.float32, torch.bfloat16)
_FSDP = {"FullyShardedDataParallel", "FSDPModule"}


def require_exportable(step, root, headless=False):
    """Raises ExportError for modules that cannot be exported as they are."""
    for fqn, module in step.named_modules():
        _require_plain(strip(fqn, root) or "the module", module)
        _require_batch_statistics(strip(fqn, root), module)
    places = Places(step)
    for fqn, parameter in places.parameters.items():
        _require_tensor(f"parameter {strip(fqn, root)}", parameter)
        if parameter.device.type == "meta" and not headless:
            raise ExportError(
                f"parameter {strip(fqn, root)} has no values (device meta); build the module on the CPU, or write graph and shapes alone with headless=True"
            )
        _require_parameter(strip(fqn, root), parameter)
    parameters = {id(p): strip(n, root) for n, p in places.parameters.items()}
    for fqn, buffer in places.buffers.items():
        name = strip(fqn, root)
        _require_tensor(f"buffer {name}", buffer)
        if id(buffer) in parameters:
            raise ExportError(f"{name} is registered as a buffer and {parameters[id(buffer)]} as a parameter, but they are one tensor; register it once")
    require_own_memory({strip(n, root): tensor for n, tensor in places.tensors().items()})


def require_python(name, module):
    if isinstance(module, torch.jit.ScriptModule):
        raise ExportError(f"{name} is compiled by torch.jit; export the Python module it was made from")


def _require_plain(name, module):
    require_python(name, module)
    if isinstance(module, (torch.nn.DataParallel, torch.nn.parallel.DistributedDataParallel)):
        raise ExportError(f"{name} is a {type(module).__name__}; export the module inside, .module (dcc compile distributes the step)")
    if _FSDP & {kind.__name__ for kind in type(module).__mro__ if kind.__module__.startswith("torch.distributed.")}:
        raise ExportError(f"{name} is sharded by FSDP; export the module as it is before that (dcc compile distributes the step)")
    require_no_backward_hooks(name, module)


def _require_batch_statistics(name, module):
    """momentum=None weighs a batch by how many came before: a number read from a tensor. SyncBatchNorm takes means over ranks."""
    if isinstance(module, torch.nn.SyncBatchNorm) and module.training:
        raise ExportError(
            f"{name} is a SyncBatchNorm, whose means PyTorch takes over all ranks, and a plan over the rows of each rank; "
            "leave convert_sync_batchnorm out (a BatchNorm has the same parameters and buffers), or freeze it with .eval()"
        )
    running = isinstance(module, torch.nn.modules.batchnorm._NormBase) and module.track_running_stats
    if running and module.training and module.momentum is None:
        raise ExportError(f"{name} has momentum=None, whose weight depends on a counter; give it a momentum")


def _require_tensor(what, tensor):
    if isinstance(tensor, torch.nn.parameter.UninitializedTensorMixin):
        raise ExportError(f"{what} has no shape yet (a lazy module); call the module once before the export")
    require_plain_tensor(what, tensor)
    if tensor.device.type not in ("cpu", "meta"):
        raise ExportError(f"{what} is on {tensor.device}; move the module with .cpu() before the export")
    if tensor.numel() == 0:
        raise ExportError(f"{what} has no elements (shape {list(tensor.shape)}); remove it")


def _require_parameter(name, parameter):
    if parameter._backward_hooks or parameter._post_accumulate_grad_hooks:
        raise ExportError(
            f"parameter {name} has a gradient hook, which is not part of an exported step; remove it (a mask or scale can be written into the forward)"
        )
    if parameter.requires_grad and parameter.is_leaf and parameter.grad_dtype != parameter.dtype:
        raise ExportError(
            f"parameter {name} has grad_dtype {parameter.grad_dtype}, in which an exported step does not keep gradients; leave it as the parameter's "
            "own type (they are summed in float32, and sent as dcc compile --reduce-dtype says)"
        )
    if parameter.requires_grad and parameter.dtype not in TRAINED:
        kind = str(parameter.dtype).removeprefix("torch.")
        raise ExportError(
            f"parameter {name} is {kind}; dcc trains float32 and bfloat16 parameters: convert the module with .float(), or freeze it with requires_grad_(False)"
        )
