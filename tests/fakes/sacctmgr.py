"""A stateful sacctmgr with Slurm's refusals.

It holds the accounts and associations of one cluster.
"""

from __future__ import annotations


class RefusedError(Exception):
    """sacctmgr's exit code 1."""


class FakeSacctmgr:
    """A sacctmgr that understands only the calls of the toolkit."""

    def __init__(self) -> None:
        self.accounts = {"root": {"parent": "", "fairshare": "1", "organization": "root"}}
        self.members = {("root", "root"): {}}
        self.defaults = {"root": "root"}
        self.changes = []
        self.shown = []
        self.qos = {"normal": {"Description": "Normal QOS default"}}
        self.access = {}  # an account's QOS
        self.own_qos = {}  # those of a user who has a list of her own

    def run(self, argv, *, timeout=60):
        assert argv[0] == "sacctmgr"
        if argv[1:4] == ["-n", "-P", "show"]:
            self.shown.append(list(argv))
            return "".join(f"{'|'.join(row)}\n" for row in self._show(argv[4], argv[5:]))
        assert argv[1] == "-i"
        self.changes.append(list(argv))
        verb, entity, *arguments = argv[2:]
        words = [word for word in arguments if word not in {"where", "set"}]
        if entity == "qos":
            self._change_qos(verb, words)
            return ""
        if any(word.startswith(("qos+=", "qos-=")) for word in words):
            self._change_access(entity, words)
            return ""
        settings = dict(word.split("=", 1) for word in words if "=" in word)
        assert settings.pop("cluster") == "demo"
        name = settings.pop("name", None) or words[0]
        getattr(self, f"_{verb}_{entity}")(name, settings)
        return ""

    def _show(self, entity, conditions):
        if entity == "account":
            return [
                (name, properties["organization"]) for name, properties in self.accounts.items()
            ]
        if entity == "user":
            return list(self.defaults.items())
        if entity == "qos":
            (columns,) = (word.removeprefix("format=").split(",") for word in conditions)
            return [
                tuple({"Name": name, **settings}.get(column, "") for column in columns)
                for name, settings in self.qos.items()
            ]
        if conditions[-1].endswith(",QOS"):
            return self._access_rows()
        assert "cluster=demo" in conditions
        if any("maxsubmitjobs" in condition for condition in conditions):
            limits = [("", account, "", "", "") for account in self.accounts]
            for (account, user), limit in self.members.items():
                shown = limit.get("maxsubmitjobs", "").replace("-1", "")
                limits.append((user, account, "", shown, limit.get("comment", "")))
            return limits
        rows = [(n, "", "", a["parent"], a["fairshare"]) for n, a in self.accounts.items()]
        return rows + [(account, user, "", "", "1") for account, user in self.members]

    def _access_rows(self):
        rows = [(name, "", "", self._qos_of(name)) for name in self.accounts]
        return rows + [
            (account, user, "", ",".join(sorted(self.own_qos[account, user])))
            if (account, user) in self.own_qos
            else (account, user, "", self._qos_of(account))
            for account, user in self.members
        ]

    def _qos_of(self, account):
        return ",".join(sorted(self.access.get(account, {"normal"})))

    def _change_qos(self, verb, words):
        settings = dict(word.split("=", 1) for word in words)
        name = settings.pop("name")
        if verb == "delete":
            del self.qos[name]
            return
        if (verb == "add") == (name in self.qos):
            raise RefusedError(f"{verb} qos {name}")
        known = self.qos.setdefault(name, {})
        short = {"GrpSubmitJobs": "GrpSubmit", "MaxSubmitJobsPU": "MaxSubmitPU"}
        short |= {"MaxSubmitJobsPA": "MaxSubmitPA", "description": "Description"}
        for key, value in settings.items():
            column = short.get(key, key)
            if "=" in value:
                pairs = (part.split("=") for part in value.split(","))
                known[column] = ",".join(f"{k}={v}" for k, v in pairs if v != "-1")
            elif column == "GraceTime":  # sacctmgr reads seconds, and prints a time
                known[column] = f"{int(value) // 3600:02}:{int(value) // 60 % 60:02}:00"
            else:
                known[column] = "" if value == "-1" else value
        for other in filter(None, known.get("Preempt", "").split(",")):
            if other not in self.qos:
                raise RefusedError(f"qos {name} preempts {other}")

    def _change_access(self, entity, words):
        settings = dict(word.split("=", 1) for word in words)
        assert settings.pop("cluster") == "demo"
        (sign,) = (key for key in settings if key in {"qos+", "qos-"})
        names = set(settings[sign].split(","))
        if not names <= self.qos.keys():
            raise RefusedError(f"no such qos: {names}")
        if entity == "user":
            known = self.own_qos[settings["account"], settings["name"]]
        else:
            known = self.access.setdefault(settings["name"], {"normal"})
        if sign == "qos+":
            known |= names
        else:
            known -= names

    def _add_account(self, name, settings):
        if name in self.accounts or settings["parent"] not in self.accounts:
            raise RefusedError(f"add account {name}")
        self.accounts[name] = settings

    def _modify_account(self, name, settings):
        if name not in self.accounts or settings.get("parent", "root") not in self.accounts:
            raise RefusedError(f"modify account {name}")
        self.accounts[name] |= settings

    def _delete_account(self, name, _sets):
        children = [account for account in self.accounts.values() if account["parent"] == name]
        if name not in self.accounts or children or name in {acc for acc, _ in self.members}:
            raise RefusedError(f"delete account {name}")
        del self.accounts[name]

    def _add_user(self, name, settings):
        key = (settings["account"], name)
        if settings["account"] not in self.accounts or key in self.members:
            raise RefusedError(f"add user {key}")
        self.members[key] = {}
        self.defaults.setdefault(name, settings["account"])

    def _modify_user(self, name, settings):
        if "maxsubmitjobs" in settings:
            self.members[settings.pop("account"), name] |= settings
            return
        if (settings["defaultaccount"], name) not in self.members:
            raise RefusedError(f"default account of {name}")
        self.defaults[name] = settings["defaultaccount"]

    def _delete_user(self, name, settings):
        other_associations = [
            key for key in self.members if key[1] == name and key[0] != settings["account"]
        ]
        if self.defaults.get(name) == settings["account"] and other_associations:
            raise RefusedError(f"{name} still has {settings['account']} as default")
        del self.members[settings["account"], name]
        if not other_associations:
            self.defaults.pop(name, None)
