"""Laws on slurm.conf for every version and profile."""

import json
from decimal import Decimal
from pathlib import Path

import pytest
import yaml

from tests.unit.render.render_samples import CPU_POOL, FACTS, GPU_POOL, PRICES, a_config
from toolkit.config import load
from toolkit.errors import RenderError
from toolkit.render.burst import burst_json
from toolkit.render.context import slurm_context
from toolkit.render.playbook_vars import site_vars
from toolkit.render.prices import PriceTable
from toolkit.render.slurm import slurm_files

TEMPLATES = Path(__file__).parents[3] / "templates"
EXAMPLES = Path(__file__).parents[3] / "examples"
VERSIONS = ["23.11", "24.05", "24.11", "25.05", "25.11", "26.05"]


def test_static_nodes_are_in_slurm_conf_and_burst_json():
    """Exclude static nodes from suspension.

    Reconcile powers them up.
    """
    config = a_config(pools={"gpu": {**GPU_POOL, "static": 2}, "cpu": CPU_POOL})
    context = slurm_context(config, PRICES)
    text = slurm_files(context, TEMPLATES)["slurm.conf"]
    assert "SuspendExcNodes=gpu-[001-002]\n" in text
    assert json.loads(burst_json(config, FACTS, PRICES))["pools"]["gpu"]["static"] == 2


def files(**changes):
    return slurm_files(slurm_context(a_config(**changes), PRICES), TEMPLATES)


def settings(text):
    """Return the global settings by name.

    The test fails if a setting is there twice.
    """
    lines = [line for line in text.splitlines() if line and not line.startswith("#")]
    pairs = [line.split("=", 1) for line in lines]
    rows = [(name, value) for name, value in pairs if name not in {"NodeName", "PartitionName"}]
    assert len({name.lower() for name, _ in rows}) == len(rows), "a setting is stated twice"
    return dict(rows)


def on(version, **changes):
    return settings(files(slurm={"version": version} | changes)["slurm.conf"])


def words(conf, name):
    return conf[name].split(",")


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("profile", ["local", "aws"])
def test_no_supported_version_renders_a_defunct_option(version, profile):
    """Leave out options that do harm.

    cloud_reg_addrs logs an error. cloud_dns stalls slurmctld. PrivateData stops metrics.
    """
    text = files(slurm={"version": version}, profile=profile)["slurm.conf"]
    for defunct in ("cloud_reg_addrs", "cloud_dns", "PrivateData", "TreeWidth", "expedite"):
        assert defunct not in text


@pytest.mark.parametrize("version", VERSIONS)
def test_requeue_options_are_rendered_only_for_versions_that_have_them(version):
    """Leave a parameter out of versions that would ignore it silently."""
    parameters = words(on(version), "SchedulerParameters")
    assert ("requeue_on_resume_failure" in parameters) is (version >= "25.05")
    assert ("requeue_delay=10" in parameters) is (version >= "25.11")


@pytest.mark.parametrize("version", VERSIONS)
def test_no_daemon_answers_http(version):
    """Close the ports to callers without the cluster's key.

    Slurm 25.11 and later answer HTTP on them by default.
    """
    parameters = words(on(version), "CommunicationParameters")
    assert ("disable_http" in parameters) is (version >= "25.11")


def test_slurms_own_metrics_are_served_where_a_site_asks_for_them():
    conf = on("25.11", settings={"MetricsType": "metrics/openmetrics"})
    assert "disable_http" not in words(conf, "CommunicationParameters")


def test_node_reg_mem_percent_is_the_last_parameter():
    """Put node_reg_mem_percent last.

    Slurm 25.05.0 misreads it if another parameter follows.
    """
    assert words(on("25.05"), "SlurmctldParameters")[-1] == "node_reg_mem_percent=90"


def test_only_our_partitions_have_a_finite_suspend_time():
    """Keep the global SuspendTime infinite.

    Otherwise Slurm would power down nodes that are not in EC2.
    """
    conf = files()["slurm.conf"]
    assert settings(conf)["SuspendTime"] == "INFINITE"
    assert conf.count(" SuspendTime=30 ") == 2


def test_unkillable_timeout_is_at_least_five_message_timeouts():
    """Wait long enough for a slow step.

    With a shorter timeout Slurm would drain a busy node.
    """
    conf = on("24.11")
    assert int(conf["UnkillableStepTimeout"]) >= 5 * int(conf["MessageTimeout"])


def test_the_head_node_has_its_name_and_address():
    assert on("24.11")["SlurmctldHost"] == "demo-head(10.42.1.10)"


