"""FSx for Lustre: file systems that are directories of this host, by API and by stack."""

from __future__ import annotations

import secrets
import shutil
import subprocess
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from moto.core.common_models import CloudFormationModel
from moto.fsx.exceptions import ResourceNotFoundException
from moto.fsx.models import Backup, FileSystem, FSxBackend, fsx_backends

from toolkit.local.aws import lustre_network, network_interfaces
from toolkit.local.aws.stack_type import StackType

if TYPE_CHECKING:
    from collections.abc import Mapping

    from toolkit.local.aws.moto_patches import Patches

MOUNT_NAME = "shared"
_CONFIGURATIONS = {
    "windows_configuration": "WindowsConfiguration",
    "lustre_configuration": "LustreConfiguration",
    "ontap_configuration": "OntapConfiguration",
    "open_zfs_configuration": "OpenZFSConfiguration",
}


class FileSystems:
    """Gives each file system a directory, and what DescribeFileSystems leaves out in moto."""

    def __init__(self, root: Path) -> None:
        """Keep file systems below `root`."""
        self._root = root

    def install(self, patches: Patches) -> None:
        """Give moto's file systems a directory, and their rows the missing members."""
        root = self._root
        original: dict[str, Any] = {}

        def create(backend: Any, *args: Any, **kwargs: Any) -> Any:
            subnet_ids = kwargs["subnet_ids"]
            ec2 = lustre_network.ec2_of(backend)
            groups = lustre_network.check_groups(
                ec2, subnet_ids[0], kwargs.get("security_group_ids") or ()
            )
            system = original["create"](backend, *args, **kwargs)
            system.interfaces = lustre_network.create_interfaces(
                ec2, subnet_ids[0], groups, system.file_system_id, int(system.storage_capacity)
            )
            system.created = datetime.now(UTC).timestamp()
            system.directory = root / system.file_system_id
            system.directory.mkdir(parents=True, mode=0o755, exist_ok=True)
            return system

        def delete(backend: Any, file_system_id: str, *args: Any, **kwargs: Any) -> Any:
            system = backend.file_systems.get(file_system_id)
            answer = original["delete"](backend, file_system_id, *args, **kwargs)
            for interface in system.interfaces:
                network_interfaces.remove(lustre_network.ec2_of(backend), interface)
            shutil.rmtree(root / Path(file_system_id).name, ignore_errors=True)
            return answer

        def to_dict(system: Any) -> dict[str, Any]:
            members: dict[str, Any] = original["to_dict"](system)
            return members | _missing_members(system)

        original["create"] = patches.replace(FSxBackend, "create_file_system", create)
        original["delete"] = patches.replace(FSxBackend, "delete_file_system", delete)
        original["to_dict"] = patches.replace(FileSystem, "to_dict", to_dict)
        patches.replace(FSxBackend, "file_system_changed", lambda *_: None)
        self._install_backups(patches)

    def _install_backups(self, patches: Patches) -> None:
        """Let a backup copy the directory behind its file system, at once."""
        root = self._root
        original: dict[str, Any] = {}

        def back_up(backend: Any, *args: Any, **kwargs: Any) -> Any:
            made = original["back_up"](backend, *args, **kwargs)
            _copy(root / Path(made.file_system_id).name, root / made.backup_id)
            made.lifecycle = "AVAILABLE"
            made.file_system = backend.file_systems[made.file_system_id].to_dict()
            return made

        def backup_to_dict(made: Any) -> dict[str, Any]:
            members: dict[str, Any] = original["backup_to_dict"](made)
            return members | {"FileSystem": made.file_system, "Type": "USER_INITIATED"}

        def delete_backup(backend: Any, backup_id: str, *args: Any, **kwargs: Any) -> Any:
            answer = original["delete_backup"](backend, backup_id, *args, **kwargs)
            shutil.rmtree(root / Path(backup_id).name, ignore_errors=True)
            return answer

        original["back_up"] = patches.replace(FSxBackend, "create_backup", back_up)
        original["delete_backup"] = patches.replace(FSxBackend, "delete_backup", delete_backup)
        original["backup_to_dict"] = patches.replace(Backup, "to_dict", backup_to_dict)


