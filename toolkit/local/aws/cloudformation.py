"""CloudFormation: moto's stacks and change sets, carried out step by step in the background."""

# ruff: noqa: SLF001 - moto has no other way to read and write these

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

from moto.cloudformation.exceptions import ValidationError
from moto.cloudformation.models import (
    ChangeSet,
    CloudFormationBackend,
    Export,
    Stack,
    cloudformation_backends,
)
from moto.cloudformation.parsing import get_model_list, get_model_map, get_name_type_map
from moto.cloudformation.responses import CloudFormationResponse, StackResourceDTO
from moto.core.responses import ActionResult, EmptyResult

from toolkit.local.aws import (
    stack_capabilities,
    stack_deletions,
    stack_template_reader,
    stack_template_urls,
)
from toolkit.local.aws.alarms import StackAlarm, StackSubscription
from toolkit.local.aws.fsx import StackFileSystem
from toolkit.local.aws.secrets_manager import StackSecret
from toolkit.local.aws.stack_buckets import StackBucketPolicy
from toolkit.local.aws.stack_operation import StackOperation
from toolkit.local.aws.stack_replacement import resource_changes
from toolkit.local.aws.stack_template import order, unresolved

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping

    from toolkit.local.aws.instance_tables import Tables
    from toolkit.local.aws.moto_patches import Patches

TYPES = (
    StackAlarm,
    StackBucketPolicy,
    StackFileSystem,
    StackSecret,
    StackSubscription,
)  # what CloudFormation can make besides moto's types
# The states that an update may begin from.
_SETTLED = ("CREATE_COMPLETE", "UPDATE_COMPLETE", "UPDATE_ROLLBACK_COMPLETE")


