"""cluster.yaml's prices and payers reach the report."""

from decimal import Decimal

from tests.unit.config.test_load import GOOD, edited
from toolkit.accounting.cost_policy import CostPolicy, Payer
from toolkit.accounting.settings import contracts, cost_policy, infrastructure, racks
from toolkit.config import parse
from toolkit.config.cost_policy import CostPolicySection
from toolkit.prices import PriceSource, Shape
from toolkit.prices.contracts import Contracts, Term

DAY = 86_400
NOVEMBER = 1_793_491_200  # 2026-11-01


def test_without_the_sections_nothing_is_agreed():
    config = parse(GOOD)
    assert contracts(config) == Contracts()
    assert racks(config) == {}
    assert cost_policy(config) == CostPolicy()
    assert not infrastructure(config).prices.has_storage


def test_every_key_of_the_policy_reaches_accounting():
    assert set(CostPolicySection.model_fields) == set(CostPolicy().payers())
    config = parse(f"{GOOD}cost_policy: {{boot: shared, rack_idle: cluster}}\n")
    assert cost_policy(config) == CostPolicy(boot=Payer.SHARED, rack_idle=Payer.CLUSTER)


def test_a_capacity_block_pays_for_the_pool_that_offers_its_reservation():
    """Divide 336 dollars by 2 instances and 7 days."""
    offering = (
        "{type: p5.48xlarge, capacity: capacity-block, zone: us-east-1a, reservation: cr-0abc}"
    )
    text = edited("      - {type: g5.xlarge, capacity: spot}\n", f"      - {offering}\n")
    block = "{reservation: cr-0abc, count: 2, usd_total: 336, since: 2026-11-01, until: 2026-11-08}"
    config = parse(f"{text}prices: {{as_of: 2026-11-01, capacity_blocks: [{block}]}}\n")
    (reservation,) = contracts(config).reservations
    assert reservation.match.pools == {("gpu", "p5.48xlarge", "us-east-1a")}
    assert reservation.usd_per_hour == 1
    assert reservation.source is PriceSource.CAPACITY_BLOCK
    assert reservation.term == Term(NOVEMBER, NOVEMBER + 7 * DAY)


def test_a_racks_nodes_have_their_rate_and_shape():
    section = """\
prices:
  as_of: 2026-11-01
  racks:
    - {nodes: "dgx[01-02]", usd_per_hour: 9.5}
    - {nodes: RACK7, shape: {cpus: 64, memory_gib: 2}, capex_usd: 8760, years: 1,
       target_utilisation: 0.5}
"""
    nodes = racks(parse(f"{GOOD}{section}"))
    assert list(nodes) == ["dgx01", "dgx02", "RACK7"]
    assert (nodes["dgx02"].price.usd_per_hour, nodes["dgx02"].shape) == (Decimal("9.5"), None)
    assert (nodes["RACK7"].price.usd_per_hour, nodes["RACK7"].shape) == (2, Shape(64, 2048, 0))
    assert nodes["RACK7"].price.as_of == NOVEMBER
