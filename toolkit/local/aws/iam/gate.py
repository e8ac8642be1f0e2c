"""The gate before every service: who signed, what does the call need, do the policies allow it."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Final, Protocol

from moto.core.exceptions import ServiceException
from moto.ec2.models.availability_zones_and_regions import RegionsAndZonesBackend
from werkzeug.exceptions import HTTPException

from toolkit.local.aws.aws_errors import Refusal, code_of
from toolkit.local.aws.iam import (
    assume_role,
    bucket_policies,
    denials,
    ec2_requests,
    launches,
    s3_requests,
    service_requests,
)
from toolkit.local.aws.iam.conditions import UnknownPolicy
from toolkit.local.aws.iam.policy import Decision, Request, decide
from toolkit.local.aws.iam.principals import (
    Session,
    Sessions,
    is_admin,
    role_of_profile,
    signature_of,
)
from toolkit.local.aws.iam.role_policies import boundary_of, role_named, statements_of
from toolkit.local.options import ACCOUNT

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from toolkit.local.aws.iam.record import Record
    from toolkit.local.aws.instance_tables import Tables
    from toolkit.local.aws.run_instances import Compute

_REFUSED = Decision(allowed=False)
_ABSENT: Final = re.compile(r"^404\b")
# Such a region accepts nobody's credentials, also not the owner's.
_NOT_ENABLED: Final = frozenset(
    region.name
    for region in RegionsAndZonesBackend.regions
    if region.opt_in_status == "not-opted-in"
)


class Call(Protocol):
    """A call, as far as the gate reads it."""

    @property
    def service(self) -> str:
        """Return the service that the call was signed for."""

    @property
    def region(self) -> str:
        """Return the region that the call was signed for."""

    @property
    def action(self) -> str:
        """Return the operation, empty for S3."""

    @property
    def params(self) -> dict[str, str]:
        """Return the form, empty for JSON services."""


class Gate:
    """Judges requests, and records what it judged. Use it with the tables' lock held."""

    def __init__(self, tables: Tables, sessions: Sessions, record: Record) -> None:
        """Judge by moto's IAM; the cloud sets `compute`, which reads launches."""
        self._tables = tables
        self._sessions = sessions
        self._record = record
        self._spot_role_made = False
        self.compute: Compute | None = None

    def refusal(self, call: Call, environ: Mapping[str, Any], body: bytes) -> Refusal | None:
        """Return why a request may not be carried out, or None."""
        signature = signature_of(environ)
        if signature is None:
            return denials.refused_key(denials.UNSIGNED, call.service or _unsigned_service(environ))
        if call.region in _NOT_ENABLED:
            return denials.refused_key(denials.UNKNOWN_KEY, call.service)
        if is_admin(signature):
            return None
        session = self._sessions.find(signature.key)
        if session is None or session.token != signature.token:
            return denials.refused_key(denials.UNKNOWN_KEY, call.service)
        if session.until <= self._tables.wall():
            return denials.refused_key(denials.EXPIRED, call.service)
        return self._judge(session, call, environ, body)

    def hidden(self, environ: Mapping[str, Any], call: Call, status: str) -> Refusal | None:
        """Return S3's refusal in place of a 404, or None."""
        signature = signature_of(environ)
        if call.service != "s3" or not _ABSENT.match(status) or signature is None:
            return None
        session = self._sessions.find(signature.key)
        needed = s3_requests.hides_absence(environ)
        if session is None or needed is None:
            return None
        role = role_named(session.role)
        request = _complete(needed, session, call, environ, role)
        decision = _decide(role, request, session.arn)
        note = "a missing object is refused, not absent, without s3:ListBucket"
        self._record.add(session.role, request, decision, note)
        return None if decision.allowed else denials.denied(session.arn, "s3", request, decision)

    def agent_may_put(self, instance_id: str, bucket: str, key: str) -> bool:
        """Return whether an instance's SSM agent may write a command's output.

        It does so with the instance's role (Systems Manager User Guide, "Running commands"). An
        instance without a role counts as one whose agent was set up otherwise.
        """
        instance = self._tables.instances.get(instance_id)
        profile = instance.row.iam_instance_profile if instance else None
        name = role_of_profile(str(profile["Arn"])) if profile else None
        role = role_named(name) if name else None
        if instance is None or role is None:
            return True
        self._record.know(role.name, statements_of(role))
        keys = {
            "aws:PrincipalArn": str(role.arn),
            "aws:PrincipalAccount": ACCOUNT,
            "aws:RequestedRegion": instance.region,
        }
        request = Request("s3:PutObject", f"arn:aws:s3:::{bucket}/{key}", keys)
        decision = _decide(role, request)
        self._record.add(role.name, request, decision)
        return decision.allowed

    def _judge(
        self, session: Session, call: Call, environ: Mapping[str, Any], body: bytes
    ) -> Refusal | None:
        role = role_named(session.role)
        if role is None:  # the role was deleted, and its sessions have no rights any more
            return denials.refused_key(denials.UNKNOWN_KEY, call.service)
        try:
            statements = statements_of(role)
            self._record.know(session.role, statements)
            needed = self._requests(call, environ, body)
            if needed is None:
                return self._unknown(session, call, environ)
            for request in needed:
                refused = self._check(session, role, call, environ, request)
                if refused is not None:
                    return refused
        except UnknownPolicy as error:
            text = f"The local cloud can't judge a policy of role {session.role}: {error}"
            self._record.add(session.role, Request(f"{call.service}:{call.action}", "*"),
                             _REFUSED, text)  # fmt: skip
            return denials.in_words(call.service, text)
        except (HTTPException, ServiceException) as error:
            return Refusal(*code_of(error))  # the call can't be: its own error, as from moto
        return None

    def _requests(
        self, call: Call, environ: Mapping[str, Any], body: bytes
    ) -> Iterable[Request] | None:
        match call.service:
            case "ec2":
                place = ec2_requests.Place(self._tables, call.region)
                if call.action in launches.ACTIONS and self.compute is not None:
                    return launches.requests(place, self.compute, call.action, call.params)
                return ec2_requests.requests(place, call.action, call.params)
            case "s3":
                return s3_requests.requests(environ, body)
            case "sts" if call.action == "AssumeRole":
                return assume_role.requests(call.params)
            case _:
                params = service_requests.parameters(body, call.params)
                return service_requests.requests(call.service, call.region, call.action, params)

    def _check(
        self, session: Session, role: Any, call: Call, environ: Mapping[str, Any], request: Request
    ) -> Refusal | None:
        first_spot = request.action == "iam:CreateServiceLinkedRole"
        if first_spot and self._spot_role_made:
            return None
        full = _complete(request, session, call, environ, role)
        decision = _decide(role, full, session.arn)
        if call.action == "AssumeRole":
            return self._assume(session, role, call, full, decision)
        self._record.add(session.role, full, decision)
        if decision.allowed:
            self._spot_role_made = self._spot_role_made or first_spot
            return None
        if first_spot:
            return denials.no_service_role()
        return denials.denied(session.arn, call.service, full, decision)

    def _assume(
        self, session: Session, role: Any, call: Call, request: Request, own: Decision
    ) -> Refusal | None:
        """Judge AssumeRole by the caller's policies and the role's trust."""
        target = role_named(request.resource.rpartition("/")[2])
        decision = _REFUSED
        if target is not None:
            decision = assume_role.trusted(target, (str(role.arn), session.arn), own, request)
        self._record.add(session.role, request, decision)
        if decision.allowed:
            return assume_role.invalid(call.params)
        return denials.in_words("sts", assume_role.words(session.arn, request))

    def _unknown(self, session: Session, call: Call, environ: Mapping[str, Any]) -> Refusal:
        name = call.action or f"{environ['REQUEST_METHOD']} {environ.get('QUERY_STRING', '')}"
        text = (
            f"The local cloud does not know which rights {call.service}:{name} needs. Add it to "
            "toolkit/local/aws/iam."
        )
        self._record.add(session.role, Request(f"{call.service}:{name}", "*"), _REFUSED, text)
        return denials.in_words(call.service, text)


