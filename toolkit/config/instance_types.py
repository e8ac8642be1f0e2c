"""Facts of EC2 on instance types: processors, and Elastic Fabric Adapters.

From DescribeInstanceTypes (NetworkInfo, ProcessorInfo), as moto 5.2.5 carries it for
1,395 types. A family that is not here is newer: EC2 knows it, and this table does not.
"""

from __future__ import annotations

from typing import Final

# One family a line, with its sizes that have EFA; `=4`: up to four interfaces, else one.
_EFA: Final = """
c5n 9xlarge 18xlarge metal
c6a 48xlarge metal
c6i 32xlarge metal
c6id 32xlarge metal
c6in 32xlarge=2 metal=2
c7a 48xlarge metal-48xl
c7i 48xlarge metal-48xl
c8a 48xlarge metal-48xl
c8i 48xlarge 96xlarge metal-48xl metal-96xl
c8ib 48xlarge 96xlarge=2 metal-48xl metal-96xl=2
c8id 48xlarge 96xlarge metal-48xl metal-96xl
c8in 48xlarge 96xlarge=2 metal-48xl metal-96xl=2
dl2q 24xlarge
f2 48xlarge
g4dn 8xlarge 12xlarge 16xlarge metal
g5 8xlarge 12xlarge 16xlarge 24xlarge 48xlarge
g6 8xlarge 12xlarge 16xlarge 24xlarge 48xlarge
g6e 8xlarge 12xlarge 16xlarge 24xlarge=2 48xlarge=4
g7 8xlarge 12xlarge 24xlarge 48xlarge=2
g7e 8xlarge 12xlarge 24xlarge=2 48xlarge=4
gr6 8xlarge
hpc6a 48xlarge
hpc6id 32xlarge=2
hpc7a 12xlarge=2 24xlarge=2 48xlarge=2 96xlarge=2
hpc8a 96xlarge=2
i3en 12xlarge 24xlarge metal
i4i 32xlarge metal
i7i 24xlarge 48xlarge metal-48xl
i7ie 48xlarge metal-48xl
inf1 24xlarge
m5dn 24xlarge metal
m5n 24xlarge metal
m5zn 12xlarge metal
m6a 48xlarge metal
m6i 32xlarge metal
m6id 32xlarge metal
m6idn 32xlarge=2 metal=2
m6in 32xlarge=2 metal=2
m7a 48xlarge metal-48xl
m7i 48xlarge metal-48xl
m8a 48xlarge metal-48xl
m8azn 24xlarge metal-24xl
m8i 48xlarge 96xlarge metal-48xl metal-96xl
m8ib 48xlarge 96xlarge=2 metal-48xl metal-96xl=2
m8id 48xlarge 96xlarge metal-48xl metal-96xl
m8idb 48xlarge 96xlarge=2 metal-48xl metal-96xl=2
m8idn 48xlarge 96xlarge=2 metal-48xl metal-96xl=2
m8in 48xlarge 96xlarge=2 metal-48xl metal-96xl=2
p3dn 24xlarge
p4d 24xlarge=4
p4de 24xlarge=4
p5 4xlarge 48xlarge=32
p5e 48xlarge=32
p5en 48xlarge=16
p6-b200 48xlarge=8
p6-b300 48xlarge=16
r5dn 24xlarge metal
r5n 24xlarge metal
r6a 48xlarge metal
r6i 32xlarge metal
r6id 32xlarge metal
r6idn 32xlarge=2 metal=2
r6in 32xlarge=2 metal=2
r7a 48xlarge metal-48xl
r7i 48xlarge metal-48xl
r7iz 32xlarge metal-32xl
r8a 48xlarge metal-48xl
r8i 48xlarge 96xlarge metal-48xl metal-96xl
r8ib 48xlarge 96xlarge=2 metal-48xl metal-96xl=2
r8id 48xlarge 96xlarge metal-48xl metal-96xl
r8idb 48xlarge 96xlarge=2 metal-48xl metal-96xl=2
r8idn 48xlarge 96xlarge=2 metal-48xl metal-96xl=2
r8in 48xlarge 96xlarge=2 metal-48xl metal-96xl=2
trn1 32xlarge=8
trn1n 32xlarge=16
trn2 3xlarge 48xlarge=16
trn2u 48xlarge=16
u7i-12tb 224xlarge
u7i-6tb 112xlarge
u7i-8tb 112xlarge
u7in-16tb 224xlarge=2
u7in-24tb 224xlarge=2
u7in-32tb 224xlarge=2
vt1 24xlarge
x2idn 32xlarge metal
x2iedn 32xlarge metal
x2iezn 12xlarge metal
x8aedz 24xlarge metal-24xl
x8i 48xlarge 64xlarge 96xlarge metal-48xl metal-96xl
"""

# Families of x86_64 of which no size has EFA.
_WITHOUT_EFA: Final = """
c1 c3 c4 c5 c5a c5ad c5d c7i-flex c8i-flex c8ine d2 d3 d3en g6f gr6f h1 i2 i3 inf2 m1 m2 m3 m4
m5 m5a m5ad m5d m7i-flex m8i-flex m8ine r3 r4 r5 r5a r5ad r5b r5d r8i-flex t1 t2 t3 t3a t8i
u-3tb1 u-6tb1 x1 x1e z1d
"""

# Families with ARM processors.
_ARM: Final = """
a1 c6g c6gd c6gn c7g c7gd c7gn c8g c8gb c8gd c8gn c9g c9gd g5g hpc7g i4g i8g i8ge im4gn is4gen
m6g m6gd m7g m7gd m8g m8gb m8gd m8gn m9g m9gd r6g r6gd r7g r7gd r8g r8gb r8gd r8gn r9g r9gd t4g
x2gd x8g
"""


def _read(line: str) -> tuple[str, dict[str, int]]:
    family, *sizes = line.split()
    counts = (size.partition("=") for size in sizes)
    return family, {size: int(count or 1) for size, _, count in counts}


EFA_SIZES: Final = dict(_read(line) for line in _EFA.split("\n") if line)
WITHOUT_EFA: Final = frozenset(_WITHOUT_EFA.split())
ARM: Final = frozenset(_ARM.split())

# The first network card has ENA alone; 16 more have EFA.
# https://github.com/aws/aws-parallelcluster/issues/7143 quotes AWS's engineers.
FIRST_CARD_WITHOUT_EFA: Final = frozenset({"p6-b300.48xlarge"})


def family(instance_type: str) -> str:
    """Return the family, `g5` of `g5.xlarge`."""
    return instance_type.partition(".")[0]


def efa_interfaces(instance_type: str) -> int | None:
    """Return the most EFA interfaces of a type; None: not known."""
    name, _, size = instance_type.partition(".")
    if name in EFA_SIZES:
        return EFA_SIZES[name].get(size, 0)
    return 0 if name in WITHOUT_EFA else None


def types_with_efa(name: str) -> tuple[str, ...]:
    """Return a family's types that have EFA."""
    return tuple(f"{name}.{size}" for size in EFA_SIZES.get(name, ()))