def _copy(source: Path, target: Path) -> None:
    """Copy a tree with its owners, modes and links."""
    subprocess.run(["cp", "--archive", "--no-target-directory", source, target], check=True)


def _check_backup(backend: Any, backup_id: str) -> None:
    """Raise ResourceNotFoundException for a backup that FSx does not have."""
    if backup_id and backup_id not in backend.backups:
        raise ResourceNotFoundException(msg=f"FSx resource, {backup_id} does not exist")


def _missing_members(system: Any) -> dict[str, Any]:
    members: dict[str, Any] = {
        "Lifecycle": "AVAILABLE",
        "OwnerId": system.backend.account_id,
        "CreationTime": getattr(system, "created", 0.0),
        "NetworkInterfaceIds": list(system.interfaces),
    }
    if system.file_system_type == "LUSTRE":
        configuration = system.lustre_configuration or {}
        members["LustreConfiguration"] = {**configuration, "MountName": MOUNT_NAME}
    return members


class StackFileSystem(StackType, CloudFormationModel):  # type: ignore[misc]  # moto is untyped here
    """AWS::FSx::FileSystem."""

    TYPE = "AWS::FSx::FileSystem"

    def __init__(self, system: Any, backend: Any) -> None:
        """Stand for a file system of the backend."""
        self.system = system
        self.backend = backend

    @property
    def physical_resource_id(self) -> str:
        """Return what Ref gives."""
        return str(self.system.file_system_id)

    @classmethod
    def has_cfn_attr(cls, attr: str) -> bool:
        """Say which attributes GetAtt may read."""
        return attr in ("DNSName", "LustreMountName", "ResourceARN", "RootVolumeId")

    def get_cfn_attribute(self, attribute_name: str) -> str:
        """Return an attribute."""
        values = {
            "DNSName": self.system.dns_name,
            "LustreMountName": MOUNT_NAME,
            "ResourceARN": self.system.resource_arn,
        }
        return str(values[attribute_name])

    @classmethod
    def create_from_cloudformation_json(
        cls,
        resource_name: str,
        cloudformation_json: Any,
        account_id: str,
        region_name: str,
        **_: Any,
    ) -> StackFileSystem:
        """Create the file system a template describes."""
        del resource_name
        properties: Mapping[str, Any] = cloudformation_json["Properties"]
        backend = fsx_backends[account_id][region_name]
        backup_id = str(properties.get("BackupId") or "")
        _check_backup(backend, backup_id)
        configurations = {key: properties.get(name) for key, name in _CONFIGURATIONS.items()}
        system = backend.create_file_system(
            client_request_token=secrets.token_hex(8),
            file_system_type=properties["FileSystemType"],
            storage_capacity=int(properties.get("StorageCapacity") or 0),
            storage_type=properties.get("StorageType") or "SSD",
            subnet_ids=properties["SubnetIds"],
            security_group_ids=properties.get("SecurityGroupIds") or [],
            tags=properties.get("Tags"),
            kms_key_id=properties.get("KmsKeyId"),
            file_system_type_version=properties.get("FileSystemTypeVersion"),
            **configurations,
        )
        if backup_id:
            _copy(system.directory.with_name(Path(backup_id).name), system.directory)
        return cls(system, backend)

    @classmethod
    def update_from_cloudformation_json(
        cls,
        original_resource: Any,
        new_resource_name: str,
        cloudformation_json: Any,
        account_id: str,
        region_name: str,
    ) -> StackFileSystem:
        """Change what may be changed in place; files stay."""
        del new_resource_name, account_id, region_name
        properties = cloudformation_json["Properties"]
        resource: StackFileSystem = original_resource
        resource.system.storage_capacity = int(properties.get("StorageCapacity") or 0)
        resource.system.lustre_configuration = properties.get("LustreConfiguration")
        resource.backend.file_system_changed(resource.system)
        return resource

    def delete(self, account_id: str, region_name: str) -> None:
        """Delete the file system with what is in it."""
        del account_id, region_name
        if self.physical_resource_id in self.backend.file_systems:
            self.backend.delete_file_system(self.physical_resource_id, "", None, None, None)
