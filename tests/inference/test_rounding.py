"""The bound of what float32 may be off by: never below an error that is found, and not far above what theory allows."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch as th
from torch import nn

from ue_rl.inference.export.bounds import FUNCTION, UNIT, Bounded, Unbounded, gamma
from ue_rl.inference.export.rounding import evaluate

X = th.randn(48, 12, generator=th.Generator().manual_seed(0))
IMAGES = th.rand(4, 3, 20, 20, generator=th.Generator().manual_seed(0))


class Of(nn.Module):
    """A function as a module."""

    def __init__(self, function: Callable[[th.Tensor], th.Tensor]) -> None:
        super().__init__()
        self.function = function

    def forward(self, x: th.Tensor) -> th.Tensor:
        return self.function(x)


def between(*middle: nn.Module, width: int = 32) -> nn.Module:
    return nn.Sequential(nn.Linear(12, 32), *middle, nn.Linear(width, 3))


def normed() -> nn.Module:
    norm = nn.BatchNorm1d(32)
    norm.running_mean += 3.0  # type: ignore[operator]
    return norm


ACTIVATIONS: list[Callable[[], nn.Module]] = [
    nn.ReLU, nn.Tanh, nn.ELU, nn.SELU, nn.CELU, nn.GELU, nn.SiLU, nn.Mish, nn.LeakyReLU, nn.Softplus, nn.Sigmoid,
    nn.Softsign, nn.Hardswish, nn.Hardtanh, nn.ReLU6, nn.PReLU, nn.LogSigmoid, nn.Hardsigmoid, nn.Tanhshrink,
]  # fmt: skip
NETS: dict[str, Callable[[], nn.Module]] = {
    "linear": lambda: nn.Linear(12, 5),
    "no bias": lambda: nn.Linear(12, 5, bias=False),
    **{kind.__name__: (lambda kind=kind: between(kind())) for kind in ACTIVATIONS},  # type: ignore[misc, attr-defined]
    "in place": lambda: between(nn.ReLU(inplace=True), nn.ELU(inplace=True)),
    "glu": lambda: between(nn.GLU(), width=16),
    "softmax": lambda: between(nn.Softmax(1), nn.LogSoftmax(1)),
    "layer norm": lambda: between(nn.LayerNorm(32)),
    "batch norm": lambda: between(normed()),
    "weight norm": lambda: nn.utils.parametrizations.weight_norm(nn.Linear(12, 4)),
    "attention": lambda: Of(
        lambda x: nn.functional.scaled_dot_product_attention(*[x.view(-1, 3, 4) * k for k in (1, 2, 3)])
    ),
    "squares": lambda: Of(lambda x: x[:, :3] ** 2 - (x[:, 3:6] * x[:, 6:9]) + 1.5),
    "cubes": lambda: Of(lambda x: x**3),
    "quotients": lambda: Of(lambda x: (x + 7.0) / (x * x + 1.0) - 1.0 / (x**2 + 0.5)),
    "roots": lambda: Of(lambda x: th.sqrt(x.abs() + 0.1) + th.rsqrt(x.abs() + 0.1) + (x.abs() + 1.0) ** -1.5),
    "logs": lambda: Of(lambda x: th.log(x * x + 0.1) + th.exp(x * 0.02) + th.log1p(x.abs())),
    "waves": lambda: Of(lambda x: th.sin(x * 9.0) + th.cos(x) + th.atan(x)),
    "sums": lambda: Of(lambda x: x.cumsum(1).sum(1, keepdim=True) + x.mean(1, keepdim=True) + x.logsumexp(1, True)),
    "spread": lambda: Of(lambda x: (x - x.mean(1, keepdim=True)) / (x.std(1, keepdim=True) + x.var(1, keepdim=True))),
    "products": lambda: Of(lambda x: (x @ x.T) @ x + x.unsqueeze(1).matmul(x.unsqueeze(2)).squeeze(2)),
    "choices": lambda: Of(lambda x: th.where(x @ x.T > 0, x @ x.T * 2, -x[:, :1]).clamp(-3, 2)),
    "filled": lambda: Of(lambda x: (x * 3).masked_fill(x > 2, 0)),
    "extremes": lambda: Of(lambda x: th.minimum(x * 3, x.amax(1, keepdim=True)) + x.max(dim=1, keepdim=True).values),
    "steps": lambda: Of(lambda x: th.round(x * 3) + th.floor(x) + th.sign(x)),
    "one of many": lambda: Of(lambda x: nn.functional.one_hot((x[:, :4] > 0).long(), 2).float() * x[:, :1, None]),
    "norm": lambda: Of(nn.functional.normalize),
    "moved": lambda: Of(lambda x: th.cat([x.flip(1), th.stack([x[:, 1], x[:, 2]], 1), x.repeat(1, 2)[:, ::3]], 1)),
}  # fmt: skip
CNNS: dict[str, Callable[[], nn.Module]] = {
    "nature": lambda: nn.Sequential(
        nn.Conv2d(3, 16, 8, 4), nn.ReLU(), nn.Conv2d(16, 8, 2), nn.Flatten(), nn.Linear(72, 3)
    ),
    "pooled": lambda: nn.Sequential(
        nn.Conv2d(3, 8, 3, padding=1, groups=1), nn.BatchNorm2d(8), nn.SiLU(), nn.MaxPool2d(2), nn.AdaptiveAvgPool2d(2)
    ),
    "grown": lambda: nn.Sequential(
        nn.ZeroPad2d(1), nn.ConvTranspose2d(3, 4, 3, bias=False), nn.AvgPool2d(3), nn.Upsample(scale_factor=2)
    ),
}


def bounded(net: nn.Module, x: th.Tensor) -> tuple[th.Tensor, th.Tensor]:
    ((exact, error),) = evaluate(lambda: [net(x)])
    return exact, error


@pytest.mark.parametrize(
    ("make", "x"),
    [(make, X) for make in NETS.values()] + [(make, IMAGES) for make in CNNS.values()],
    ids=[*NETS, *CNNS],
)
@pytest.mark.parametrize("size", [1.0, 300.0])
def test_no_error_is_above_the_bound(make: Callable[[], nn.Module], x: th.Tensor, size: float) -> None:
    th.manual_seed(0)
    net, x = make().eval(), x * size
    exact, error = bounded(net, x)
    with th.no_grad():
        want = copy.deepcopy(net).double()(x.double())
        found = net(x)
    assert exact.shape == error.shape == want.shape
    assert exact.dtype == error.dtype == th.float64
    th.testing.assert_close(exact, want, rtol=1e-11, atol=1e-11 * size)
    assert bool(error.isfinite().all())
    off = (found.double() - want).abs()
    assert bool((off <= error + 1e-13 * size).all()), float((off - error).max())


@pytest.mark.parametrize("order", range(3))
def test_a_sum_in_another_order_is_within_the_bound(order: int) -> None:
    net = nn.Linear(12, 5, bias=False)
    weight, found = net.weight.detach().numpy(), np.zeros((len(X), 5), np.float32)
    for column in np.random.default_rng(order).permutation(12):
        found += X.numpy()[:, column, None] * weight[:, column]
    exact, error = bounded(net, X)
    assert (np.abs(found - exact.numpy()) <= error.numpy()).all()


def test_the_bound_of_a_sum_is_gamma_of_its_sizes() -> None:
    net = nn.Linear(12, 5)
    sizes = X.double().abs() @ net.weight.double().abs().T + net.bias.double().abs()
    th.testing.assert_close(bounded(net, X)[1], (gamma(12 + 8) * sizes).detach(), rtol=1e-9, atol=0)
    assert gamma(100) == 100 * UNIT / (1 - 100 * UNIT)
    assert gamma(2**24) == np.inf
    twice = nn.Sequential(net, nn.Linear(5, 2, bias=False))
    inner, error = (gamma(20) * sizes).detach(), bounded(twice, X)[1]
    weight = twice[1].weight.detach().double().abs()
    carried = inner @ weight.T
    hidden = net(X.double().float()).double().abs()
    own = gamma(5 + 8) * ((hidden + inner) @ weight.T)
    th.testing.assert_close(error, carried + own.detach(), rtol=1e-3, atol=0)


def one(function: Callable[..., th.Tensor], *values: float, error: float = 0.0) -> tuple[float, float]:
    """Of numbers that are `error` off."""
    given = [Bounded(th.tensor([v], dtype=th.float64), th.tensor([error], dtype=th.float64)) for v in values]
    ((exact, found),) = evaluate(lambda: [function(*given)])
    return float(exact), float(found)


def test_each_operation_rounds_once_and_exact_ones_do_not() -> None:
    assert one(lambda a, b: a + b, 1.0, 2.5) == (3.5, 0.0)
    assert one(lambda a, b: a * b, 3.0, 2.5) == (7.5, 0.0)
    third = 1.0 / 3.0
    assert one(lambda a, b: a / b, 1.0, 3.0) == (third, pytest.approx(UNIT * third, rel=1e-12))
    assert one(lambda a, b: a - b, 1.0, 2.0**-30) == (1 - 2.0**-30, pytest.approx(UNIT, rel=1e-6))
    assert one(lambda a: a.clamp(min=-2.0), 0.3) == (0.3, 0.0)
    assert one(th.tanh, 0.5)[1] == FUNCTION * UNIT
    assert one(lambda a, b: a + b, 1.0, 0.0, error=0.5)[1] == 1.0 + 2.0 * UNIT  # of a result that may be 2


def test_what_the_arguments_are_off_by_is_carried_through() -> None:
    e = 2.0**-10

    def carried(function: Callable[..., th.Tensor], *values: float) -> float:
        return one(function, *values, error=e)[1]

    assert carried(lambda a, b: a + b, 1.0, 2.0) == pytest.approx(2 * e, rel=1e-3)
    assert carried(lambda a, b: a - 3 * b, 1.0, 2.0) == pytest.approx(4 * e, rel=2e-3)
    assert carried(lambda a: 1.0 - a, 4.0) == pytest.approx(e, rel=1e-3)
    assert carried(lambda a, b: a * b, 4.0, -2.0) == pytest.approx(6 * e + e * e, rel=1e-3)
    assert carried(lambda a, b: a / b, 4.0, -2.0) == pytest.approx((e + 2 * e) / (2 - e), rel=1e-3)
    assert carried(lambda a, b: a / b, 4.0, e / 2) == np.inf
    assert carried(lambda a: a**2, -3.0) == pytest.approx(6 * e + e * e, rel=2e-3)
    assert carried(th.sqrt, 4.0) == pytest.approx(e / 4, rel=1e-2)
    assert carried(th.sqrt, e / 2) == pytest.approx((1.5 * e) ** 0.5, rel=1e-3)
    assert carried(lambda a: a**-1.0, e / 2) == np.inf
    assert carried(th.exp, 2.0) == pytest.approx(np.exp(2) * (np.exp(e) - 1), rel=1e-2)
    assert carried(th.tanh, 0.0) == pytest.approx(e, rel=1e-2)
    assert carried(th.tanh, 30.0) == FUNCTION * UNIT  # saturated: what came before is forgotten
    assert carried(th.relu, -1.0) == 0.0
    assert carried(th.relu, e / 2) == 1.5 * e - e / 2
    assert carried(th.abs, -1.0) == carried(th.neg, 1.0) == e
    assert carried(nn.functional.silu, 1.0) == pytest.approx(1.1 * e, rel=2e-3)
    assert carried(nn.functional.gelu, 1.0) == pytest.approx(1.13 * e, rel=2e-3)
    assert carried(th.maximum, 1.0, 5.0) == e
    squares = carried(lambda a, b: (a[None] @ b[:, None])[0], 3.0, 2.0)
    assert squares == pytest.approx(5 * e + e * e, rel=1e-3)
    with pytest.raises(Unbounded, match="float16"):
        carried(lambda a: a.half().float(), 1.0)


def test_what_reductions_carry() -> None:
    e, row = 2.0**-10, th.tensor([[1.0, 2.0, 4.0]], dtype=th.float64)

    def carried(function: Callable[..., th.Tensor], row: th.Tensor = row, error: float = e) -> th.Tensor:
        ((_, found),) = evaluate(lambda: [function(Bounded(row, th.full_like(row, error)))])
        return found

    shares = row.softmax(1)
    th.testing.assert_close(carried(lambda x: x.softmax(1)), shares * np.expm1(2 * e), rtol=1e-2, atol=2e-6)
    th.testing.assert_close(carried(lambda x: x.logsumexp(1)), th.tensor([e], dtype=th.float64), rtol=1e-2, atol=0)
    th.testing.assert_close(carried(lambda x: x.sum(1)), th.tensor([3 * e], dtype=th.float64), rtol=2e-3, atol=0)
    # twice the distances from the mean, each off by its own error and the mean's
    away = (row - row.mean()).abs()
    want = (2 * away * 2 * e + (2 * e) ** 2).sum(1) / 3
    th.testing.assert_close(carried(lambda x: x.var(1, correction=0)), want, rtol=1e-2, atol=0)
    # the mean of the squares less the square of the mean loses the digits of a large mean
    far = carried(lambda x: x.var(1), row + 1000.0, 0.0)
    assert float(far) > UNIT * 3e6


def test_a_decision_within_the_error_is_not_certain() -> None:
    e = 2.0**-10

    def picked(a: th.Tensor, b: th.Tensor) -> th.Tensor:
        return th.where(a > 1.0, b, b + 10.0)

    assert one(picked, 1.0 + 2 * e, 3.0, error=e)[1] == e
    assert one(picked, 1.0 + e / 2, 3.0, error=e)[1] == pytest.approx(10 + e, rel=1e-3)
    assert one(lambda a: (a > 1.0).float(), 1.0, error=0.0) == (0.0, 0.0)
    assert one(lambda a: (a >= 1.0).float(), 1.0, error=e) == (1.0, pytest.approx(1.0))
    assert one(th.floor, 1.0 + e / 2, error=e)[1] == 1.0
    assert one(lambda a: a.long().float(), 1.0 + 2 * e, error=e) == (1.0, 0.0)
    assert one(lambda a: a.long().float(), 1.0 + e / 2, error=e) == (1.0, pytest.approx(1.0))

    def best(a: th.Tensor, b: th.Tensor) -> th.Tensor:
        return th.stack([a, b], dim=1).argmax(dim=1).float()

    assert one(best, 1.0, 1.0 + 3 * e, error=e) == (1.0, 0.0)
    assert one(best, 1.0, 1.0 + e, error=e) == (1.0, np.inf)
    assert one(best, 1.0, 1.0, error=0.0) == (0.0, 0.0)
    with pytest.raises(Unbounded, match="not certain"):
        one(lambda a, b: a.gather(0, th.stack([a, b], dim=1).argmax(dim=1)), 1.0, 1.0 + e, error=e)
    with pytest.raises(Unbounded, match="taken out of a tensor"):
        one(lambda a: a * a.item(), 1.0, error=e)


@pytest.mark.parametrize("function", [lambda x: x.topk(2).values, lambda x: x.sort().values, nn.LSTM(12, 3)])
def test_what_has_no_rule_is_said(function: Any) -> None:
    with pytest.raises(Unbounded):
        evaluate(lambda: [function(X)[0]])
    with pytest.raises(Unbounded):  # nor is anything done outside
        Bounded(X.double(), X.double()) + 1


def test_an_overflow_has_no_bound() -> None:
    assert one(th.exp, 1000.0)[1] == np.inf
    assert one(lambda a: a / 0.0, 1.0)[1] == np.inf
    assert one(th.log, -1.0)[1] == np.inf
