"""How far float32 may be from the exact result of a net, whatever computes it: one bound for all processors.

The net is run on tensors that hold two numbers each: the result in float64, which is exact enough here, and a bound on
how far any float32 evaluation of the same net can be from it (running error analysis: Higham, Accuracy and Stability
of Numerical Algorithms, chapter 3). The bound grows with each operation by two shares:

- what the operation itself rounds: UNIT of its result; for a sum of n products, in whatever order and blocks a kernel
  adds them, with or without fused multiply-add, gamma(n) of the sum of their sizes; for tanh and its like, which no
  standard rounds, FUNCTION units (onnxruntime's tanh needs 6);
- what the arguments were off by already: through |W| in a linear layer, and through both ends of the interval
  around the argument in a monotone function, so that a saturated tanh ends the errors before it.

Operations without a rule here are taken apart as torch takes them apart; where that leads nowhere, `Unbounded` says so.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch as th
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_flatten

from ue_rl.inference.export.bounds import RULES, Bounded, Unbounded, error_of, exact_of


def evaluate(compute: Callable[[], Sequence[th.Tensor]]) -> list[tuple[th.Tensor, th.Tensor]]:
    """The exact results of `compute`, a function of tensors, each with the bound of float32's error; both float64.

    Raises:
        Unbounded: it takes an operation without a rule.
    """
    try:
        with th.no_grad(), _Evaluation():  # type: ignore[no-untyped-call]
            results = compute()
    except (TypeError, ValueError, RuntimeError, AttributeError, LookupError, AssertionError) as error:
        raise Unbounded(f"{type(error).__name__}: {error}") from error  # torch's own way to take it apart has no end
    return [(exact_of(result).double(), error_of(result).double()) for result in results]


class _Evaluation(TorchDispatchMode):  # type: ignore[no-untyped-call]
    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        given = [x for x in tree_flatten((args, kwargs))[0] if isinstance(x, th.Tensor)]
        if not any(isinstance(x, Bounded) or x.is_floating_point() for x in given):
            return func(*args, **kwargs)  # whole numbers, which do not round
        name = func.overloadpacket.__name__
        if name.endswith("_") and not name.startswith("_"):  # in place
            if not any(isinstance(x, Bounded) for x in given):
                return func(*args, **kwargs)
            made = getattr(getattr(th.ops.aten, name[:-1]), func._overloadname)
            with self:
                result = made(*args, **kwargs)
            if not isinstance(args[0], Bounded) or not isinstance(result, Bounded):
                raise Unbounded(str(func))
            args[0].exact, args[0].error = result.exact, result.error
            return args[0]
        rule = RULES.get(name)
        if rule is not None:
            result = rule(func, *args, **kwargs)
            if result is not NotImplemented:
                return result
        from torch._decomp import decomposition_table  # a third of a second, which few nets need

        apart = decomposition_table.get(func)
        with self:
            result = apart(*args, **kwargs) if apart is not None else func.decompose(*args, **kwargs)
        if result is NotImplemented:
            raise Unbounded(str(func))
        return result