class Stacks:
    """Accepts what CloudFormation accepts and runs it with `StackOperation`."""

    def __init__(self, tables: Tables, defer: Callable[[Callable[[], None]], None]) -> None:
        """`defer` runs one operation in a thread of its own."""
        self._tables = tables
        self._defer = defer
        self._create_change_set: Any = None
        self._acknowledged: tuple[str, ...] = ()

    def install(self, patches: Patches) -> None:
        """Replace moto's stacks, which are complete at once or not at all."""
        stacks = self

        def create_resources(stack: Any) -> None:
            stacks.create(stack)

        def update(stack: Any, template: str, role_arn: Any = None, **params: Any) -> None:
            del role_arn
            if params.get("tags") is not None:
                stack.tags = params["tags"]
            stacks.update(stack, template, params.get("parameters") or stack.parameters)

        def execute(backend: Any, change_set_name: str, stack_name: str | None = None) -> None:
            stacks.execute(backend, change_set_name, stack_name)

        def delete_stack(backend: Any, name_or_stack_id: str) -> None:
            stacks.delete(backend, name_or_stack_id)

        def create_change_set(backend: Any, **params: Any) -> Any:
            stacks.check_change_set(backend, params)
            return stacks._create_change_set(backend, **params)

        backend_class = CloudFormationBackend
        self._create_change_set = patches.replace(
            backend_class, "create_change_set", create_change_set
        )
        self._install_capabilities(patches)
        patches.replace(Stack, "create_resources", create_resources)
        patches.replace(Stack, "update", update)
        patches.replace(backend_class, "execute_change_set", execute)
        patches.replace(backend_class, "delete_stack", delete_stack)
        self._install_rollback(patches)
        self._install_views(patches)
        stack_deletions.install(patches)
        stack_template_reader.install(patches)
        stack_template_urls.install(patches)
        # moto finds its types among the subclasses of one class, and remembers what it found.
        for cache in (get_model_list, get_model_map, get_name_type_map):
            cache.cache_clear()
        own_types = {resource_type.cloudformation_type() for resource_type in TYPES}
        if not own_types <= set(get_model_map()):
            raise RuntimeError(f"moto does not see the layer's resource types {sorted(own_types)}")

    def _install_capabilities(self, patches: Patches) -> None:
        """Remember what a change set's caller acknowledges; moto's backend is not told."""
        stacks = self
        call = vars(CloudFormationResponse)["create_change_set"]

        def create_change_set(response: Any) -> Any:
            stacks._acknowledged = tuple(response._get_param("Capabilities") or ())
            return call(response)

        patches.replace(CloudFormationResponse, "create_change_set", create_change_set)

    def _install_rollback(self, patches: Patches) -> None:
        """Give moto two calls that it lacks."""
        stacks = self

        def continue_update_rollback(response: Any) -> Any:
            stack = response.cloudformation_backend.get_stack(response._get_param("StackName"))
            stacks.continue_rollback(stack, response._get_param("ResourcesToSkip") or ())
            return EmptyResult()

        def update_termination_protection(response: Any) -> Any:
            stack = response.cloudformation_backend.get_stack(response._get_param("StackName"))
            protected = response._get_bool_param("EnableTerminationProtection")
            stack.enable_termination_protection = protected
            return ActionResult({"StackId": stack.stack_id})

        for call in (continue_update_rollback, update_termination_protection):
            patches.replace(CloudFormationResponse, call.__name__, call)

    def _install_views(self, patches: Patches) -> None:
        """Show existing resources; moto would make a resource to show it."""
        shown_outputs = vars(Stack)["outputs"].fget
        describe = StackResourceDTO.__init__

        def resources(stack: Any) -> list[Any]:
            resources_by_name = stack.resource_map._parsed_resources
            names = stack.resource_map.resources
            return [
                resources_by_name[name] for name in names if resources_by_name.get(name) is not None
            ]

        def outputs(stack: Any) -> Any:
            made = stack.status in _SETTLED or stack.status.startswith("UPDATE_")
            return shown_outputs(stack) if made else None

        def init(row: Any, stack: Any, resource: Any) -> None:
            describe(row, stack, resource)
            states = getattr(stack, "resource_states", {})
            resource_state = states.get(row.logical_resource_id)
            if resource_state:
                row.resource_status, row.resource_status_reason, row.timestamp = resource_state

        def diff(change_set: Any) -> list[Any]:
            return _shown_changes(change_set)

        patches.replace(ChangeSet, "diff", diff)
        patches.replace(Stack, "stack_resources", property(resources))
        patches.replace(Stack, "outputs", property(outputs))
        patches.replace(StackResourceDTO, "__init__", init)

    def check_change_set(self, backend: Any, params: Mapping[str, Any]) -> None:
        """Refuse an impossible template; replace a stack that was only reviewed."""
        template = Stack.parse_template(params["template"])
        check_template(template)
        stack_capabilities.check(template, self._acknowledged)
        if params["change_set_type"] == "UPDATE":
            for stack in backend.stacks.values():
                if stack.name == params["stack_name"]:
                    _check_updatable(stack)
            return
        for stack in list(backend.stacks.values()):
            if stack.name != params["stack_name"]:
                continue
            if stack.status != "REVIEW_IN_PROGRESS":
                message = (
                    f"Stack [{stack.name}] already exists and cannot be created again with the "
                    f"changeSet [{params['change_set_name']}]."
                )
                raise ValidationError(message=message)
            del backend.stacks[stack.stack_id]

    def create(self, stack: Any) -> None:
        """Begin to make a stack's resources."""
        check_template(stack.template_dict)
        self._begin(stack, "CREATE_IN_PROGRESS")
        self._run(stack, StackOperation(self._tables, stack).create)

    def update(self, stack: Any, template: str, parameters: Mapping[str, Any]) -> None:
        """Begin to change a stack to another template."""
        _check_updatable(stack)
        old_template, old_parameters = stack.template, stack.parameters
        old_resources = dict(stack.template_dict.get("Resources") or {})
        new_template = Stack.parse_template(template)
        check_template(new_template)
        modified_names = stack.resource_map.build_resource_diff(new_template, parameters)["Modify"]
        changes = resource_changes(old_resources, new_template["Resources"], modified_names)
        _load(stack, template, parameters)
        self._begin(stack, "UPDATE_IN_PROGRESS")
        operation = StackOperation(self._tables, stack)
        restore = partial(_load, stack, old_template, old_parameters)
        self._run(stack, partial(operation.update, old_resources, changes, restore))

    def continue_rollback(self, stack: Any, skipped_names: Collection[str]) -> None:
        """Begin to roll a stack back further.

        Only a resource whose rollback failed may be skipped:
        https://docs.aws.amazon.com/AWSCloudFormation/latest/APIReference/API_ContinueUpdateRollback.html
        """
        if stack.status != "UPDATE_ROLLBACK_FAILED":
            message = (
                f"Stack:{stack.stack_id} is in {stack.status} state and can not continue rollback."
            )
            raise ValidationError(message=message)
        for name in skipped_names:
            if stack.resource_states.get(name, ("",))[0] != "UPDATE_FAILED":
                message = f"Resource [{name}] is not in UPDATE_FAILED and can not be skipped."
                raise ValidationError(message=message)
        self._begin(stack, "UPDATE_ROLLBACK_IN_PROGRESS")
        operation = StackOperation(self._tables, stack)
        self._run(stack, partial(operation.continue_rollback, tuple(skipped_names)))

    def execute(self, backend: Any, name: str, stack_name: str | None) -> None:
        """Begin to carry a change set out."""
        change_set = _change_set(backend, name, stack_name)
        stack = backend.stacks[change_set.stack_id]
        if change_set.execution_status != "AVAILABLE" or stack.status not in (
            "REVIEW_IN_PROGRESS",
            *_SETTLED,
        ):
            message = (
                f"ChangeSet [{change_set.change_set_id}] cannot be executed in its current status"
            )
            raise ValidationError(message=message)
        change_set.execution_status = "EXECUTE_COMPLETE"
        if change_set.tags:
            stack.tags = change_set.tags
        if change_set.change_set_type == "CREATE":
            _load(stack, change_set.template, change_set.parameters)
            self.create(stack)
        else:
            self.update(stack, change_set.template, change_set.parameters)

    def delete(self, backend: Any, name_or_stack_id: str) -> None:
        """Begin to delete a stack; one that does not exist is deleted."""
        for stack in list(backend.stacks.values()):
            if name_or_stack_id not in (stack.name, stack.stack_id):
                continue
            if stack.status == "DELETE_IN_PROGRESS":
                return
            if stack.enable_termination_protection:
                message = (
                    f"Stack [{stack.name}] cannot be deleted while TerminationProtection is enabled"
                )
                raise ValidationError(message=message)
            self._begin(stack, "DELETE_IN_PROGRESS")
            self._defer(partial(self._delete, backend, stack))

    def _delete(self, backend: Any, stack: Any) -> None:
        if not StackOperation(self._tables, stack).delete():
            return
        with self._tables.lock:
            backend.stacks.pop(stack.stack_id, None)
            backend.deleted_stacks[stack.stack_id] = stack
            for name, export in list(backend.exports.items()):
                if export.exporting_stack_id == stack.stack_id:
                    del backend.exports[name]

    def _begin(self, stack: Any, status: str) -> None:
        stack.status = status
        stack._add_stack_event(status, "User Initiated")

    def _run(self, stack: Any, operation: Callable[[], None]) -> None:
        def work() -> None:
            operation()
            with self._tables.lock:
                if stack.status in _SETTLED:
                    _export(stack)

        self._defer(work)