def _decide(role: Any, request: Request, *arns: str) -> Decision:
    """Judge a request by the policies of role and bucket.

    `arns` are names of the caller besides the role's.
    """
    decision = decide(statements_of(role) if role else (), request)
    boundary = boundary_of(role) if role else None
    if boundary is not None and decision.allowed and not decide(boundary, request).allowed:
        decision = _REFUSED
    if not request.action.startswith("s3:"):
        return decision
    return bucket_policies.judged(decision, request, (str(role.arn) if role else "", *arns))


def _complete(
    request: Request, session: Session, call: Call, environ: Mapping[str, Any], role: Any
) -> Request:
    """Return the request with the keys that AWS adds to every call."""
    context: dict[str, str | tuple[str, ...]] = {
        "aws:PrincipalArn": str(role.arn) if role else "",
        "aws:PrincipalAccount": ACCOUNT,
        "aws:RequestedRegion": call.region,
        "aws:SecureTransport": str(environ.get("wsgi.url_scheme") == "https").lower(),
    }
    if session.instance:
        context["ec2:SourceInstanceARN"] = session.instance
    if role:
        context |= {f"aws:PrincipalTag/{tag['Key']}": str(tag["Value"]) for tag in role.tags or ()}
    context |= {f"aws:PrincipalTag/{key}": value for key, value in session.tags}
    return Request(request.action, request.resource, {**context, **request.context})


def _unsigned_service(environ: Mapping[str, Any]) -> str:
    return "json" if environ.get("HTTP_X_AMZ_TARGET") else "s3"
