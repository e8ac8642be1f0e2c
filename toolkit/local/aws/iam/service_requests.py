"""Actions and resources of the smaller services: SSM, Secrets Manager, STS, IAM and others.

Source: Service Authorization Reference, the page of each service. Only what a role of the toolkit
calls, or may call by a policy that Amazon manages, is listed.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final

from moto.cloudformation.models import cloudformation_backends
from moto.ec2.models import ec2_backends
from moto.secretsmanager.models import secretsmanager_backends

from toolkit.local.aws.iam.policy import Request
from toolkit.local.options import ACCOUNT

Params = Mapping[str, Any]

_ANYWHERE: Final = frozenset(
    {
        "ssm:DescribeInstanceInformation",
        "ssm:ListCommands",
        "ssm:ListCommandInvocations",
        "ssm:GetCommandInvocation",
        "cloudformation:ListStacks",
        "cloudformation:ValidateTemplate",
        "pricing:GetProducts",
        "pricing:DescribeServices",
        "pricing:GetAttributeValues",
        "iam:ListRoles",
        "iam:ListInstanceProfiles",
        "secretsmanager:ListSecrets",
        "servicequotas:GetServiceQuota",
        "cloudwatch:PutMetricData",
        "cloudwatch:GetMetricData",
    }
)
"""Actions without permissions of a resource."""
DEFAULT_SESSION: Final = "SSM-SessionManagerRunShell"
"""The document of a session that names none (SSM User Guide, "Start a default shell session")."""
_PREFIXES: Final = {"monitoring": "cloudwatch"}
"""The names of services in policies, where their signatures have others."""
FREE: Final = frozenset({"sts:GetCallerIdentity", "sts:GetSessionToken"})
"""Actions for which nobody needs a right (STS API reference)."""


def requests(service: str, region: str, action: str, params: Params) -> Iterator[Request] | None:
    """Return what a call needs, None for an unknown call."""
    name = f"{_PREFIXES.get(service, service)}:{action}"
    if name in FREE:
        return iter(())
    if name in _ANYWHERE:
        return iter([Request(name, "*", _namespace(name, params))])
    find = _RESOURCES.get(name)
    if find is None:
        return None
    return (
        Request(name, resource, _instance_tags(region, resource))
        for resource in find(region, params)
    )


def parameters(body: bytes, form: Mapping[str, str]) -> Params:
    """Return a call's parameters: of its form, else of its JSON."""
    if form:
        return form
    try:
        value = json.loads(body or b"{}")
    except ValueError:
        return {}
    return value if isinstance(value, dict) else {}


def _namespace(name: str, params: Params) -> dict[str, str]:
    """Return the condition key of a metric."""
    is_metric = name == "cloudwatch:PutMetricData"
    return {"cloudwatch:namespace": str(params.get("Namespace", ""))} if is_metric else {}


def _instance_tags(region: str, resource: str) -> dict[str, str]:
    """Return the condition keys that an instance gives to SSM."""
    kind, _, instance_id = resource.partition(":instance/")
    if not kind.startswith("arn:aws:ec2:"):
        return {}
    tags = ec2_backends[ACCOUNT][region].tags.get(instance_id, {})
    return {
        f"{prefix}/{key}": str(value)
        for key, value in tags.items()
        for prefix in ("aws:ResourceTag", "ssm:resourceTag")
    }


def _secret(region: str, params: Params) -> list[str]:
    """Return a secret's ARN, which ends in six characters of AWS's."""
    wanted = str(params.get("SecretId", ""))
    if wanted.startswith("arn:"):
        return [wanted]
    for secret in secretsmanager_backends[ACCOUNT][region].secrets.values():
        if wanted == secret.name:
            return [str(secret.arn)]
    return [f"arn:aws:secretsmanager:{region}:{ACCOUNT}:secret:{wanted}"]


def _parameters(region: str, params: Params) -> list[str]:
    names = params.get("Names") or [params.get("Name") or params.get("Path") or ""]
    return [f"arn:aws:ssm:{region}:{ACCOUNT}:parameter/{str(name).lstrip('/')}" for name in names]


def _command(region: str, params: Params) -> list[str]:
    """Return the document and every instance of a SendCommand."""
    document = str(params.get("DocumentName", ""))
    owner = "" if document.startswith("AWS-") else ACCOUNT
    found = [f"arn:aws:ssm:{region}:{owner}:document/{document}"]
    ids = params.get("InstanceIds") or ["*"]
    return found + [f"arn:aws:ec2:{region}:{ACCOUNT}:instance/{name}" for name in ids]


