"""RunInstances and what shows its instances: counts, capacity, tokens, consistency."""

from __future__ import annotations

import json
from functools import partial
from typing import TYPE_CHECKING, Any

from moto.core.responses import ActionResult
from moto.core.types import Base64EncodedString
from moto.core.utils import utcnow
from moto.ec2.models import EC2Backend
from moto.ec2.models.instances import Instance
from moto.ec2.responses import EC2Response

from toolkit.local.aws import create_instances, describe_instances_xml, launch_conflicts
from toolkit.local.aws.aws_errors import ec2_error
from toolkit.local.aws.launch_request import SPOT, Launch, launch_of, merge, parse_bool
from toolkit.local.aws.spot_prices import spot_price
from toolkit.local.faults import CapacityPool, Faults

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from toolkit.local.aws.client_tokens import ClientTokens
    from toolkit.local.aws.instance_tables import Tables
    from toolkit.local.aws.moto_patches import Patches

_CONSOLE_LIMIT = 64 * 1024  # bytes of console that EC2 keeps


class Compute:
    """Launches instances: the one way in for calls, fleets and stacks."""

    def __init__(
        self,
        tables: Tables,
        faults: Faults,
        tokens: ClientTokens,
        console: Callable[[str], bytes],
        visible_after: float,
    ) -> None:
        """`console` reads a machine's console by instance id."""
        self._tables = tables
        self._faults = faults
        self._tokens = tokens
        self._console = console
        self._visible_after = visible_after

    def install(self, patches: Patches) -> None:
        """Put this in place of moto's launch code and console."""
        compute = self

        def run_instances(response: Any) -> Any:
            params = plain(response.params)
            if parse_bool(params.get("DryRun")):
                compute.check(response.region, params)
                response.error_on_dryrun()
            make = partial(compute.run, response.region, params)
            reservation = compute._tokens.run_once(
                "RunInstances", response.region, params, make, _all_terminated
            )
            return describe_instances_xml.answer(
                "RunInstancesResponse", describe_instances_xml.reservation(reservation)
            )

        def from_stack(_cls: Any, _name: str, stack_json: Any, /, *place: str, **_: Any) -> Any:
            return compute.run_for_stack(place[1], stack_json["Properties"])

        def get_console_output(response: Any) -> Any:
            return ActionResult(compute.console(str(response.params["InstanceId"])))

        patches.replace(EC2Response, "run_instances", run_instances)
        patches.replace(Instance, "create_from_cloudformation_json", classmethod(from_stack))
        patches.replace(EC2Response, "get_console_output", get_console_output)
        describe_instances_xml.install(patches)
        self._install_visibility(patches)

    def run(self, region: str, params: Mapping[str, Any]) -> Any:
        """Launch between MinCount and MaxCount instances; returns moto's reservation."""
        launch = self.launch_of_call(region, params)
        at_least = int(params.get("MinCount") or 1)
        at_most = int(params.get("MaxCount") or at_least)
        if not 0 < at_least <= at_most:
            message = f"Value ({at_least}) for parameter minCount is invalid."
            raise ec2_error("InvalidParameterValue", message)
        return self.launch(region, launch, at_least=at_least, at_most=at_most)

    def check(self, region: str, params: Mapping[str, Any]) -> None:
        """Refuse what EC2 refuses before it looks for capacity."""
        backend = self._tables.ec2(region)
        launch = self.launch_of_call(region, params)
        create_instances.check(backend, create_instances.place(backend, launch))

    def run_for_stack(self, region: str, properties: Mapping[str, Any]) -> Any:
        """Launch the instance of an AWS::EC2::Instance resource."""
        params = dict(properties)
        tags = params.pop("Tags", None)
        if tags:
            params["TagSpecifications"] = [{"ResourceType": "instance", "Tags": tags}]
        launch = self.launch_of_call(region, params)
        return self.launch(region, launch, at_least=1, at_most=1).instances[0]

    def launch_of_call(self, region: str, params: Mapping[str, Any]) -> Launch:
        """Return a call's launch, merged with the launch template it names."""
        specification = params.get("LaunchTemplate")
        if not specification:
            launch_conflicts.check_run(params)
            return launch_of(params)
        version = self.template(region, specification)
        merged_params = merge(params, version.data)
        launch_conflicts.check_run(merged_params)
        return launch_of(merged_params, template=(version.template.id, version.number))

    def template(self, region: str, specification: Mapping[str, Any]) -> Any:
        """Return the launch template version that a specification names."""
        backend = self._tables.ec2(region)
        if specification.get("LaunchTemplateId"):
            template = backend.get_launch_template(specification["LaunchTemplateId"])
        else:
            template = backend.get_launch_template_by_name(specification.get("LaunchTemplateName"))
        return template.get_version(specification.get("Version") or "$Default")

    def launch(self, region: str, launch: Launch, *, at_least: int, at_most: int) -> Any:
        """Launch as many as the pool has.

        Refuses when that is less than `at_least`.
        """
        backend = self._tables.ec2(region)
        placed_launch = create_instances.place(backend, launch)
        create_instances.check(backend, placed_launch)
        pool = CapacityPool(
            placed_launch.instance_type, str(placed_launch.zone), placed_launch.market
        )
        self._check_price(placed_launch, pool)
        count = self._faults.take_capacity(pool, at_least=at_least, at_most=at_most)
        if count == 0:
            raise ec2_error("InsufficientInstanceCapacity", _no_capacity(pool))
        try:
            return create_instances.create(self._tables, region, placed_launch, count)
        except BaseException:
            self._faults.return_capacity(pool, count)
            raise

    def _check_price(self, launch: Launch, pool: CapacityPool) -> None:
        if launch.market != SPOT or launch.max_price is None:
            return
        price = spot_price(pool.instance_type, pool.zone, self._tables.wall())
        if float(launch.max_price) < float(price):
            message = (
                f"Your Spot request price of {launch.max_price} is lower than the minimum "
                f"required Spot request fulfillment price of {price}."
            )
            raise ec2_error("SpotMaxPriceTooLow", message)

    def console(self, instance_id: str) -> dict[str, Any]:
        """Return the machine's console as GetConsoleOutput shows it."""
        self._tables.instance(instance_id)  # refuses an unknown id
        output = self._console(instance_id)[-_CONSOLE_LIMIT:].decode("utf-8", "replace")
        return {
            "InstanceId": instance_id,
            "Timestamp": utcnow(),
            "Output": Base64EncodedString.from_raw_string(output) if output else None,
        }

    def _install_visibility(self, patches: Patches) -> None:
        """Hide instances from Describe calls until they are old enough."""
        if self._visible_after <= 0:
            return
        tables, delay = self._tables, self._visible_after

        def is_hidden(row: Any) -> bool:
            instance = tables.instances.get(row.id)
            return instance is not None and tables.clock() - instance.launched_at < delay

        for name in ("describe_instances", "get_reservations_by_instance_ids"):
            original = vars(EC2Backend).get(name) or getattr(EC2Backend, name)
            patches.replace(EC2Backend, name, _hiding(original, is_hidden))


