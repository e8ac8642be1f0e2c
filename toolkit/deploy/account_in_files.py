"""The AWS account of a cluster.yaml, as far as files of this computer say it."""

from __future__ import annotations

import os
import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

    from toolkit.config import ClusterConfig

_ACCOUNT = re.compile(r"\d{12}", re.ASCII)
_ARN_FIELDS = 5
"""The fields of an ARN before its resource; the account is the last of them."""


def profile_of(config: ClusterConfig) -> str:
    """Return the profile whose credentials the cluster's commands use.

    It is empty for keys and for a token's role in the environment, as botocore prefers them to a
    profile that cluster.yaml does not name.
    """
    if config.aws.profile:
        return config.aws.profile
    if os.environ.get("AWS_ACCESS_KEY_ID") or os.environ.get("AWS_WEB_IDENTITY_TOKEN_FILE"):
        return ""
    named = os.environ.get("AWS_DEFAULT_PROFILE") or os.environ.get("AWS_PROFILE")
    return named or "default"


def account_in_files(config: ClusterConfig) -> str:
    """Return the account's number; empty if no file says it.

    The local cloud has an account of its own, whatever AWS's files say.
    """
    if config.aws.endpoint_url:
        return ""
    profile = profile_of(config)
    account = _of_profile(config, profile) if profile else ""
    # A role's boundary is a policy of the account that has the role.
    account = account or _of_arn(config.iam.permissions_boundary or "")
    return account if _ACCOUNT.fullmatch(account) else ""


def _of_profile(config: ClusterConfig, name: str) -> str:
    """Return the account that AWS's files give a profile."""
    credentials = config.aws.credentials_file or os.environ.get(
        "AWS_SHARED_CREDENTIALS_FILE", "~/.aws/credentials"
    )
    file = os.environ.get("AWS_CONFIG_FILE", "~/.aws/config")
    keys = {**_profiles(file).get(name, {}), **_sections(credentials).get(name, {})}
    # In the order in which botocore takes credentials.
    role = _of_arn(str(keys.get("role_arn", "")))
    return role or str(keys.get("sso_account_id") or keys.get("aws_account_id") or "")


def _of_arn(arn: str) -> str:
    fields = arn.split(":", _ARN_FIELDS)
    return fields[-2] if len(fields) > _ARN_FIELDS else ""


def _profiles(path: str) -> Mapping[str, Mapping[str, object]]:
    from botocore.configloader import build_profile_map

    profiles: Mapping[str, Mapping[str, object]] = build_profile_map(_sections(path))["profiles"]
    return profiles


def _sections(path: str) -> dict[str, dict[str, object]]:
    """Return the sections of one of AWS's files.

    There are none if it can't be read: a command that asks AWS says what is wrong.
    """
    from botocore.configloader import raw_config_parse
    from botocore.exceptions import ConfigNotFound, ConfigParseError

    try:
        sections: dict[str, dict[str, object]] = raw_config_parse(path)
    except (ConfigNotFound, ConfigParseError, OSError):
        return {}
    return sections
