"""EC2's error codes, each in one class. The only list of codes; EC2 adds some without saying.

Sources: the EC2 API reference's error table, and the lists of aws-parallelcluster and Karpenter.
"""

from __future__ import annotations

import re
from types import MappingProxyType
from typing import TYPE_CHECKING, Final

from slurmplugins.errors import (
    Capacity,
    CloudError,
    CloudUnreachable,
    Denied,
    Ended,
    InvalidRequest,
    NoCredentials,
    NotFound,
    PriceTooLow,
    Quota,
    Throttled,
    Unauthenticated,
    UnknownCloudError,
)

if TYPE_CHECKING:
    from collections.abc import Mapping

_BY_CLASS: Final[tuple[tuple[type[CloudError], tuple[str, ...]], ...]] = (
    (
        Capacity,
        (
            "InsufficientCapacity",
            "InsufficientCapacityOnHost",
            "InsufficientCapacityOnOutpost",
            "InsufficientFreeAddressesInSubnet",
            "InsufficientHostCapacity",
            "InsufficientInstanceCapacity",
            "InsufficientReservedInstanceCapacity",
            "ReservationCapacityExceeded",
            "ReservationCapacityNotAvailable",
            "SpotInstanceCapacityNotAvailable",
            "UnfulfillableCapacity",
            # "not supported in this zone": to us a place where there is none to be had
            "Unsupported",
            "UnsupportedOperation",
        ),
    ),
    (PriceTooLow, ("SpotMaxPriceTooLow", "InvalidSpotPrice")),
    (
        Quota,
        (
            "AddressLimitExceeded",
            "FleetCapacityLimitExceeded",
            "InstanceLimitExceeded",
            "MaxFleetCountExceeded",
            "MaxIOPSLimitExceeded",
            "MaxSpotFleetRequestCountExceeded",
            "MaxSpotInstanceCountExceeded",
            "NetworkInterfaceLimitExceeded",
            "PendingVerification",
            "ResourceLimitExceeded",
            "VcpuLimitExceeded",
            "VolumeLimitExceeded",
        ),
    ),
    (
        Throttled,
        (
            "EC2ThrottledException",
            "RequestLimitExceeded",
            "RequestThrottled",
            "RequestThrottledException",
            "SlowDown",
            "Throttling",
            "ThrottlingException",
            "TooManyRequestsException",
        ),
    ),
    (
        Denied,
        (
            "AccessDenied",
            "AccessDeniedException",
            "AuthFailure.ServiceLinkedRoleCreationNotPermitted",
            "Blocked",
            "OptInRequired",
            "UnauthorizedOperation",
        ),
    ),
    (
        # The head's keys are its role's, which the metadata service renews: these are of a wrong
        # clock, or of a moment, and not of a key that a person mistyped.
        Unauthenticated,
        (
            "AuthFailure",
            "ExpiredToken",
            "ExpiredTokenException",
            "IncompleteSignature",
            "InvalidAccessKeyId",
            "InvalidClientTokenId",
            "InvalidSignatureException",
            "RequestExpired",
            "RequestTimeTooSkewed",
            "SignatureDoesNotMatch",
            "UnrecognizedClientException",
        ),
    ),
    (NoCredentials, ("MissingCredentials",)),
    (
        InvalidRequest,
        (
            "CapacityReservationNotActive",
            "DefaultVpcDoesNotExist",
            "EncryptedVolumesNotSupported",
            "FilterLimitExceeded",
            "IncorrectInstanceState",
            "IncorrectState",
            "InvalidAMIID.Malformed",
            "InvalidAvailabilityZone",
            "InvalidBlockDeviceMapping",
            "InvalidCapacityReservationId.Malformed",
            "InvalidCapacityReservationState",
            "InvalidFleetConfiguration",
            "InvalidFleetConfig",
            "InvalidInput",
            "InvalidInterface.IpAddressLimitExceeded",
            "InvalidLaunchTemplateId.Malformed",
            "InvalidParameter",
            "InvalidParameterCombination",
            "InvalidParameterValue",
            "InvalidSubnet",
            "InvalidTagKey.Malformed",
            "InvalidUserData.Malformed",
            "MalformedQueryString",
            "MissingParameter",
            "OperationNotPermitted",
            "TagLimitExceeded",
            "UnknownParameter",
            "VPCIdNotSpecified",
            "ValidationError",
        ),
    ),
    (
        NotFound,
        (
            "InvalidAMIID.NotFound",
            "InvalidAMIID.Unavailable",
            "InvalidCapacityReservationId.NotFound",
            "InvalidGroup.NotFound",
            "InvalidInstanceID.Malformed",
            "InvalidInstanceID.NotFound",
            "InvalidLaunchTemplateId.NotFound",
            "InvalidLaunchTemplateId.VersionNotFound",
            "InvalidLaunchTemplateName.NotFoundException",
            "InvalidPlacementGroup.Unknown",
            "InvalidSecurityGroupID.NotFound",
            "InvalidSubnetID.NotFound",
            "NoSuchBucket",
            "NoSuchKey",
        ),
    ),
    (Ended, ("IdempotentInstanceTerminated",)),
    (
        CloudUnreachable,
        (
            "InternalError",
            "InternalFailure",
            "InternalServerError",
            "RequestTimeout",
            "ServiceUnavailable",
            "Unavailable",
            "Unreachable",
        ),
    ),
    # The token was used, with what the request meant at the time: its machines are somewhere.
    (UnknownCloudError, ("IdempotentParameterMismatch",)),
)

CLASSES: Final[Mapping[str, type[CloudError]]] = MappingProxyType(
    {code: kind for kind, codes in _BY_CLASS for code in codes}
)


_BY_SHAPE: Final[tuple[tuple[re.Pattern[str], type[CloudError]], ...]] = (
    (re.compile(r"Unsupported\w+|\w+NotSupported|\w+\.NotSupported"), Capacity),
    (re.compile(r"Insufficient\w*Capacity"), Capacity),
    (re.compile(r"\w+LimitExceeded|Max\w+Exceeded"), Quota),
    (re.compile(r"\w+\.NotFound(Exception)?"), NotFound),
    (re.compile(r"Invalid[\w.]+|\w+\.Malformed"), InvalidRequest),
)
"""How EC2 names its errors: what a code means that the table lacks."""


def error(code: str, message: str, *, started: int = 0) -> CloudError:
    """The error of its class for a code; one that is like no other is an UnknownCloudError."""
    return (_kind(code) or UnknownCloudError)(message, code=code, started=started)


def answer(code: str, status: int, message: str) -> CloudError:
    """Judge an answer to a call: without one of EC2's own codes it is none.

    A gateway may have written it, and the call may have been carried out behind it.
    """
    kind = _kind(code) or CloudUnreachable
    word = code if code and code != str(status) else f"HTTP {status}"
    return kind(message, code=word)


def _kind(code: str) -> type[CloudError] | None:
    # Some answers say before a code whose fault it is.
    plain = code.removeprefix("Client.").removeprefix("Server.")
    shaped = (kind for shape, kind in _BY_SHAPE if shape.fullmatch(plain))
    return CLASSES.get(plain) or next(shaped, None)
