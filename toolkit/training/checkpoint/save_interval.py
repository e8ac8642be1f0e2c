"""How often to save. Only arithmetic.

Young (CACM 17, 1974): with `cost` seconds lost by a save and `mtti` seconds between interruptions,
saving after every sqrt(2 · cost · mtti) seconds of work loses least, to saves and to work done
again together. Daly (Future Generation Computer Systems 22, 2006) has the next terms.
"""

import math


def interval(cost: float, mtti: float, *, floor: float, ceiling: float) -> float:
    """Seconds of work from the end of a save to the next one, by Daly's higher-order estimate.

    Within the bounds. A save in the background costs what it makes training wait.
    """
    if cost >= 2 * mtti:  # interrupted before it has paid off, whatever the interval
        best = mtti
    else:
        share = math.sqrt(cost / (2 * mtti))
        best = math.sqrt(2 * cost * mtti) * (1 + share / 3 + share * share / 9) - cost
    return min(max(best, floor), ceiling)