@pytest.mark.parametrize(
    ("profile", "tracking", "plugin"),
    [("local", "proctrack/linuxproc", "disabled"), ("aws", "proctrack/cgroup", "autodetect")],
)
def test_the_profile_decides_on_cgroups_and_devices(profile, tracking, plugin):
    """Derive all differences between a laptop and EC2 from the profile."""
    rendered = files(profile=profile)
    conf = settings(rendered["slurm.conf"])
    assert conf["ProctrackType"] == tracking
    assert f"CgroupPlugin={plugin}\n" in rendered["cgroup.conf"]
    assert ("SlurmdParameters" in conf) is (profile == "local")
    assert ("ConstrainDevices=yes" in rendered["cgroup.conf"]) is (profile == "aws")


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("profile", ["local", "aws"])
def test_a_job_has_its_own_tmp_in_every_version(version, profile):
    """Name the plugin as the version does.

    It makes a job's mounts when slurmd contains the job, before its first task.
    """
    rendered = files(slurm={"version": version}, profile=profile)
    conf = settings(rendered["slurm.conf"])
    plugins = {name: conf.get(name) for name in ("JobContainerType", "NamespaceType")}
    name = "NamespaceType" if version >= "25.11" else "JobContainerType"
    assert [key for key, value in plugins.items() if value] == [name]
    assert plugins[name].endswith("/tmpfs")
    assert "Contain" in words(conf, "PrologFlags")


def test_the_files_of_jobs_mounts_are_below_no_folder_that_a_job_has_for_itself():
    """Keep Slurm's own way to the files open.

    After a job's /scratch is mounted, nothing below the node's /scratch can be reached.
    """
    (line,) = [
        line for line in files()["job_container.conf"].splitlines() if not line.startswith("#")
    ]
    assert line.startswith("BasePath="), "the parser wants it first"
    values = dict(pair.split("=", 1) for pair in line.split())
    folders = [Path(folder) for folder in values["Dirs"].split(",")]
    assert not any(Path(values["BasePath"]).is_relative_to(folder) for folder in folders)
    assert {"/tmp", "/var/tmp", "/scratch", "/dev/shm"} == set(map(str, folders))


def test_private_data_is_in_slurm_conf_as_cluster_yaml_says():
    assert "PrivateData" not in on("24.11")
    assert on("24.11", private_data=["usage", "users"])["PrivateData"] == "usage,users"


def test_cheaper_pools_have_lower_weights_and_unpriced_ones_the_highest():
    """Give a pool without a price the highest weight.

    Slurm takes the lowest Weight that fits, so an unknown price must not look cheap.
    """
    context = slurm_context(a_config(), PRICES)
    assert {node.pool: node.weight for node in context.nodes} == {"gpu": 10, "cpu": 20}
    blind = PriceTable({"c7i.4xlarge": Decimal("0.7")})
    context = slurm_context(a_config(), blind)
    assert {node.pool: node.weight for node in context.nodes} == {"cpu": 10, "gpu": 20}


def test_a_whole_node_is_billed_at_the_price_of_its_instance():
    """Bill a node's whole TRES at the price of its instance.

    PriorityFlags=MAX_TRES bills the highest of a job's shares.
    """
    node = slurm_context(a_config(), PRICES).nodes[0]
    amounts = {"CPU": node.cpus, "Mem": Decimal(node.memory_mib) / 1024, "GRES/gpu": node.gpus}
    for unit, weight in node.billing:
        assert abs(weight * amounts[unit] - Decimal("402.4")) < Decimal("0.001")
    assert on("24.11")["PriorityFlags"] == "MAX_TRES"


def shaped(**shape):
    return GPU_POOL | {"shape": {"memory_gib": 16} | shape}


@pytest.mark.parametrize("name", ["aws", "local"])
def test_a_job_with_all_gpus_of_a_node_gets_all_of_its_cpus_and_memory(name):
    """Leave less than one CPU and one MiB for each GPU unused.

    The law holds for the defaults of each partition in the examples.
    """
    config = load(EXAMPLES / f"{name}.yaml")
    context = slurm_context(config, PRICES)
    nodes = {node.pool: node for node in context.nodes if node.gpus}
    for part in context.partitions:
        for node in (nodes[pool] for pool in config.partitions[part.name].pools if pool in nodes):
            assert node.cpus - part.cpus_per_gpu * node.gpus < node.gpus
            assert node.memory_mib - part.memory_per_gpu * node.gpus < node.gpus


def test_the_defaults_of_a_gpu_fit_every_pool_of_the_partition():
    """Take the defaults of the smallest share of a GPU.

    Larger ones would keep jobs off smaller nodes. Pools without GPUs do not count.
    """
    pools = {"gpu": GPU_POOL, "big": shaped(cpus=63, memory_gib=128, gpus=4), "cpu": CPU_POOL}
    parts = {"any": {"pools": list(pools), "default": True}, "big": {"pools": ["big"]}}
    lines = files(pools=pools, partitions=parts)["slurm.conf"].splitlines()
    (mixed, big) = [line for line in lines if line.startswith("PartitionName")]
    assert "DefMemPerCPU=1945 DefCpuPerGPU=4 DefMemPerGPU=15564" in mixed
    assert "DefMemPerCPU=1976 DefCpuPerGPU=15 DefMemPerGPU=31129" in big


def test_a_partition_without_gpus_has_no_defaults_for_them():
    parts = {"cpu": {"pools": ["cpu"], "default": True}}
    assert "PerGPU" not in files(partitions=parts)["slurm.conf"]


def test_a_partition_without_a_known_price_has_no_billing_weights():
    """Leave the weights out, so that Slurm bills CPUs.

    With a weight of 0 jobs would be free.
    """
    context = slurm_context(a_config(), PriceTable({}))
    assert "TRESBillingWeights" not in slurm_files(context, TEMPLATES)["slurm.conf"]


