"""A rank's exception becomes the right verdict."""

import pytest

from toolkit.training.attempt import exception_verdict
from toolkit.training.attempt.sigterm import Terminated

_GLOO = (
    "[/__w/pytorch/pytorch/third_party/gloo/gloo/transport/tcp/pair.cc:537] Read error"
    " [127.0.0.1]:31960: Connection reset by peer. This is typically caused by a remote worker"
)


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (RuntimeError(_GLOO), ("resume", "peer-lost")),
        (RuntimeError("Connection closed by peer [10.42.1.5]:2345"), ("resume", "peer-lost")),
        (RuntimeError("NCCL Error 6: unhandled: remote process exited"), ("resume", "peer-lost")),
        (ConnectionResetError(104, "Connection reset by peer"), ("resume", "peer-lost")),
        (Terminated(143), ("resume", "terminated")),
        (RuntimeError("mat1 and mat2 shapes cannot be multiplied"), ("failed", "error")),
        (ValueError("Connection reset by peer"), ("failed", "error")),
        (KeyboardInterrupt(), ("failed", "error")),
        (SystemExit("no data"), ("failed", "error")),
    ],
)
def test_a_rank_that_went_away_is_no_fault_of_the_script(error, expected):
    word = exception_verdict.verdict_of(error, 7)
    assert (word.verdict, word.cause) == expected
