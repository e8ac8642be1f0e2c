"""Tell causes apart by rules, in order: the first that fits decides.

Statements of the workers, Slurm and EC2 go before hints in a log. In a log, errors that can only be
a root go before errors that also follow from others. When a rank dies of its own error or of the
memory killer, every other rank complains about NCCL.

Raise VERSION with every change that may change an answer. The attempts file has it beside the rule.
"""

import re

from toolkit.training.requeue.failure_cause import LINE, Diagnosis, Evidence, Rule, Source, diagnose
from toolkit.training.run_folder.attempts import Cause

VERSION = 9


def _rule(slug: str, cause: Cause, source: Source, pattern: str) -> Rule:
    return Rule(slug, cause, source, re.compile(pattern, re.MULTILINE))


_EXCEPTION_PREFIX = LINE + r"(?:\w+\.)*"  # before the class of an exception that ends its process

_STATED = (
    _rule("verdict-done", Cause.FINISHED, "verdict", r"^done\b"),
    _rule("stopped-spot", Cause.SPOT, "verdict", r"^resume spot-interruption"),
    _rule("stopped-event", Cause.SCHEDULED, "verdict", r"^resume scheduled-event"),
    _rule("stopped-preempted", Cause.PREEMPTED, "verdict", r"^resume preemption"),
    _rule("stopped-time-limit", Cause.TIME_LIMIT, "verdict", r"^resume time-limit"),
    _rule("state-cancelled", Cause.CANCELLED, "state", r"CANCELLED"),
    _rule("state-preempted", Cause.PREEMPTED, "state", r"PREEMPTED"),
    _rule("state-timeout", Cause.TIME_LIMIT, "state", r"TIMEOUT|DEADLINE"),
    _rule("state-memory", Cause.MEMORY, "state", r"OUT_OF_MEMORY"),
    _rule("asked-spot", Cause.SPOT, "stop", r"spot-interruption"),
    _rule("asked-event", Cause.SCHEDULED, "stop", r"scheduled-event"),
    _rule("asked-preempted", Cause.PREEMPTED, "stop", r"preemption"),
    # Accounting reports an end by 85 so too. That attempt was judged before, or by a rule above.
    _rule("state-requeued", Cause.REQUEUED, "state", r"REQUEUED"),
    _rule(
        "node-taken", Cause.SPOT, "node", r"toolkit: (?:spot interruption|interrupted)"
        r"|SpotInstance(?:Termination|Shutdown)"
    ),
    _rule("node-event", Cause.SCHEDULED, "node", r"toolkit: scheduled"),
    _rule("state-node-fail", Cause.NODE, "state", r"NODE_FAIL|BOOT_FAIL"),
    _rule(
        "node-lost", Cause.NODE, "node",
        r"\b(?:DOWN|NOT_RESPONDING|FAIL)\b|toolkit: (?:machine-ended|no-machine|impaired)",
    ),
    _rule("asked-time-limit", Cause.TIME_LIMIT, "stop", r"time-limit"),
    # The attempt went on after its end, on a node that Slurm had given up.
    _rule("superseded", Cause.NODE, "verdict", r"^resume superseded"),
    # A request with another cause, or an unreadable one: somebody wants the instances.
    _rule("stopped-otherwise", Cause.PREEMPTED, "verdict", r"^resume (?!peer-lost|terminated)"),
)  # fmt: skip

_SLURM = (
    _rule("log-preempted", Cause.PREEMPTED, "log", r"CANCELLED AT \S+ DUE TO PREEMPTION"),
    _rule("log-node-failure", Cause.NODE, "log",
          r"DUE TO NODE FAILURE|srun: error: Node failure on|Required node not available \(down"),
    _rule("log-time-limit", Cause.TIME_LIMIT, "log", r"DUE TO TIME LIMIT"),
    _rule("log-requeued", Cause.REQUEUED, "log", r"CANCELLED AT \S+ DUE TO JOB REQUEUE"),
)  # fmt: skip

_HARDWARE = (
    _rule("gpu-memory-fault", Cause.TRANSIENT, "log",
          r"(?i)uncorrectable (?:ECC|NVLink) error|CUDA_ERROR_ECC|double.bit ECC"
          r"|ECC page retirement|row remapp\w+ (?:failure|pending)"),
    # Not other Xids (13, 31, 43, 45): the driver reports a program's own fault by them.
    _rule("gpu-xid", Cause.TRANSIENT, "log",
          r"Xid \(PCI:[^)]*\): (?:48|6[1-4]|74|79|9[245]|119|12[01]|136|14[0359])\b"),
    _rule("gpu-gone", Cause.TRANSIENT, "log",
          r"(?i)fallen off the bus|device handle for GPU|GPU is lost|GPU-\S+ is lost"
          r"|no CUDA-capable device is detected|CUDA-capable device\(s\) is/are busy"
          r"|Failed to initialize NVML: (?:Unknown|Driver)|CUDA error: unknown error"
          r"|CUDA unknown error - this may be due|unspecified launch failure"
          r"|driver shutting down|Fabric Manager|system not yet initialized"),
)  # fmt: skip