def test_each_pretended_gpu_has_a_device_file_of_its_own():
    """Name one existing device file for each GPU.

    Slurm counts a GRES by its files and refuses a missing one.
    """
    shape = {"cpus": 4, "memory_gib": 16, "gpus": 2, "gpu": "a10g"}
    gres = files(pools={"gpu": GPU_POOL | {"shape": shape}}, partitions=only_gpu())["gres.conf"]
    devices = [line.split("File=")[1] for line in gres.splitlines() if "File=" in line]
    assert devices == ["/dev/null", "/dev/zero"]


def test_more_pretended_gpus_than_devices_are_refused():
    shape = {"cpus": 4, "memory_gib": 16, "gpus": 8, "gpu": "a10g"}
    with pytest.raises(RenderError, match=r"pools\.gpu\.shape\.gpus"):
        files(pools={"gpu": GPU_POOL | {"shape": shape}}, partitions=only_gpu())


def test_real_gpus_are_nvidia_devices():
    shape = {"cpus": 192, "memory_gib": 2048, "gpus": 8, "gpu": "h100"}
    rendered = files(
        profile="aws", pools={"gpu": GPU_POOL | {"shape": shape}}, partitions=only_gpu()
    )
    assert "Type=h100 File=/dev/nvidia[0-7]\n" in rendered["gres.conf"]
    assert settings(rendered["slurm.conf"])["AccountingStorageTRES"] == "gres/gpu,gres/gpu:h100"


def test_a_cluster_without_gpus_has_no_gres():
    pool = GPU_POOL | {"shape": {"cpus": 4, "memory_gib": 16}}
    rendered = files(pools={"gpu": pool}, partitions=only_gpu())
    assert "gpu:" not in rendered["slurm.conf"]
    assert "GresTypes" not in rendered["slurm.conf"]
    assert "Name=gpu" not in rendered["gres.conf"]


def only_gpu():
    return {"spot": {"pools": ["gpu"], "default": True}}


@pytest.mark.parametrize(
    ("version", "offered"), [("23.11", False), ("24.05", False), ("24.11", True)]
)
def test_containers_are_offered_from_the_first_patched_series_on(version, offered):
    """Leave oci.conf out where slurmstepd could delete files as root (CVE-2026-65109)."""
    config = a_config(slurm={"version": version})
    assert ("oci.conf" in slurm_files(slurm_context(config, PRICES), TEMPLATES)) is offered
    assert json.loads(site_vars(config, FACTS))["toolkit_containers"] is offered


CLOSE = {"gpu": {**GPU_POOL, "placement_group": True}, "cpu": CPU_POOL}


@pytest.mark.parametrize("version", ["25.11", "26.05"])
def test_a_partition_with_a_placement_group_gets_nodes_that_are_close(version):
    rendered = files(slurm={"version": version}, pools=CLOSE)
    lines = [line.split() for line in rendered["slurm.conf"].splitlines() if "Topology=ec2" in line]
    nodes = [dict(word.split("=", 1) for word in line)["Nodes"] for line in lines]
    ec2 = yaml.safe_load(rendered["topology.yaml"])[1]
    leaf = ec2["tree"]["switches"][1]
    assert leaf["switch"] == "unplaced"
    assert set(leaf["nodes"].split(",")) == set(",".join(nodes).split(","))
    assert lines
    assert all("gpu-" in text for text in nodes)
    assert not ec2["cluster_default"]


@pytest.mark.parametrize(
    "changes",
    [
        {"slurm": {"version": "25.05"}, "pools": CLOSE},
        {"slurm": {"version": "25.11", "topology": "flat"}, "pools": CLOSE},
        {"slurm": {"version": "25.11"}},
    ],
    ids=["before 25.11", "flat", "no placement group"],
)
def test_otherwise_all_nodes_are_equally_close(changes):
    rendered = files(**changes)
    assert "topology.yaml" not in rendered
    assert "Topology=" not in rendered["slurm.conf"]


@pytest.mark.parametrize("version", ["23.11", "26.05"])
def test_sbatch_reads_the_script_of_the_line_at_submit_unless_it_is_off(version):
    for is_on in (True, False):
        config = a_config(slurm={"version": version, "submit_line": is_on})
        rendered = slurm_files(slurm_context(config, PRICES), TEMPLATES)
        assert ("CliFilterPlugins=cli_filter/lua" in rendered["slurm.conf"]) is is_on
        assert ("cli_filter.lua" in rendered) is is_on
        assert json.loads(site_vars(config, FACTS))["toolkit_submit_line"] is is_on
        assert ("submit_line" in json.loads(burst_json(config, FACTS, PRICES))) is is_on


def test_the_script_is_in_place_before_slurm_conf_names_it():
    """Keep this order: without the script, sbatch refuses every job."""
    text = Path(TEMPLATES.parent / "ansible/roles/slurmctld/tasks/configure.yml").read_text()
    assert text.index("/cli_filter.lua") < text.index("/slurm.conf")
