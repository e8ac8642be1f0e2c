"""Connect to a port some times and print the seconds: a program for `python3 -I -`.

It runs on the site's controller or on an instance, by whatever Python 3 is there. Its arguments are
host, port, attempts and the limit of one attempt in seconds. It prints one line of JSON.
"""

import json
import socket
import sys
import time


def attempt(host: str, port: int, limit: float) -> "tuple[str, float | None]":
    """Connect once; return the outcome, and the seconds if the host answered."""
    started = time.monotonic()
    try:
        with socket.create_connection((host, port), timeout=limit):
            return "open", time.monotonic() - started
    except socket.gaierror:
        return "no-address", None
    except ConnectionRefusedError:
        return "refused", time.monotonic() - started
    except (OSError, OverflowError):
        return "silent", None


def main() -> None:
    """Print {"outcome": …, "seconds": […]} of all attempts."""
    host, port, count, limit = sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), float(sys.argv[4])
    attempts = []
    for _ in range(count):
        attempts.append(attempt(host, port, limit))
        if attempts[-1][0] in {"silent", "no-address"}:
            break  # the others would wait as long
    outcome = attempts[-1][0] if attempts else "silent"
    seconds = [round(value, 6) for _, value in attempts if value is not None]
    sys.stdout.write(json.dumps({"outcome": outcome, "seconds": seconds}) + "\n")


if __name__ == "__main__":
    main()
