"""Sessions of tiny models of every other family that can be served are exact on a device."""

from vllm.utils.import_utils import has_deep_gemm

from benchmarks.gpu_check.checks.exactness import CONTEXT_TOKENS, compare
from benchmarks.gpu_check.engines import engine_args, family_args
from benchmarks.gpu_check.finding import Finding
from benchmarks.gpu_check.sizes import Scale
from benchmarks.gpu_check.turn import Turn
from tests.engine.families import FAMILIES

NEEDS_DEEP_GEMM = "DeepSeek V3.2"


async def check(scale: Scale, turn: Turn, part: str) -> Finding:
    """Compare sessions of the family that `part` names, with asynchronous scheduling."""
    if not scale.on_device:
        return Finding("skipped", "Needs a GPU: tests/engine has the families on CPUs.")
    if part == NEEDS_DEEP_GEMM and not has_deep_gemm():
        return Finding("skipped", f"{part}: needs DeepGEMM.")
    usual = engine_args(scale, scale.exact_model, CONTEXT_TOKENS, scale.exact_pool, "float32")
    args = {**family_args(part, usual), "enforce_eager": True}
    if "latent" in FAMILIES[part].groups:
        args["dtype"] = "bfloat16"  # no kernel of latent attention takes float32
    if not FAMILIES[part].caches_prefixes:
        args["enable_prefix_caching"] = False
    return await compare(scale, part, part, args)