_MEMORY = (
    _rule("memory-killed", Cause.MEMORY, "log",
          r"(?i)oom[-_ ]kill(?! count)|Out of memory: Killed process"
          r"|task \d+(?:-\d+)?: Out Of Memory"
          r"|exceeded (?:job|step) memory limit|Some of your processes may have been killed"),
    _rule("gpu-memory", Cause.MEMORY, "log",
          r"CUDA out of memory|CUDA error: out of memory|OutOfMemoryError|HIP out of memory"
          r"|CUBLAS_STATUS_ALLOC_FAILED|cudaErrorMemoryAllocation|RESOURCE_EXHAUSTED: Out of memory"
          r"|NCCL WARN Cuda failure(?: \d+)? '?out of memory"),
    _rule("host-memory", Cause.MEMORY, "log",
          _EXCEPTION_PREFIX + r"(?:_?(?:Array)?MemoryError\b|OSError: \[Errno 12\])|std::bad_alloc"
          r"|DefaultCPUAllocator: (?:can't|not enough)|Cannot allocate memory"
          r"|insufficient shared memory|DataLoader worker .{0,40}killed by signal: (?:Killed|Bus)"),
)  # fmt: skip

_FILESYSTEM = (
    _rule("filesystem-full", Cause.TRANSIENT, "log",
          r"No space left on device|Disk quota exceeded|\[Errno (?:28|122)\]"),
    _rule("filesystem", Cause.TRANSIENT, "log",
          r"\[Errno (?:5|107|108|116|121)\]|Input/output error|Stale (?:NFS )?file handle"
          r"|Transport endpoint is not connected|Cannot send after transport endpoint shutdown"
          r"|LustreError|\[Errno 30\]|Read-only file system|PytorchStreamWriter failed writing"
          r"|PytorchStreamReader failed (?:reading|locating)"),
)  # fmt: skip

_SCRIPT = (
    _rule("not-a-number", Cause.ERROR, "log",
          r"(?i)loss (?:is|became|was|=) ?(?:nan|inf)\b|NaN or Inf found|returned nan values"
          r"|loss scale already at minimum|" + _EXCEPTION_PREFIX + r"FloatingPointError"
          r"|(?:non-?finite|infinite or nan) (?:loss|grad)"),
    _rule("cannot-start", Cause.ERROR, "log",
          _EXCEPTION_PREFIX
          + r"(?:ImportError|ModuleNotFoundError|SyntaxError|IndentationError|TabError)\b"
          r"|: error: (?:unrecognized|the following|argument |ambiguous)|can't open file '"
          r"|(?:command|program) not found|undefined symbol:|version `\S+' not found"
          r"|execve\(\): \S+: (?:No such|Permission)|failed to execute: \S+: No such"
          r"|Unable to create step for job \d+: (?:Invalid|Requested|More processors|Memory)"
          r"|CUDA version|no kernel image is available"),
    _rule("device-assert", Cause.ERROR, "log",
          r"device-side assert triggered|an illegal (?:memory access|instruction)"
          r"|misaligned address|Assertion `.*` failed"),
    _rule("other-service", Cause.TRANSIENT, "log",
          r"(?i)temporary failure in name resolution|(?:Read|Connect)Timeout(?:Error)?\b"
          r"|EndpointConnectionError|Max retries exceeded with url|\(SlowDown\)|ServiceUnavailable"
          r"|(?:502|503|504) (?:Server Error|Service|Bad Gateway|Gateway)|429 (?:Client|Too Many)"
          r"|RemoteDisconnected|IncompleteRead|EOF occurred in violation of protocol"
          r"|NoStorage: \S+ does not answer|StatusCode\.(?:UNAVAILABLE|DEADLINE_EXCEEDED)"),
    _rule("exception", Cause.ERROR, "log",
          _EXCEPTION_PREFIX
          + r"(?:AssertionError|AttributeError|KeyError|TypeError|ValueError|IndexError|NameError"
          r"|UnboundLocalError|ZeroDivisionError|NotImplementedError|FileNotFoundError"
          r"|PermissionError|IsADirectoryError|NotADirectoryError|UnicodeDecodeError|JSONDecodeError"
          r"|UnpicklingError|ConfigAttributeError|MisconfigurationException|ValidationError"
          r"|RepositoryNotFoundError|GatedRepoError|RecursionError|StopIteration)\b"),
    _rule("torch-misuse", Cause.ERROR, "log",
          r"shapes cannot be multiplied|size mismatch for |Error\(s\) in loading state_dict"
          r"|must match the size of tensor|Expected all tensors to be on the same device"
          r"|expected scalar type|invalid for input of size|does not require grad"
          r"|Expected to have finished reduction in the prior iteration|backward through the graph"
          r"|Trying to resize storage|CUBLAS_STATUS_(?:INVALID_VALUE|NOT_SUPPORTED)"
          r"|CheckpointException ranks|Missing key in checkpoint|invalid device ordinal"),
)  # fmt: skip

