"""Change sets, with a fake CloudFormation that keeps stacks."""

import pytest

from tests.unit.deploy.samples import Clock, FakeClients, Report, refusal
from toolkit.deploy.changes import StackChanges
from toolkit.deploy.diff import differences
from toolkit.deploy.stack_plan import compared_templates, resources
from toolkit.errors import StackFailed

ONE = "Resources:\n  A: {Type: T, Properties: {Size: 1, Name: !Ref B}}\n"
TWO = "Resources:\n  A: {Type: T, Properties: {Size: 2, Name: !Ref B}}\n  C: {Type: U}\n"


class FakeCloudFormation:
    """CloudFormation with one stack.

    An operation is in progress until the clock has moved.
    """

    def __init__(self, clock) -> None:
        self.clock = clock
        self.status, self.template, self.events, self.change_sets = "", "", [], {}
        self.outcome, self.changes, self.discarded = "COMPLETE", [], []

    def describe_stacks(self, *, StackName):  # noqa: N803  # boto3's names
        if not self.status:
            raise refusal("ValidationError", f"Stack with id {StackName} does not exist")
        return {"Stacks": [{"StackStatus": self.status}]}

    def get_template(self, **_):
        return {"TemplateBody": self.template}

    def create_change_set(self, **request):
        self.change_sets["arn"] = request
        if not self.status:
            self.status = "REVIEW_IN_PROGRESS"
        return {"Id": "arn"}

    def describe_change_set(self, **_):
        if self.change_sets["arn"]["TemplateBody"] == self.template:
            reason = "The submitted information didn't contain changes."
            return {"Status": "FAILED", "StatusReason": reason, "Changes": []}
        return {
            "Status": "CREATE_COMPLETE",
            "Changes": [{"ResourceChange": c} for c in self.changes],
        }

    def delete_change_set(self, **_):
        self.discarded.append(self.change_sets.pop("arn"))

    def delete_stack(self, **_):
        self.status = ""

    def execute_change_set(self, **_):
        verb = self.change_sets["arn"]["ChangeSetType"]
        self.status = f"{verb}_IN_PROGRESS"
        self.template = self.change_sets["arn"]["TemplateBody"]
        self.clock.at(4, lambda: self.finish(verb))

    def finish(self, verb):
        self.status = f"{verb}_{self.outcome}"
        if self.outcome != "COMPLETE":
            self.event("A", "CREATE_FAILED", "no more addresses")

    def event(self, name, status, reason=""):
        self.events.insert(
            0,
            {
                "EventId": str(len(self.events)),
                "LogicalResourceId": name,
                "ResourceStatus": status,
                "ResourceStatusReason": reason,
            },
        )

    def get_paginator(self, _):
        return self

    def paginate(self, **_):
        return [{"StackEvents": list(self.events)}]


@pytest.fixture
def cloud():
    return FakeCloudFormation(Clock())


def changes(cloud):
    return StackChanges(
        FakeClients(cloudformation=cloud),
        "toolkit-demo",
        tags={"toolkit:cluster": "demo"},
        sleep=cloud.clock.sleep,
        clock=cloud.clock,
    )


def test_the_first_plan_creates_a_stack_and_the_second_updates_it(cloud):
    """Choose the change set's type by the stack's state."""
    cloud.changes = [{"Action": "Add", "LogicalResourceId": "A", "ResourceType": "T"}]
    stack = changes(cloud)
    plan = stack.plan(ONE)
    assert plan.creates_stack
    assert cloud.change_sets["arn"]["ChangeSetType"] == "CREATE"
    stack.execute(plan, Report())
    assert cloud.status == "CREATE_COMPLETE"
    assert not stack.plan(TWO).creates_stack
    assert cloud.change_sets["arn"]["ChangeSetType"] == "UPDATE"


def test_an_unchanged_template_has_no_changes_and_leaves_no_change_set(cloud):
    """Delete an empty change set.

    So a second deploy is quick, and no change sets pile up.
    """
    cloud.status, cloud.template = "CREATE_COMPLETE", ONE
    plan = changes(cloud).plan(ONE)
    assert (plan.changes, plan.change_set) == ((), "")
    assert cloud.change_sets == {}


def test_a_modified_resource_shows_the_changed_properties(cloud):
    """Compare short forms such as !Ref by their long form."""
    cloud.status, cloud.template = "CREATE_COMPLETE", ONE
    cloud.changes = [{"Action": "Modify", "LogicalResourceId": "A", "ResourceType": "T"}]
    (change,) = changes(cloud).plan(TWO).changes
    assert str(change) == "~ A  T\n    Size: 1 → 2"


