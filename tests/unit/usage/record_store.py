"""The store on a person's computer of a cluster whose head writes records."""

from __future__ import annotations

from tests.unit.accounting.test_records import KEPT, OWN, Cluster, NoHead
from toolkit.accounting.allocation import Policy, Window
from toolkit.accounting.collect import Sources, collect, collect_segment
from toolkit.usage import close_days, closed_store, read_records
from toolkit.usage.closed_report import closed_report, split
from toolkit.usage.cluster_store import ClusterStore

TOKEN = "t0k3n"


def copy_buckets(source, target):
    """Give a cluster copies of another one's buckets."""
    target.s3.buckets |= {name: dict(objects) for name, objects in source.s3.buckets.items()}
    target.s3.written |= source.s3.written


def person_of(lived, folder, **settings):
    """Return a person with a copy of the cluster's bucket."""
    cluster = Cluster()
    copy_buckets(lived, cluster)
    return Person(cluster, folder, **settings)


class Person:
    """A person who reads the records of a cluster, and closes its days."""

    def __init__(self, cluster, folder, **settings) -> None:
        self.cluster = cluster
        self.store = ClusterStore(folder)
        self.sources = Sources(
            cluster="demo",
            region="us-east-1",
            bucket=OWN,
            ec2=cluster.ec2,
            s3=cluster.s3,
            runner=NoHead(),
            records_bucket=KEPT,
            **settings,
        )

    def read(self, now, **options):
        source = read_records.Source(self.cluster.s3, KEPT, "demo", "us-east-1")
        return read_records.read_new(self.store, source, now, **options)

    def plan(self, **options):
        reach = close_days.reach_of(self.store, None)
        return close_days.plan(self.store, self.sources, reach, **options)

    def close(self, now, **options):
        return self.execute(self.plan(**options), now)

    def execute(self, planned, now):
        return list(
            close_days.execute(
                self.store,
                self.sources,
                planned,
                now=now,
                token=lambda: TOKEN,
                status=lambda _: "estimated",
            )
        )

    def report(self, since, until, now):
        """Return the report from closed days, and the rest from the bucket."""

        def weighed(window, matched_until):
            return collect_segment(
                self.sources, window, now, TOKEN, Policy(), matched_until=matched_until
            )

        closed = closed_store.read(self.store)
        parts = split(closed, Window(since, until), costs_always=False)
        if not parts.days:
            return self.anew(since, until, now)
        policy = self.sources.cost_policy
        return closed_report(
            self.store, closed, parts, now=now, cluster="demo", policy=policy, collect=weighed
        )

    def anew(self, since, until, now):
        return collect(self.sources, Window(since, until), now, TOKEN, Policy())


def lines(report):
    """Return all of a report's charges, to the micro-dollar."""
    return sorted(
        (
            charge.component.value,
            charge.instance_id,
            str(charge.attempt),
            charge.micro,
            charge.seconds,
            charge.price_known,
        )
        for charge in report.charges()
    )