def _session(region: str, params: Params) -> list[str]:
    """Return the document and the instance of a StartSession.

    AWS asks for the default document only where a policy checks documents. Here it always does.
    """
    document = params.get("DocumentName") or DEFAULT_SESSION
    target = params.get("Target")
    return _command(region, {"DocumentName": document, "InstanceIds": [target]})


def _instance(region: str, params: Params) -> list[str]:
    return [f"arn:aws:ec2:{region}:{ACCOUNT}:instance/{params.get('InstanceId') or '*'}"]


def _stack(region: str, params: Params) -> list[str]:
    name = str(params.get("StackName") or "*")
    if name.startswith("arn:"):
        return [name]
    return [f"arn:aws:cloudformation:{region}:{ACCOUNT}:stack/{name}/*"]


def _change_set(region: str, params: Params) -> list[str]:
    """Return the stack of a change set, named by its own ARN."""
    made = cloudformation_backends[ACCOUNT][region].change_sets.get(params.get("ChangeSetName"))
    return [str(made.stack_id)] if made is not None else _stack(region, params)


def _role(_region: str, params: Params) -> list[str]:
    return [str(params.get("RoleArn") or f"arn:aws:iam::{ACCOUNT}:role/{params.get('RoleName')}")]


def _profile(_region: str, params: Params) -> list[str]:
    return [f"arn:aws:iam::{ACCOUNT}:instance-profile/{params.get('InstanceProfileName')}"]


def _file_systems(region: str, params: Params) -> list[str]:
    ids = params.get("FileSystemIds") or ["*"]
    return [f"arn:aws:fsx:{region}:{ACCOUNT}:file-system/{name}" for name in ids]


def _log_stream(region: str, params: Params) -> list[str]:
    """Return a stream's ARN; a group's own has no name in it.

    CloudWatch Logs User Guide, "ARNs": a policy for a group needs `:*` at its end.
    """
    group, stream = params.get("logGroupName") or "*", params.get("logStreamName") or ""
    return [f"arn:aws:logs:{region}:{ACCOUNT}:log-group:{group}:log-stream:{stream}"]


def _log_group(region: str, params: Params) -> list[str]:
    return _log_stream(region, {"logGroupName": params.get("logGroupName")})


def _alarms(region: str, _params: Params) -> list[str]:
    return [f"arn:aws:cloudwatch:{region}:{ACCOUNT}:alarm:*"]


_RESOURCES: Final[Mapping[str, Callable[[str, Params], list[str]]]] = {
    "secretsmanager:GetSecretValue": _secret,
    "secretsmanager:DescribeSecret": _secret,
    "secretsmanager:PutSecretValue": _secret,
    "ssm:GetParameter": _parameters,
    "ssm:GetParameters": _parameters,
    "ssm:GetParametersByPath": _parameters,
    "ssm:PutParameter": _parameters,
    "ssm:SendCommand": _command,
    "ssm:StartSession": _session,
    "ssm:UpdateInstanceInformation": _instance,
    "cloudformation:DescribeStacks": _stack,
    "cloudformation:DescribeStackEvents": _stack,
    "cloudformation:CreateChangeSet": _stack,
    "cloudformation:DeleteChangeSet": _change_set,
    "cloudformation:DeleteStack": _stack,
    "cloudformation:UpdateTerminationProtection": _stack,
    "cloudformation:DescribeChangeSet": _change_set,
    "cloudformation:DescribeStackResource": _stack,
    "cloudformation:DescribeStackResources": _stack,
    "cloudformation:ListStackResources": _stack,
    "cloudformation:ExecuteChangeSet": _change_set,
    "cloudformation:GetTemplate": _stack,
    "iam:GetRole": _role,
    "iam:GetInstanceProfile": _profile,
    "fsx:DescribeFileSystems": _file_systems,
    "logs:CreateLogGroup": _log_group,
    "logs:CreateLogStream": _log_group,
    "logs:DeleteLogGroup": _log_group,
    "logs:DescribeLogGroups": _log_group,
    "logs:DescribeLogStreams": _log_group,
    "logs:FilterLogEvents": _log_group,
    "logs:PutLogEvents": _log_stream,
    "logs:PutRetentionPolicy": _log_group,
    "cloudwatch:DescribeAlarms": _alarms,
}