def test_replacements_and_removals_are_destructive(cloud):
    """Mark replacements and removals, for which `--yes` is needed."""
    cloud.status, cloud.template = "CREATE_COMPLETE", ONE
    cloud.changes = [
        {"Action": "Modify", "LogicalResourceId": "A", "Replacement": "True"},
        {"Action": "Remove", "LogicalResourceId": "B"},
        {"Action": "Add", "LogicalResourceId": "C"},
    ]
    plan = changes(cloud).plan(TWO)
    assert [change.logical_id for change in plan.destructive_changes] == ["A", "B"]


def test_a_conditional_replacement_of_an_instance_is_destructive(cloud):
    """Treat a conditional replacement of an instance or filesystem as certain.

    CloudFormation often answers Conditional for them.
    """
    cloud.status, cloud.template = "CREATE_COMPLETE", ONE
    modified = {"Action": "Modify", "Replacement": "Conditional", "Details": [{}]}
    cloud.changes = [
        {**modified, "LogicalResourceId": "Head", "ResourceType": "AWS::EC2::Instance"},
        {**modified, "LogicalResourceId": "Net", "ResourceType": "AWS::EC2::Subnet"},
    ]
    plan = changes(cloud).plan(TWO)
    assert [change.logical_id for change in plan.destructive_changes] == ["Head"]
    assert str(plan.changes[0]) == "~ Head  AWS::EC2::Instance  (may be replaced)"


def test_another_order_among_resources_replaces_nothing():
    """Ask for --yes only where properties change."""
    body = "Resources: {F: {Type: 'AWS::FSx::FileSystem', DependsOn: [%s], Properties: {Size: %d}}}"
    before = resources(body % ("A", 1))
    (order,) = compared_templates(before, body % ("B", 1))
    (larger,) = compared_templates(before, body % ("A", 2))
    assert (order.may_replace, larger.may_replace) == (False, True)


def test_a_preview_of_a_first_stack_makes_neither_a_change_set_nor_a_stack(cloud):
    """Compare the templates here: a first change set makes a stack."""
    plan = changes(cloud).preview(TWO)
    assert [str(change) for change in plan.changes] == ["+ A  T", "+ C  U"]
    assert plan.creates_stack
    assert (cloud.status, cloud.change_sets, cloud.discarded) == ("", {}, [])


def test_a_preview_of_a_change_leaves_no_change_set(cloud):
    """Let CloudFormation compare: it alone knows what it replaces."""
    cloud.status, cloud.template = "CREATE_COMPLETE", ONE
    cloud.changes = [{"Action": "Modify", "LogicalResourceId": "A", "Replacement": "True"}]
    plan = changes(cloud).preview(TWO)
    assert [change.action for change in plan.changes] == ["Replace"]
    assert (cloud.change_sets, len(cloud.discarded)) == ({}, 1)


def test_a_stack_whose_creation_failed_is_created_again(cloud):
    """Delete the failed stack first, because CloudFormation can't update it."""
    cloud.status = "ROLLBACK_COMPLETE"
    assert changes(cloud).plan(ONE).creates_stack


def test_a_failure_names_the_resource_and_its_cause(cloud):
    """Name the resource, not only the rollback.

    Failures of earlier operations are left out.
    """
    cloud.event("Old", "CREATE_FAILED", "long ago")
    cloud.outcome = "ROLLBACK_COMPLETE"
    stack = changes(cloud)
    with pytest.raises(StackFailed, match="A: no more addresses") as caught:
        stack.execute(stack.plan(ONE), Report())
    assert "long ago" not in caught.value.message


def test_plan_waits_for_an_operation_in_progress(cloud):
    """Wait for the operation of a deploy that was killed."""
    cloud.status, cloud.template = "UPDATE_IN_PROGRESS", ONE
    cloud.clock.at(5, lambda: cloud.finish("UPDATE"))
    assert changes(cloud).plan(ONE).changes == ()


@pytest.mark.parametrize(
    ("before", "after", "lines"),
    [
        ({"a": 1}, {"a": 1}, ()),
        ({"a": [1, 2]}, {"a": [1, 3]}, ("a[1]: 2 → 3",)),
        ({}, {"a": "x"}, ("a: (none) → x",)),
        ({"a": "1\n2"}, {"a": "1\n2\n3"}, ("a: (2 lines) → (3 lines)",)),
        ({"Properties": {"a": {"b": "x" * 99}}}, {}, (f"a.b: {'x' * 70}… → (none)",)),
    ],
)
def test_differences_have_one_line_for_each_property(before, after, lines):
    """Cut long values, and count user data in lines."""
    assert differences(before, after) == lines