def _hiding(original: Any, is_hidden: Callable[[Any], bool]) -> Any:
    def describe(backend: Any, *args: Any, **kwargs: Any) -> Any:
        reservations = []
        for reservation in original(backend, *args, **kwargs):
            visible_instances = [
                instance for instance in reservation.instances if not is_hidden(instance)
            ]
            if len(visible_instances) < len(reservation.instances) and args:
                hidden_id = next(
                    instance.id for instance in reservation.instances if is_hidden(instance)
                )
                message = f"The instance ID '{hidden_id}' does not exist"
                raise ec2_error("InvalidInstanceID.NotFound", message)
            reservation.instances = visible_instances
            if visible_instances:
                reservations.append(reservation)
        return reservations

    return describe


def _all_terminated(reservation: Any) -> bool:
    return all(instance.state == "terminated" for instance in reservation.instances)


def _no_capacity(pool: CapacityPool) -> str:
    if pool.market == SPOT:
        return "There is no Spot capacity available that matches your request."
    return (
        f"We currently do not have sufficient {pool.instance_type} capacity in the Availability "
        f"Zone you requested ({pool.zone}). Our system will be working on provisioning additional "
        f"capacity. You can currently get {pool.instance_type} capacity by not specifying an "
        "Availability Zone in your request."
    )


def plain(params: Any) -> dict[str, Any]:
    """Return parsed parameters as plain dicts and lists.

    moto's own remember XML names.
    """
    if hasattr(params, "original_dict"):
        params = params.original_dict()
    plain_params: dict[str, Any] = json.loads(json.dumps(params, default=str))
    return plain_params
