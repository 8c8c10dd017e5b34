"""Numbers with the bound of what float32 may be off by, and how each operation of torch rounds; see rounding.py."""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import torch as th
from torch.utils._pytree import tree_flatten, tree_map, tree_unflatten

UNIT = 2.0**-24
FUNCTION = 16.0
_FUSED = 8  # further terms of a sum: a bias, and what onnxruntime folds into the weights
_INF = float("inf")

Rule = Callable[..., Any]


class Unbounded(Exception):
    """An operation of which is not known how it rounds."""


class Bounded(th.Tensor):
    """A tensor of float32 with `exact`, its float64 result, and `error`, by how much it may differ from that."""

    exact: th.Tensor
    error: th.Tensor

    @staticmethod
    def __new__(cls, exact: th.Tensor, error: th.Tensor, dtype: th.dtype = th.float32) -> Bounded:
        """`dtype` is what torch takes it for: that of the tensor it stands for."""
        made: Any = th.Tensor._make_wrapper_subclass(cls, exact.shape, dtype=dtype)
        made.exact, made.error = exact, error
        return made  # type: ignore[no-any-return]

    __torch_function__ = th._C._disabled_torch_function_impl  # type: ignore[assignment]

    @classmethod
    def __torch_dispatch__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:  # type: ignore[override]
        """Outside of `evaluate` there is nothing to be done with it."""
        raise Unbounded(str(func))


def gamma(n: float) -> float:
    """The bound of a sum of `n` products, relative to the sum of their sizes; infinite where float32 has no digit."""
    return n * UNIT / (1.0 - n * UNIT) if n * UNIT < 1.0 else _INF


def exact_of(x: Any) -> Any:
    """In float64, if it is a tensor of numbers that round; else as it is."""
    if isinstance(x, Bounded):
        return x.exact
    return x.double() if isinstance(x, th.Tensor) and x.is_floating_point() else x


def error_of(x: Any) -> Any:
    """Of such a tensor; anything else as it is."""
    if isinstance(x, Bounded):
        return x.error
    return th.zeros_like(x, dtype=th.float64) if isinstance(x, th.Tensor) and x.is_floating_point() else x


def _both(x: Any) -> tuple[th.Tensor, th.Tensor]:
    """Exact value and error of a tensor of any dtype, or of a number."""
    if isinstance(x, Bounded):
        return x.exact, x.error
    exact = th.as_tensor(x, dtype=th.float64)
    return exact, th.zeros_like(exact)


def _made(exact: th.Tensor, error: th.Tensor, dtype: th.dtype = th.float32) -> th.Tensor:
    error = th.where(th.isnan(error) | ~th.isfinite(exact), _INF, error).expand_as(exact)
    if not dtype.is_floating_point and not bool(error.any()):
        return exact.to(dtype)  # a whole number or a truth that is certain
    return Bounded(exact.double(), error, dtype)


def _rounded(exact: th.Tensor, error: th.Tensor, fresh: Any = None) -> th.Tensor:
    """With the rounding of the result, or `fresh`: none where arguments and result are exact in float32."""
    kept = (error == 0) & (exact.float().double() == exact) if fresh is None else th.zeros((), dtype=th.bool)
    own = UNIT * (exact.abs() + error) if fresh is None else fresh
    return _made(exact, error + th.where(kept, 0.0, own))


# -- rules: of numbers that only move ----------------------------------------------------------------------------------


def _move(func: Any, *args: Any, **kwargs: Any) -> Any:
    name = func.overloadpacket.__name__
    if name in ("view", "_unsafe_view"):
        func = th.ops.aten.reshape.default  # what is moved here need not lie as torch thinks
    if name in ("gather", "index", "index_select", "embedding"):
        for x in tree_flatten(args)[0]:
            if isinstance(x, Bounded) and not x.dtype.is_floating_point:
                raise Unbounded(f"{func} at a place that is not certain")
    exact, form = tree_flatten(func(*tree_map(exact_of, args), **tree_map(exact_of, kwargs)))
    error = tree_flatten(func(*tree_map(error_of, args), **tree_map(error_of, kwargs)))[0]
    return tree_unflatten([_made(*pair) for pair in zip(exact, error, strict=True)], form)


def _pad(func: Any, x: Any, pad: Any, value: Any = 0) -> Any:
    exact, error = _both(x)
    return _made(func(exact, pad, value), func(error, pad, 0))


def _fresh_like(func: Any, *args: Any, **kwargs: Any) -> Any:
    made = func(*tree_map(exact_of, args), **kwargs)
    return made.float() if made.is_floating_point() else made


