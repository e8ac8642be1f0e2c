"""Facts of cluster and instance, which are empty off the cluster."""

from toolkit.training.io import cluster_info


def test_site_and_instance_facts_are_empty_off_the_cluster(tmp_path):
    nowhere = {
        "TOOLKIT_INSTANCE_FILE": str(tmp_path / "a"),
        "TOOLKIT_SITE_FILE": str(tmp_path / "b"),
    }
    assert cluster_info.instance_facts(nowhere) == cluster_info.site_facts(nowhere) == {}
