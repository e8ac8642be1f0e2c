"""AWS's price list becomes a catalogue; a hostile one becomes a sentence."""

import copy
import json
from dataclasses import replace
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path

import pytest

from tests.unit.accounting.samples import T0, a_book
from tests.unit.prices.test_contracts import a_query, priced
from toolkit.prices import Catalogue, PriceBook, Shape, SpotHistory, imports, price_list
from toolkit.prices.errors import PricesError

LISTS = Path(__file__).parents[2] / "corpus" / "price_lists"
OREGON = json.loads((LISTS / "us-west-2.json").read_text())
SKU = "8F8SY92AB3YNQ4ZT"
TERM = f"{SKU}.JRTCKXETXF"
RATE = f"{TERM}.6YS6EN2CT7"
DAY = 86_400


def imported(tmp_path, data):
    path = tmp_path / "index.json"
    path.write_text(data if isinstance(data, str) else json.dumps(data))
    return price_list.read(path)


def changed(**prices):
    """Return the list with other prices of g5.xlarge, by currency."""
    data = copy.deepcopy(OREGON)
    rate = data["terms"]["OnDemand"][SKU][TERM]["priceDimensions"][RATE]
    rate["pricePerUnit"] = prices
    return data


def with_second(**product):
    """Return the list with a second g5.xlarge, at 2 dollars."""
    data = copy.deepcopy(OREGON)
    data["products"]["TWIN"] = {**copy.deepcopy(data["products"][SKU]), "sku": "TWIN"}
    data["products"]["TWIN"]["attributes"] |= product
    data["terms"]["OnDemand"]["TWIN"] = {
        "TWIN.X": {
            "effectiveDate": "2026-11-01T00:00:00Z",
            "priceDimensions": {"TWIN.X.Y": {"unit": "Hrs", "pricePerUnit": {"USD": "2.0"}}},
        }
    }
    return data


@pytest.mark.parametrize("name", ["us-west-2.json", "us-west-2.csv"])
def test_shared_linux_instances_without_software_are_taken(name):
    result = price_list.read(LISTS / name)
    catalogue = result.catalogue
    assert catalogue.region == "us-west-2"
    assert datetime.fromtimestamp(catalogue.as_of, UTC) == datetime(2026, 11, 20, tzinfo=UTC)
    assert catalogue.prices == {
        "g5.xlarge": Decimal("1.006"),
        "m7i.metal-24xl": Decimal("4.8384"),
        "t3.nano": Decimal("0.0052"),
        "u7in-24tb.224xlarge": Decimal("305.552"),
    }
    assert catalogue.shapes["g5.xlarge"] == Shape(4, 16 * 1024, 1)
    assert catalogue.shapes["t3.nano"] == Shape(2, 512, 0)
    assert catalogue.shapes["u7in-24tb.224xlarge"] == Shape(896, 24_576 * 1024, 0)
    assert result.left_out == {}


def test_a_list_in_yuan_alone_is_refused():
    with pytest.raises(PricesError, match=r"no price .* in US dollars: priced in CNY"):
        price_list.read(LISTS / "cn-north-1.json")


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (changed(CNY="9.5"), "priced in CNY"),
        (changed(USD="0.0000000000"), "its price can't be read, or is 0"),
        (changed(USD="NaN"), "its price can't be read, or is 0"),
        (changed(USD="1e40"), "its price can't be read, or is 0"),
        (changed(), "priced in nothing"),
        (with_second(), "several products have different prices"),
    ],
)
def test_a_type_without_one_price_is_left_out_and_named(tmp_path, data, reason):
    result = imported(tmp_path, data)
    assert result.left_out == {"g5.xlarge": reason}
    assert "g5.xlarge" not in result.catalogue.prices
    assert "t3.nano" in result.catalogue.prices


def test_a_product_without_terms_is_left_out_and_named(tmp_path):
    data = copy.deepcopy(OREGON)
    del data["terms"]["OnDemand"][SKU]
    assert imported(tmp_path, data).left_out == {"g5.xlarge": "priced in nothing"}


def test_two_products_of_one_price_are_one(tmp_path):
    data = with_second()
    rate = data["terms"]["OnDemand"]["TWIN"]["TWIN.X"]["priceDimensions"]["TWIN.X.Y"]
    rate["pricePerUnit"]["USD"] = "1.0060"
    assert imported(tmp_path, data).catalogue.prices["g5.xlarge"] == Decimal("1.006")


