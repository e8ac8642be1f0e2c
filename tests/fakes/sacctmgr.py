"""A stateful sacctmgr: accounts and associations of one cluster, with Slurm's refusals."""

from __future__ import annotations


class RefusedError(Exception):
    """sacctmgr's exit code 1."""


class FakeSacctmgr:
    """Understands the calls that toolkit.accounts makes, and nothing else."""

    def __init__(self) -> None:
        self.accounts = {"root": {"parent": "", "fairshare": "1", "organization": "root"}}
        self.members = {("root", "root"): {}}
        self.defaults = {"root": "root"}
        self.changes = []

    def run(self, argv, *, timeout=60):
        assert argv[0] == "sacctmgr"
        if argv[1:4] == ["-n", "-P", "show"]:
            return "".join(f"{'|'.join(row)}\n" for row in self._show(argv[4], argv[5:]))
        assert argv[1] == "-i"
        self.changes.append(list(argv))
        verb, entity, *rest = argv[2:]
        words = [word for word in rest if word not in {"where", "set"}]
        sets = dict(word.split("=", 1) for word in words if "=" in word)
        assert sets.pop("cluster") == "demo"
        name = sets.pop("name", None) or words[0]
        getattr(self, f"_{verb}_{entity}")(name, sets)
        return ""

    def _show(self, entity, rest):
        if entity == "account":
            return [(name, one["organization"]) for name, one in self.accounts.items()]
        if entity == "user":
            return list(self.defaults.items())
        assert "cluster=demo" in rest
        rows = [(n, "", "", a["parent"], a["fairshare"]) for n, a in self.accounts.items()]
        return rows + [(account, user, "", "", "1") for account, user in self.members]

    def _add_account(self, name, sets):
        if name in self.accounts or sets["parent"] not in self.accounts:
            raise RefusedError(f"add account {name}")
        self.accounts[name] = sets

    def _modify_account(self, name, sets):
        if name not in self.accounts or sets.get("parent", "root") not in self.accounts:
            raise RefusedError(f"modify account {name}")
        self.accounts[name] |= sets

    def _delete_account(self, name, _sets):
        children = [one for one in self.accounts.values() if one["parent"] == name]
        if name not in self.accounts or children or name in {acc for acc, _ in self.members}:
            raise RefusedError(f"delete account {name}")
        del self.accounts[name]

    def _add_user(self, name, sets):
        key = (sets["account"], name)
        if sets["account"] not in self.accounts or key in self.members:
            raise RefusedError(f"add user {key}")
        self.members[key] = {}
        self.defaults.setdefault(name, sets["account"])

    def _modify_user(self, name, sets):
        if (sets["defaultaccount"], name) not in self.members:
            raise RefusedError(f"default account of {name}")
        self.defaults[name] = sets["defaultaccount"]

    def _delete_user(self, name, sets):
        others = [key for key in self.members if key[1] == name and key[0] != sets["account"]]
        if self.defaults.get(name) == sets["account"] and others:
            raise RefusedError(f"{name} still has {sets['account']} as default")
        del self.members[sets["account"], name]
        if not others:
            self.defaults.pop(name, None)
