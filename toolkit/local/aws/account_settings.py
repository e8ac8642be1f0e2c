"""Settings of the account that moto leaves out: vCPU quotas, and the default key of disks."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from moto.core.responses import ActionResult
from moto.ec2.responses import EC2Response
from moto.kms.models import kms_backends
from moto.servicequotas.exceptions import NoSuchResource
from moto.servicequotas.models import ServiceQuotasBackend

from toolkit.local.options import ACCOUNT

if TYPE_CHECKING:
    from toolkit.local.aws.moto_patches import Patches

# A new account has 5 vCPUs of the standard families and none of the others. This account's
# owner has asked for more.
RAISED: Final = 10_000.0
AWS_KEY: Final = "alias/aws/ebs"
# https://docs.aws.amazon.com/AWSEC2/latest/UserGuide/ec2-on-demand-instances.html and
# using-spot-limits.html: all quotas of running instances, by code.
QUOTAS: Final = {
    "L-1216C47A": "Running On-Demand Standard (A, C, D, H, I, M, R, T, Z) instances",
    "L-DB2E81BA": "Running On-Demand G and VT instances",
    "L-417A185B": "Running On-Demand P instances",
    "L-74FC7D96": "Running On-Demand F instances",
    "L-7295265B": "Running On-Demand X instances",
    "L-1945791B": "Running On-Demand Inf instances",
    "L-2C3B7624": "Running On-Demand Trn instances",
    "L-6E869C2A": "Running On-Demand DL instances",
    "L-F7808C92": "Running On-Demand HPC instances",
    "L-43DA4232": "Running On-Demand High Memory instances",
    "L-34B43A08": "All Standard (A, C, D, H, I, M, R, T, Z) Spot Instance Requests",
    "L-3819A6DF": "All G and VT Spot Instance Requests",
    "L-7212CCBC": "All P Spot Instance Requests",
    "L-88CF9481": "All F Spot Instance Requests",
    "L-E3A00192": "All X Spot Instance Requests",
    "L-B5D1601B": "All Inf Spot Instance Requests",
    "L-6B0D517C": "All Trn Spot Instance Requests",
    "L-85EED4F7": "All DL Spot Instance Requests",
}


class AccountSettings:
    """The account's quotas, which a test lowers, and its key for disks."""

    def __init__(self) -> None:
        """Begin with raised quotas."""
        self.quotas = dict.fromkeys(QUOTAS, RAISED)

    def install(self, patches: Patches) -> None:
        """Add what moto leaves out."""
        settings = self
        original: dict[str, Any] = {}

        def get_service_quota(backend: Any, service_code: str, quota_code: str) -> Any:
            if service_code != "ec2":
                return original["get"](backend, service_code, quota_code)
            if quota_code not in settings.quotas:
                raise NoSuchResource
            return _quota(backend.region_name, quota_code, settings.quotas[quota_code])

        def get_ebs_default_kms_key_id(response: Any) -> Any:
            response.error_on_dryrun()
            return ActionResult({"KmsKeyId": _default_key(response.ec2_backend)})

        original["get"] = patches.replace(
            ServiceQuotasBackend, "get_service_quota", get_service_quota
        )
        patches.replace(EC2Response, "get_ebs_default_kms_key_id", get_ebs_default_kms_key_id)


def _quota(region: str, code: str, value: float) -> dict[str, Any]:
    return {
        "ServiceCode": "ec2",
        "ServiceName": "Amazon Elastic Compute Cloud (Amazon EC2)",
        "QuotaArn": f"arn:aws:servicequotas:{region}:{ACCOUNT}:ec2/{code}",
        "QuotaCode": code,
        "QuotaName": QUOTAS[code],
        "Value": value,
        "Unit": "None",
        "Adjustable": True,
        "GlobalQuota": False,
        "QuotaAppliedAtLevel": "ACCOUNT",
    }


def _default_key(backend: Any) -> str:
    """Return the key that ModifyEbsDefaultKmsKeyId has set, else AWS's own."""
    key = str(backend.default_kms_key_id)
    kms = kms_backends[ACCOUNT][backend.region_name]
    aws_keys = [kms.describe_key(AWS_KEY).arn] if kms.alias_exists(AWS_KEY) else []
    return AWS_KEY if not key or key in aws_keys else key