def test_the_price_that_holds_on_the_day_of_the_list_is_taken(tmp_path):
    data = copy.deepcopy(OREGON)
    terms = data["terms"]["OnDemand"][SKU]
    for code, day, usd in (("OLD", "2026-10-01", "1.5"), ("NEXT", "2026-12-01", "0.5")):
        term = copy.deepcopy(terms[TERM]) | {"effectiveDate": f"{day}T00:00:00Z"}
        term["priceDimensions"][RATE]["pricePerUnit"]["USD"] = usd
        terms[f"{SKU}.{code}"] = term
    assert imported(tmp_path, data).catalogue.prices["g5.xlarge"] == Decimal("1.006")


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "no price list"),
        ("{", "no price list"),
        ("[]", "no price list"),
        ("{}", "offerCode is None"),
        (json.dumps(OREGON | {"offerCode": "AmazonRDS"}), "AmazonRDS"),
        (json.dumps(OREGON | {"publicationDate": "soon"}), "no publication date"),
        (json.dumps(OREGON | {"products": {}}), "prices of one region, found: none"),
        (json.dumps(OREGON | {"terms": []}), "no price of a Linux instance"),
        (json.dumps(with_second(regionCode="eu-west-1")), "eu-west-1, us-west-2"),
        (json.dumps(with_second(regionCode="../../etc")), "one region"),
        ('"OfferCode","AmazonEC2"\n', "no price list"),
        ("\x00\x01", "no price list"),
    ],
)
def test_what_is_no_price_list_of_a_region_is_refused(tmp_path, text, words):
    with pytest.raises(PricesError, match=words):
        imported(tmp_path, text)


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ('"PricePerUnit"', '"Price"', "no column PricePerUnit"),
        ('"Pre Installed S/W"', '"Software"', "no column Pre Installed S/W"),
        ('"8F8SY92AB3YNQ4ZT",', "", "another number of cells"),
        ('"OfferCode","AmazonEC2"', '"OfferCode","AmazonS3"', "AmazonS3"),
    ],
)
def test_a_damaged_csv_is_refused(tmp_path, old, new, words):
    path = tmp_path / "index.csv"
    text = (LISTS / "us-west-2.csv").read_text()
    assert old in text
    path.write_text(text.replace(old, new, 1))
    with pytest.raises(PricesError, match=words):
        price_list.read(path)


def test_a_catalogue_is_written_beside_cluster_yaml_and_read_back(tmp_path):
    place = imports.folder(tmp_path / "cluster.yaml")
    assert imports.read(place) == ()
    catalogue = price_list.read(LISTS / "us-west-2.csv").catalogue
    path = imports.write(catalogue, place, "a list")
    assert path == tmp_path / "prices" / "us-west-2-2026-11-20.json"
    assert imports.read(place) == (catalogue,)
    imports.write(catalogue, place, "a list")
    assert [item.name for item in place.iterdir()] == [path.name]


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"as_of": "2026-11-20", "types": 3}'])
def test_a_damaged_catalogue_is_named(tmp_path, text):
    (tmp_path / "eu-west-1-2026-01-01.json").write_text(text)
    with pytest.raises(PricesError, match=r"eu-west-1-2026-01-01\.json is no catalogue"):
        imports.read(tmp_path)


def a_catalogue(usd, as_of, region="eu-west-1"):
    return Catalogue(region, as_of, {"g5.xlarge": Decimal(usd)}, {})


def test_another_region_has_the_prices_that_were_imported():
    book = PriceBook(
        "eu-west-1",
        Catalogue.bundled(),
        SpotHistory(),
        imported=(a_catalogue("1.2", T0), a_catalogue("9", T0, "eu-west-2")),
    )
    assert priced(book.spans(a_query(), T0, T0 + 60)) == [(0, 60, "1.2", "list")]


def test_an_import_changes_no_earlier_second():
    """Take the newest catalogue of each second, else the oldest."""
    book = replace(
        a_book(),
        region="eu-west-1",
        imported=(a_catalogue("1.3", T0 + DAY), a_catalogue("1.2", T0)),
    )
    assert priced(book.spans(a_query(), T0 - 60, T0 + 2 * DAY)) == [
        (-60, 0, "1.2", "list"),
        (0, DAY, "1.2", "list"),
        (DAY, 2 * DAY, "1.3", "list"),
    ]
