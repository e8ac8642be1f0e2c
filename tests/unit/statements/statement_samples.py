"""The content of one month's statements, with names that are hostile."""

from __future__ import annotations

from decimal import Decimal
from fractions import Fraction

from toolkit.accounting.charges import ChargePrices, Component
from toolkit.prices import PriceSource
from toolkit.statements.model import Issue
from toolkit.statements.settings import AccountFacts, GrantFacts, Rates, StatementSettings
from toolkit.statements.uses import Use

HOUR = 3600
HISTORY = ChargePrices((PriceSource.HISTORY,), 1_794_000_000)
CATALOGUE = ChargePrices((PriceSource.CATALOGUE,), 1_784_505_600)  # 2026-07-20
SETTINGS = StatementSettings(
    "demo",
    issuer="HPC group, Example University",
    sender="hpc@example.org",
    rates=Rates("2026-10-01", Decimal("2.50"), {"c7i.4xlarge": Decimal("0.8")}, {"g5.xlarge": 1}),
    recovery="4800",
    subsidy="6900",
    overhead="6800",
    accounts={
        "vision": AccountFacts(
            "vision",
            owner="pi@example.org",
            cost_centre="4711",
            grant=GrantFacts("ERC <1>", "2026-01-01", "2026-11-20"),
            discount_percent=Decimal("12.5"),
            subsidy_cents=5_000,
        ),
        "video": AccountFacts("video", "vision", owner="post-doc@example.org"),
    },
)


def use(account, user, component, usd, hours=0, **more):
    names = {
        "project": "imagenet",
        "job": "7",
        "instance": "i-1",
        "instance_type": "g5.xlarge",
        "prices": HISTORY,
    }
    micro = int(Decimal(usd) * 1_000_000)
    seconds = Fraction(Decimal(hours) * HOUR)
    return Use(
        account=account, user=user, component=component.value, micro=micro, seconds=seconds,
        **(names | more),
    )  # fmt: skip


USES = (
    use("vision", "ada", Component.WORK, "612.345678", "608.5"),
    use(
        "vision",
        "=ada()<b>",
        Component.WORK,
        "100.005",
        "125",
        instance_type="c7i.4xlarge",
        project="",
        prices=CATALOGUE,
    ),
    use("vision", "ada", Component.LOST, "12.004999", "11.9"),
    use("vision", "ada", Component.BOOT, "3.333333", "3.2"),
    use("vision", "ada", Component.IDLE_TAIL, "1.111111", "1.1"),
    use("vision", "ada", Component.REFUND, "-0.5"),
    use(
        "vision",
        "ada",
        Component.WORK,
        "0",
        "2",
        instance_type="p9.metal",
        instance="i-9",
        known=False,
        prices=None,
    ),
    use("video", "grace", Component.WORK, "45.678901", "44"),
    use("", "", Component.HEAD, "86.4", "720", instance_type="m7i.large", instance="i-head"),
)
LATE = (
    use("vision", "ada", Component.WORK, "-4.2", "-4"),
    use("vision", "ada", Component.LOST, "6.3", "6"),
)
CLOSED_AT = 1_796_083_200
ISSUE = Issue(
    cluster="demo",
    issuer=SETTINGS.issuer,
    sender=SETTINGS.sender,
    period="2026-11",
    first="2026-11-01",
    last="2026-11-30",
    known_to="2026-11-30",
    made_at=CLOSED_AT,
    closed_at=CLOSED_AT,
    revision=2,
    list_price=SETTINGS.list_price,
    rates_as_of="2026-10-01",
)
