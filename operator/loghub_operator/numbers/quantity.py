"""A number as Kubernetes writes it.

What for: `resource.Quantity` in a metric's value. What it must not know: metrics. Read next:
`loghub_operator.numbers.external_metrics`.
"""

import math

MOST = 2**63 // 1000 - 1


def quantity(value: float) -> str:
    """Thousandths, rounded up: "1500m" for 1.5, "3" for 3. Beyond its range, the range's end."""
    thousandths = math.ceil(round(min(max(value, -MOST), MOST) * 1000, 6))
    whole, rest = divmod(thousandths, 1000)
    return f"{thousandths}m" if rest else str(whole)
