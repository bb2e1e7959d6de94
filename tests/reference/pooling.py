"""Every pooling operator written from its formula, slowly: numpy, float64, one bag, one class at a time.

`REFERENCES[name](x, q)` takes the real frames of one bag and one class, x (m,), and that class's parameters by name, q,
and gives P. The structured operators, which look at more than that, take the whole bag: `STRUCTURED[name](x, h, pool)`,
x (m, classes), h (m, dim).
"""

import math
from decimal import Decimal, localcontext

import numpy as np


def weighted(x, w):
    return float(sum(a * b for a, b in zip(w, x, strict=True)) / sum(w))


def auto(x, q):
    alpha = q["alpha"]
    return weighted(x, [math.exp(alpha * (a - (max(x) if alpha > 0 else min(x)))) for a in x])


def cap(x, q):
    m = len(x)
    if m <= 2:
        low = high = 0.0
    elif q["least"] is None:
        high = max(0.0, math.log(q["phi"] / (1 - q["phi"])) + math.log(m - 1))
        low = -high
    else:
        k = min(max(q["least"], 1.0), m - 1)
        low, high = -math.log(m - 1), math.log(m / k - 1)
    if q["phi_minus"] is not None and m > 1:
        low = min(0.0, math.log(q["phi_minus"] / (1 - q["phi_minus"])) + math.log(m - 1))
    return auto(x, {"alpha": min(max(q["alpha"], low), high)})


def lse(x, q):
    r = q["sharpness"]
    if r == 0:
        return float(np.mean(x))
    peak = max(r * a for a in x)
    return (peak + math.log(np.mean([math.exp(r * a - peak) for a in x]))) / r


def gm(x, q):
    r = q["sharpness"]
    x = [max(a, 1e-7) for a in x]
    if r == 0:
        return math.exp(np.mean([math.log(a) for a in x]))
    return math.exp(lse([math.log(a) for a in x], q))


def noisy_and(x, q):
    def s(z):
        return 1 / (1 + math.exp(-z))

    a, b, mean = q["slope"], q["threshold"], float(np.mean(x))
    return (s(a * (mean - b)) - s(-a * b)) / (s(a * (1 - b)) - s(-a * b))


def isr(x, q):
    if any(a == 1 for a in x):
        return 1.0
    odds = sum(a / (1 - a) for a in x)
    return odds / (1 + odds)


def top_k(x, q):
    k = min(q["k"], len(x)) if q["share"] is None else max(1, math.ceil(len(x) * q["share"]))
    return float(np.mean(sorted(x, reverse=True)[:k]))


def rank(x, q):
    return weighted(sorted(x, reverse=True), [q["decay"] ** j for j in range(len(x))])


def linear(x, q=None):
    return weighted(x, [max(a, 1e-7) for a in x])


def linear_auto(x, q):
    """In 60 decimal digits, which neither overflow nor cancel."""
    with localcontext(prec=60):
        alpha, frames = Decimal(q["alpha"]), [Decimal(max(a, 1e-7)) for a in x]
        w = [a if alpha == 0 else ((alpha * a).exp() - 1) / alpha for a in frames]
        return float(sum(a * Decimal(b) for a, b in zip(w, x, strict=True)) / sum(w))


def linear_cap(x, q):
    """The bound by bisection: the least alpha with which the active share outvotes the worst that the rest can hold."""

    def is_positive(alpha):
        b = np.linspace(0, 0.5, 20001)
        worst = np.max((0.5 - b) * np.expm1(alpha * b) / alpha)
        return q["min_active"] * 0.5 * math.expm1(alpha) / alpha >= (1 - q["min_active"]) * worst

    low, high = 1e-9, 50.0
    for _ in range(50):
        middle = (low + high) / 2
        low, high = (low, middle) if is_positive(middle) else (middle, high)
    return linear_auto(x, {"alpha": min(q["alpha"], high)})


REFERENCES = {
    "max": lambda x, q: max(x),
    "min": lambda x, q: min(x),
    "mean": lambda x, q: float(np.mean(x)),
    "softmax": lambda x, q: auto(x, {"alpha": 1.0}),
    "auto": auto,
    "cap": cap,
    "rap": auto,
    "linear": linear,
    "power": lambda x, q: weighted(
        x, [math.exp(q["exponent"] * math.log(max(a, 1e-7) / max(max(x), 1e-7))) for a in x]
    ),
    "linear-auto": linear_auto,
    "linear-cap": linear_cap,
    "linear-rap": linear_auto,
    "lse": lse,
    "gm": gm,
    "noisy-or": lambda x, q: 1 - math.prod(1 - a for a in x),
    "noisy-and": noisy_and,
    "isr": isr,
    "top-k": top_k,
    "rank": rank,
    "mean-max": lambda x, q: (1 - q["mix"]) * float(np.mean(x)) + q["mix"] * max(x),
}


def attend(x, scores):
    """Columns of x averaged with soft-max weights from the columns of scores."""
    return np.array([weighted(x[:, c], np.exp(scores[:, c] - scores[:, c].max())) for c in range(x.shape[1])])


def attention(x, h, pool):
    w, b = pool["look.weight"], pool["look.bias"]
    return attend(x, h @ w.T + b)


def gated_attention(x, h, pool):
    value = np.tanh(h @ pool["value.weight"].T + pool["value.bias"])
    gate = 1 / (1 + np.exp(-(h @ pool["gate.weight"].T + pool["gate.bias"])))
    return attend(x, (value * gate) @ pool["look.weight"].T)


def hierarchical(x, h, pool):
    for size in pool["sizes"]:
        x = np.stack([[linear(x[i : i + size, c]) for c in range(x.shape[1])] for i in range(0, len(x), size)])
    return np.array([linear(x[:, c]) for c in range(x.shape[1])])


STRUCTURED = {"attention": attention, "gated-attention": gated_attention, "hierarchical": hierarchical}