_KILLED = (
    # No line says why. Most often the kernel was out of memory, on a node whose log is elsewhere.
    _rule("killed-silently", Cause.MEMORY, "log",
          r"exitcode\s*: -9\b|Signal 9 \(SIGKILL\) received|return code = -9\b"
          r"|\(exitcode: -9\)|died with <Signals\.SIGKILL|^\S*: line \d+: +\d+ Killed\b"),
    _rule("bus-error", Cause.MEMORY, "log", r"exitcode\s*: -7\b|return code = -7\b|Bus error"),
    _rule("segfault", Cause.ERROR, "log",
          r"exitcode\s*: -11\b|return code = -11\b|Segmentation fault|Signal 11 \(SIGSEGV\)"),
)  # fmt: skip

_NETWORK = (
    _rule("collective-timeout", Cause.TRANSIENT, "log",
          r"Watchdog caught collective operation timeout|Some NCCL operations have failed"
          r"|heartbeat monitor timed out"
          r"|Timed out waiting \d+ms for (?:recv|send) operation|wait timeout after \d+ms"
          r"|monitoredBarrier|Timeout at NCCL work|Timed out initializing process group"),
    _rule("nccl", Cause.TRANSIENT, "log",
          r"nccl(?:System|Remote|Internal|UnhandledCuda)Error|NCCL (?:communicator was aborted"
          r"|Error \d)|NCCL error (?:in|:)|NET/OFI .*(?:completed with error|Couldn't open)"
          r"|NET/IB : Got completion .*error|(?:ibv|fi)_\w+ (?:failed|error)"
          r"|(?:unhandled system|remote process exited)|efa_\w+\(\).*<warn> err"),
    _rule("peer-lost", Cause.TRANSIENT, "log",
          r"(?i)connection (?:was )?(?:closed|reset|refused|timed out)|broken pipe|socket timeout"
          r"|no route to host|network is unreachable|Dist(?:Backend|Network|Store)Error"
          r"|recvValue failed|failed to recv|unexpected EOF|timed out after \d+ (?:ms|seconds)"),
    _rule("rendezvous", Cause.TRANSIENT, "log",
          r"Rendezvous(?:Timeout|Connection|Closed|State)\w*Error|EADDRINUSE"
          r"|Address already in use|(?i:store.based barrier)"
          r"|client socket has (?:timed out|failed)"),
    # The process was sent SIGTERM and Slurm knows nothing of it: no error of the script's own.
    _rule("terminated", Cause.TRANSIENT, "log",
          r"Received 15 death signal|SignalException: Process \d+ got signal: 15\b"),
    _rule("launch", Cause.TRANSIENT, "log",
          r"Task launch for StepId=\S+ failed|Communication connection failure"
          r"|Socket timed out on send/recv|Job credential (?:expired|revoked)"
          r"|Unable to confirm allocation|error: Unable to create step"
          r"|container_\w+_join|pyxis: .*(?:failed|couldn't start)"
          r"|slurmstepd: error: .*container .*(?:fail|error)"),
)  # fmt: skip

_LAST = (
    _rule("peer-lost-said", Cause.TRANSIENT, "verdict", r"^resume (?:peer-lost|terminated)"),
    _rule("code-0", Cause.FINISHED, "exit", r"^0$"),
    _rule("code-killed", Cause.MEMORY, "exit", r"^137$"),
)

RULES = (
    *_STATED, *_SLURM, *_HARDWARE, *_MEMORY, *_FILESYSTEM, *_SCRIPT, *_KILLED, *_NETWORK, *_LAST,
)  # fmt: skip

PEER_LOST = frozenset(rule.name for rule in _NETWORK) | {"peer-lost-said"}
"""The rules that also fit on the other ranks when an instance ends.

Those ranks log errors seconds before EC2, and so Slurm, reports the loss.
"""


def classify(evidence: Evidence) -> Diagnosis:
    """Return the cause of an attempt's end, by these rules."""
    return diagnose(evidence, RULES, VERSION)