def _cast(func: Any, x: Any, *, dtype: Any = None, **_: Any) -> Any:
    exact, error = _both(x)
    dtype = dtype or x.dtype
    if dtype == th.bool:
        return _compared(operator.ne, exact, error)
    if dtype in (th.float16, th.bfloat16):
        raise Unbounded(f"a cast to {dtype}")
    if not dtype.is_floating_point:
        return _made(exact.trunc(), _ends(th.trunc, exact, error), dtype)
    return _rounded(exact, error)


def _greatest(func: Any, x: Any, *args: Any, **kwargs: Any) -> Any:
    """The greatest, or smallest, numbers of some: off by no more than the worst of them."""
    exact, error = _both(x)
    found = func(exact, *args, **kwargs)
    worst = getattr(th.ops.aten, func.overloadpacket.__name__.replace("min", "max"))
    off = getattr(worst, func._overloadname)(error, *args, **kwargs)
    if isinstance(found, th.Tensor):
        return _made(found, off)
    values, where = found
    return _made(values, off[0]), _made(where, th.full_like(values, _INF), th.int64)


# -- rules: of functions of one argument ------------------------------------------------------------------------------


def _ends(f: Callable[[th.Tensor], th.Tensor], exact: th.Tensor, error: th.Tensor) -> th.Tensor:
    """How far a monotone function of numbers within `error` of `exact` can be from that of `exact`."""
    middle = f(exact)
    return th.maximum((f(exact + error) - middle).abs(), (f(exact - error) - middle).abs())


def _call(func: Any, args: Any, kwargs: Any, x: th.Tensor) -> th.Tensor:
    return func(x, *args, **kwargs)  # type: ignore[no-any-return]


def _monotone(func: Any, x: Any, *args: Any, **kwargs: Any) -> Any:
    if any(isinstance(a, Bounded) for a in args):
        return NotImplemented
    args, kwargs = tree_map(exact_of, args), tree_map(exact_of, kwargs)
    (exact, error), f = _both(x), partial(_call, func, args, kwargs)
    return _made(f(exact), _ends(f, exact, error))


def _function(func: Any, x: Any, *args: Any, **kwargs: Any) -> Any:
    made = _monotone(func, x, *args, **kwargs)
    return _rounded(made.exact, made.error, FUNCTION * UNIT * made.exact.abs().clamp(min=1.0))


def _gated(steepness: float) -> Rule:
    """x times a function between 0 and 1, or a wave: Lipschitz, but not monotone."""

    def rule(func: Any, x: Any, *args: Any, **kwargs: Any) -> Any:
        exact, error = _both(x)
        fresh = FUNCTION * UNIT * (exact.abs() + error).clamp(min=1.0)
        return _rounded(func(exact, *args, **kwargs), steepness * error, fresh)

    return rule


def _power(func: Any, x: Any, exponent: Any) -> Any:
    if isinstance(exponent, th.Tensor):
        return NotImplemented
    (exact, error), f = _both(x), partial(_call, th.pow, (exponent,), {})
    size = exact.abs()
    if exponent >= 1:
        off = f(size + error) - f(size)
    else:
        off = th.where((size > error) | (error == 0), _ends(f, exact, error), f(size + error) if exponent > 0 else _INF)
    return _rounded(f(exact), off, FUNCTION * UNIT * (f(exact).abs() + off))


# -- rules: of several arguments --------------------------------------------------------------------------------------


def _add(sign_a: float, sign_b: float) -> Rule:
    def rule(func: Any, a: Any, b: Any, *, alpha: float = 1) -> Any:
        (xa, ea), (xb, eb) = _both(a), _both(b)
        return _rounded(sign_a * xa + sign_b * alpha * xb, ea + abs(alpha) * eb)

    return rule


def _multiply(func: Any, a: Any, b: Any) -> Any:
    (xa, ea), (xb, eb) = _both(a), _both(b)
    return _rounded(xa * xb, ea * xb.abs() + (xa.abs() + ea) * eb)


def _divide(func: Any, a: Any, b: Any = None, *, rounding_mode: Any = None) -> Any:
    if b is None:  # reciprocal
        a, b = 1.0, a
    if rounding_mode is not None:
        return NotImplemented
    (xa, ea), (xb, eb) = _both(a), _both(b)
    q, left = xa / xb, xb.abs() - eb
    return _rounded(q, th.where(left > 0, (ea + q.abs() * eb) / left, _INF))


def _extreme(func: Any, *args: Any, **kwargs: Any) -> Any:
    """The greater or smaller of some: off by no more than the worst of them."""
    exact = func(*tree_map(exact_of, args), **tree_map(exact_of, kwargs))
    errors = [error_of(x) for x in (*args, *kwargs.values()) if isinstance(x, th.Tensor)]
    error = errors[0].expand_as(exact)
    for other in errors[1:]:
        error = th.maximum(error, other)
    return _made(exact, error)


