"""EC2's error codes, each with our error class. The only list; EC2 adds codes without notice.

Sources: the EC2 API reference's error table, and the lists of aws-parallelcluster and Karpenter.
"""

from __future__ import annotations

import re
from types import MappingProxyType
from typing import TYPE_CHECKING, Final

from slurmplugins.errors import (
    AlreadyTerminated,
    CloudError,
    CloudUnreachable,
    Denied,
    InvalidRequest,
    NoCapacity,
    NoCredentials,
    NotFound,
    PriceTooLow,
    QuotaExceeded,
    Throttled,
    Unauthenticated,
    UnknownCloudError,
)

if TYPE_CHECKING:
    from collections.abc import Mapping

_BY_CLASS: Final[tuple[tuple[type[CloudError], tuple[str, ...]], ...]] = (
    (
        NoCapacity,
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
            # "not supported in this zone": for us a zone without capacity
            "Unsupported",
            "UnsupportedOperation",
        ),
    ),
    (PriceTooLow, ("SpotMaxPriceTooLow", "InvalidSpotPrice")),
    (
        QuotaExceeded,
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
        # The head's keys belong to its role, and the metadata service renews them. These codes
        # therefore come from a wrong clock or from a moment of renewal, not from a mistyped key.
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
    (AlreadyTerminated, ("IdempotentInstanceTerminated",)),
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
    # The token was used before, when the request meant something else. Its instances exist.
    (UnknownCloudError, ("IdempotentParameterMismatch",)),
)

CLASSES: Final[Mapping[str, type[CloudError]]] = MappingProxyType(
    {code: kind for kind, codes in _BY_CLASS for code in codes}
)


_BY_PATTERN: Final[tuple[tuple[re.Pattern[str], type[CloudError]], ...]] = (
    (re.compile(r"Unsupported\w+|\w+NotSupported|\w+\.NotSupported"), NoCapacity),
    (re.compile(r"Insufficient\w*Capacity"), NoCapacity),
    (re.compile(r"\w+LimitExceeded|Max\w+Exceeded"), QuotaExceeded),
    (re.compile(r"\w+\.NotFound(Exception)?"), NotFound),
    (re.compile(r"Invalid[\w.]+|\w+\.Malformed"), InvalidRequest),
)
"""Patterns of EC2's codes, for codes that the table lacks."""


def error(code: str, message: str, *, started: int = 0) -> CloudError:
    """Return the error for a code; UnknownCloudError if no class fits."""
    return (_error_class(code) or UnknownCloudError)(message, code=code, instances_started=started)


def answer_error(code: str, status: int, message: str) -> CloudError:
    """Return the error for an answer to a call.

    An answer without one of EC2's codes is CloudUnreachable. A gateway may have written it, and
    EC2 may have carried out the call.
    """
    error_class = _error_class(code) or CloudUnreachable
    shown_code = code if code and code != str(status) else f"HTTP {status}"
    return error_class(message, code=shown_code)


def _error_class(code: str) -> type[CloudError] | None:
    # Some answers put the side at fault before the code.
    bare_code = code.removeprefix("Client.").removeprefix("Server.")
    matches = (error_class for pattern, error_class in _BY_PATTERN if pattern.fullmatch(bare_code))
    return CLASSES.get(bare_code) or next(matches, None)