def check_template(template: Mapping[str, Any]) -> None:
    """Refuse unknown names and circles, as CloudFormation does before it makes anything."""
    if not template.get("Resources"):
        message = "Template format error: At least one Resources member must be defined."
        raise ValidationError(message=message)
    names = unresolved(template)
    if names:
        message = (
            f"Template format error: Unresolved resource dependencies [{', '.join(names)}] in the "
            "Resources block of the template"
        )
        raise ValidationError(message=message)
    try:
        order(template)
    except ValueError as error:
        raise ValidationError(message=str(error)) from None


def _check_updatable(stack: Any) -> None:
    if stack.status not in _SETTLED:
        message = f"Stack:{stack.stack_id} is in {stack.status} state and can not be updated."
        raise ValidationError(message=message)


def _shown_changes(change_set: Any) -> list[dict[str, Any]]:
    """Return the changes as DescribeChangeSet shows them."""
    stack = change_set.stack
    old_resources = dict(stack.template_dict.get("Resources") or {})
    modified_names = stack.resource_map.build_resource_diff(
        change_set.template_dict, change_set.parameters
    )["Modify"]
    changes = resource_changes(old_resources, change_set.template_dict["Resources"], modified_names)
    return [
        {
            "Action": change.action,
            "LogicalResourceId": change.name,
            "ResourceType": change.kind,
            "Replacement": change.replacement if change.action == "Modify" else None,
            "Details": [
                {"Target": {"Attribute": "Properties", "Name": name}}
                for name in sorted(change.properties)
            ],
        }
        for change in changes
    ]


def _load(stack: Any, template: str, parameters: Mapping[str, Any]) -> None:
    """Give a stack its template; nothing is made yet."""
    stack.template = template
    stack._parse_template()
    stack.description = stack.template_dict.get("Description")
    stack.parameters = parameters
    resources = stack.resource_map
    resources._template = stack.template_dict
    resources._resource_json_map = stack.template_dict["Resources"]
    resources.input_parameters = parameters
    resources.load()
    stack.output_map = stack._create_output_map()


def _change_set(backend: Any, name: str, stack_name: str | None) -> Any:
    change_set = backend.change_sets.get(name)
    for candidate in backend.change_sets.values():
        same_stack = stack_name in (None, candidate.stack_name, candidate.stack_id)
        matches = same_stack and candidate.stack_id in backend.stacks
        if change_set is None and candidate.change_set_name == name and matches:
            change_set = candidate
    if change_set is None:
        raise ValidationError(message=f"ChangeSet [{name}] does not exist")
    return change_set


def _export(stack: Any) -> None:
    backend = cloudformation_backends[stack.account_id][stack.region_name]
    for export in stack.exports:
        backend.exports[export.name] = Export(stack.stack_id, export.name, export.value)