def _compared(how: Callable[[Any, Any], Any], exact: th.Tensor, error: th.Tensor) -> th.Tensor:
    """`exact` against 0; uncertain, an error of 1, where 0 lies within `error`."""
    return _made(how(exact, 0.0), ((exact.abs() <= error) & (error > 0)).double(), th.bool)


def _comparison(how: Callable[[Any, Any], Any]) -> Rule:
    def rule(func: Any, a: Any, b: Any) -> Any:
        (xa, ea), (xb, eb) = _both(a), _both(b)
        return _compared(how, xa - xb, ea + eb)

    return rule


def _where(func: Any, condition: Any, a: Any, b: Any) -> Any:
    (xa, ea), (xb, eb), (truth, doubt) = _both(a), _both(b), _both(condition)
    chosen = truth != 0
    apart = th.where(doubt > 0, (xa - xb).abs() + th.maximum(ea, eb), 0.0)
    return _made(th.where(chosen, xa, xb), th.maximum(th.where(chosen, ea, eb), apart))


def _argmax(func: Any, x: Any, dim: Any = None, keepdim: bool = False) -> Any:
    (exact, error), best = _both(x), func(exact_of(x), dim, True)
    if dim is None:
        return NotImplemented
    rest = (exact + error).scatter(dim, best, -_INF).amax(dim, keepdim=True)
    doubt = th.where(rest >= (exact - error).gather(dim, best), _INF, 0.0)
    doubt = th.where((error == 0).all(dim, keepdim=True), 0.0, doubt)
    found, doubt = (t if keepdim else t.squeeze(dim) for t in (best, doubt))
    return _made(found, doubt, th.int64)


# -- rules: of sums ----------------------------------------------------------------------------------------------------


def _bilinear(f: Callable[[Any, Any], th.Tensor], a: Any, b: Any, n: int, bias: Any = None) -> th.Tensor:
    """Sums of `n` products of the numbers of `a` and `b`."""
    (xa, ea), (xb, eb), (xc, ec) = _both(a), _both(b), _both(0.0 if bias is None else bias)
    error = f(ea, xb.abs()) + ec
    if bool(eb.any()):
        error = error + f(xa.abs() + ea, eb)
    return _rounded(f(xa, xb) + xc, error, gamma(n + _FUSED) * (f(xa.abs(), xb.abs()) + xc.abs() + error))


def _matmul(func: Any, a: Any, b: Any) -> Any:
    return _bilinear(func, a, b, a.shape[-1])


def _add_matmul(product: Any) -> Rule:
    def rule(func: Any, bias: Any, a: Any, b: Any, *, beta: float = 1, alpha: float = 1) -> Any:
        return _bilinear(product, a, b, a.shape[-1], bias) if beta == alpha == 1 else NotImplemented

    return rule


