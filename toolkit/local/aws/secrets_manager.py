"""AWS::SecretsManager::Secret, which moto's CloudFormation does not know."""

from __future__ import annotations

import json
import secrets
import string
from typing import TYPE_CHECKING, Any

from moto.core.common_models import CloudFormationModel
from moto.secretsmanager.models import secretsmanager_backends

from toolkit.local.aws.stack_type import StackType

if TYPE_CHECKING:
    from collections.abc import Mapping

_DEFAULT_LENGTH = 32
_PUNCTUATION = string.punctuation


def generate(options: Mapping[str, Any]) -> str:
    """Return a secret string as GenerateSecretString describes it."""
    length = int(options.get("PasswordLength") or _DEFAULT_LENGTH)
    classes = [
        alphabet
        for alphabet, key in (
            (string.ascii_lowercase, "ExcludeLowercase"),
            (string.ascii_uppercase, "ExcludeUppercase"),
            (string.digits, "ExcludeNumbers"),
            (_PUNCTUATION, "ExcludePunctuation"),
        )
        if not _is_true(options.get(key))
    ]
    if _is_true(options.get("IncludeSpace")):
        classes.append(" ")
    excluded = set(options.get("ExcludeCharacters") or "")
    classes = [
        allowed
        for characters in classes
        if (allowed := "".join(c for c in characters if c not in excluded))
    ]
    all_characters = "".join(classes)
    while True:
        password = "".join(secrets.choice(all_characters) for _ in range(length))
        require_each = options.get("RequireEachIncludedType")
        required_classes = classes if require_each is None or _is_true(require_each) else []
        if length < len(required_classes) or all(
            set(characters) & set(password) for characters in required_classes
        ):
            break
    key = options.get("GenerateStringKey")
    if not key:
        return password
    return json.dumps({**json.loads(options.get("SecretStringTemplate") or "{}"), key: password})


def _is_true(value: Any) -> bool:
    return str(value).lower() == "true"


class StackSecret(StackType, CloudFormationModel):  # type: ignore[misc]  # moto is untyped here
    """A secret of a stack; Ref gives its ARN."""

    TYPE = "AWS::SecretsManager::Secret"
    NAME_PROPERTY = "Name"

    def __init__(self, arn: str, name: str) -> None:
        """Stand for a secret of the backend."""
        self.arn = arn
        self.name = name

    @property
    def physical_resource_id(self) -> str:
        """Return what Ref gives."""
        return self.arn

    @classmethod
    def has_cfn_attr(cls, attr: str) -> bool:
        """Say which attributes GetAtt may read."""
        return attr == "Id"

    def get_cfn_attribute(self, attribute_name: str) -> str:
        """Return an attribute."""
        del attribute_name
        return self.arn

    @classmethod
    def create_from_cloudformation_json(
        cls,
        resource_name: str,
        cloudformation_json: Any,
        account_id: str,
        region_name: str,
        **_: Any,
    ) -> StackSecret:
        """Create the secret a template describes, generated if it asks for that."""
        properties: Mapping[str, Any] = cloudformation_json["Properties"]
        value = properties.get("SecretString")
        generator = properties.get("GenerateSecretString")
        if generator is not None:
            value = generate(generator)
        response = secretsmanager_backends[account_id][region_name].create_secret(
            name=resource_name,
            secret_string=value,
            secret_binary=None,
            description=properties.get("Description"),
            tags=properties.get("Tags"),
            kms_key_id=properties.get("KmsKeyId"),
            client_request_token=None,
            replica_regions=[],
            force_overwrite=False,
        )
        return cls(str(json.loads(response)["ARN"]), resource_name)

    @classmethod
    def update_from_cloudformation_json(
        cls,
        original_resource: Any,
        new_resource_name: str,
        cloudformation_json: Any,
        account_id: str,
        region_name: str,
    ) -> StackSecret:
        """Write a literal value; a generated one stays as it was generated."""
        del new_resource_name
        resource: StackSecret = original_resource
        value = cloudformation_json["Properties"].get("SecretString")
        if value is not None:
            secretsmanager_backends[account_id][region_name].put_secret_value(
                resource.arn, value, None, None, ["AWSCURRENT"]
            )
        return resource

    def delete(self, account_id: str, region_name: str) -> None:
        """Delete the secret at once, as CloudFormation does."""
        backend = secretsmanager_backends[account_id][region_name]
        backend.delete_secret(
            secret_id=self.arn, recovery_window_in_days=None, force_delete_without_recovery=True
        )
