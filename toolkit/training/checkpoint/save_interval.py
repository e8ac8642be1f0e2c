"""Compute how often to save. Only arithmetic.

`cost` is the seconds lost by a save, `mtti` the seconds between interruptions. Young (CACM 17,
1974): saving after every sqrt(2 · cost · mtti) seconds of work loses least, to saves and to
repeated work together. Daly (Future Generation Computer Systems 22, 2006) has the next terms.
"""

import math


def interval(cost: float, mtti: float, *, floor: float, ceiling: float) -> float:
    """Return the seconds of work from one save's end to the next.

    They follow Daly's higher-order estimate, within the bounds. A save in the background costs only
    the time that training waits for it.
    """
    if cost >= 2 * mtti:  # an interruption comes before a save pays off, at any interval
        seconds = mtti
    else:
        ratio = math.sqrt(cost / (2 * mtti))
        seconds = math.sqrt(2 * cost * mtti) * (1 + ratio / 3 + ratio * ratio / 9) - cost
    return min(max(seconds, floor), ceiling)