def _convolution(func: Any, x: Any, weight: Any, bias: Any, *form: Any) -> Any:
    def f(a: th.Tensor, b: th.Tensor) -> th.Tensor:
        return func(a, b, None, *form)  # type: ignore[no-any-return]

    outputs = weight.shape[1 if form[3] else 0]
    if bias is not None:
        shape = (-1, *[1] * (x.dim() - 2))
        bias = Bounded(exact_of(bias).reshape(shape), error_of(bias).reshape(shape))
    return _bilinear(f, x, weight, weight.numel() // outputs, bias)


def _average(func: Any, x: Any, *args: Any, **kwargs: Any) -> Any:
    kwargs.pop("dtype", None)
    exact, error = _both(x)
    y = func(exact, *args, **kwargs)
    n = exact[0].numel() if y.dim() and len(y) == len(exact) else exact.numel()
    off = func(error, *args, **kwargs)
    return _rounded(y, off, gamma(n + _FUSED) * (func(exact.abs(), *args, **kwargs) + off))


def _variance(func: Any, x: Any, dim: Any = None, *more: Any, correction: Any = 1, keepdim: bool = False) -> Any:
    """As the mean square less the squared mean, if need be: that is the worst way to compute it."""
    if isinstance(dim, bool):  # var(x, unbiased)
        dim, correction = None, int(dim)
    elif func._overloadname == "dim":  # var(x, dim, unbiased, keepdim)
        correction, keepdim = int(more[0]) if more else 1, bool(more[1:] and more[1])
    exact, error = _both(x)
    dims = list(range(exact.dim())) if dim is None else list(dim)
    n = 1
    for d in dims:
        n *= exact.shape[d]
    mean, mean_error = exact.mean(dims, keepdim=True), error.mean(dims, keepdim=True)
    away, off = (exact - mean).abs(), error + mean_error

    def reduced(t: th.Tensor) -> th.Tensor:
        return t.sum(dims, keepdim=keepdim) / max(n - (1 if correction is None else correction), 0)

    fresh = 4.0 * gamma(n + _FUSED) * reduced((exact.abs() + error) ** 2)
    variance = _rounded(reduced(away**2), reduced(2.0 * away * off + off**2), fresh)
    if func.overloadpacket.__name__ == "var":
        return variance
    return variance, _average(th.mean, x, dims, keepdim=keepdim)


def _batch_norm(func: Any, x: Any, weight: Any, bias: Any, mean: Any, var: Any, *rest: Any) -> Any:
    if len(rest) == 3 and rest[0]:  # training
        return NotImplemented
    (exact, error), eps = _both(x), rest[-1]
    shape = (-1, *[1] * (exact.dim() - 2))
    w, b, m, v = (
        exact_of(th.ones(()) * k if t is None else t).reshape(shape if t is not None else ())
        for t, k in ((weight, 1.0), (bias, 0.0), (mean, 0.0), (var, 0.0))
    )
    slope = w / th.sqrt(v + eps)
    fresh = gamma(_FUSED) * ((exact.abs() + error + m.abs()) * slope.abs() + b.abs())
    return _rounded((exact - m) * slope + b, error * slope.abs(), fresh), th.empty(0), th.empty(0)


def _log_sum_exp(func: Any, x: Any, dim: Sequence[int], keepdim: bool = False) -> Any:
    (exact, error), f = _both(x), partial(_call, func, (dim, keepdim), {})
    y = f(exact)
    return _rounded(y, _ends(f, exact, error), (FUNCTION + exact[0].numel()) * UNIT * y.abs().clamp(min=1.0))


def _softmax(func: Any, x: Any, dim: int, half: bool) -> Any:
    exact, error = _both(x)
    y = func(exact, dim, half)
    off = (y * th.expm1(2.0 * error.amax(dim, keepdim=True))).clamp(max=1.0)
    return _rounded(y, off, (FUNCTION + exact.shape[dim]) * UNIT)


def _log_softmax(func: Any, x: Any, dim: int, half: bool) -> Any:
    total = _log_sum_exp(th.ops.aten.logsumexp.default, x, [dim], True)
    return _add(1.0, -1.0)(None, x, total)


def _item(func: Any, x: Any) -> Any:
    exact, error = _both(x)
    if bool(error.any()):
        raise Unbounded("a number taken out of a tensor")
    return exact.item()


RULES: dict[str, Rule] = {
    "_to_copy": _cast, "pow": _power, "sqrt": lambda func, x: _power(func, x, 0.5),
    "rsqrt": lambda func, x: _power(func, x, -0.5), "add": _add(1.0, 1.0), "sub": _add(1.0, -1.0),
    "rsub": _add(-1.0, 1.0), "mul": _multiply, "div": _divide, "reciprocal": _divide, "where": _where,
    "masked_fill": lambda func, x, mask, value: _where(func, mask, value, x), "argmax": _argmax, "mm": _matmul,
    "bmm": _matmul, "addmm": _add_matmul(th.mm), "baddbmm": _add_matmul(th.bmm), "convolution": _convolution,
    "var": _variance, "var_mean": _variance, "native_batch_norm": _batch_norm, "logsumexp": _log_sum_exp,
    "_native_batch_norm_legit_no_training": _batch_norm, "_softmax": _softmax, "_log_softmax": _log_softmax,
    "_local_scalar_dense": _item, "silu": _gated(1.1), "gelu": _gated(1.13), "mish": _gated(1.1), "sin": _gated(1.0),
    "cos": _gated(1.0), "hardswish": _gated(1.5), "abs": _extreme, "neg": _extreme, "constant_pad_nd": _pad,
}  # fmt: skip
for _names, _rule in (
    ("view _unsafe_view reshape t transpose permute unsqueeze squeeze expand slice select split split_with_sizes chunk "
     "unsafe_split unsafe_chunk unbind cat stack clone alias detach contiguous gather index index_select flip roll "
     "repeat lift_fresh diagonal tril triu upsample_nearest2d pixel_shuffle embedding", _move),
    ("zeros_like ones_like full_like empty_like new_zeros new_ones new_full new_empty", _fresh_like),
    ("relu clamp clamp_min clamp_max hardtanh floor ceil round trunc sign threshold", _monotone),
    ("leaky_relu tanh sigmoid elu celu exp expm1 log log1p softplus erf atan hardsigmoid log_sigmoid", _function),
    ("maximum minimum", _extreme),
    ("max min amax amin max_pool2d_with_indices", _greatest),
    ("sum mean avg_pool1d avg_pool2d _adaptive_avg_pool2d cumsum", _average),
):  # fmt: skip
    RULES |= dict.fromkeys(_names.split(), _rule)
for _name in ("gt", "ge", "lt", "le", "eq", "ne"):
    RULES[_name] = _comparison(getattr(operator, _name))
