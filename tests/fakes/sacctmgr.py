"""A stateful sacctmgr with Slurm's refusals.

It holds the accounts and associations of one cluster.
"""

from __future__ import annotations

COLUMNS = {"maxsubmit": "maxsubmitjobs", "grpsubmit": "grpsubmitjobs", "fairshare": "share"}
ACCOUNT = ("parent", "fairshare", "organization", "description")


class RefusedError(Exception):
    """sacctmgr's exit code 1."""


def _printed(key, value, before):
    """Return a setting as slurmdbd prints it afterwards."""
    if "tres" in key:  # Each TRES is kept by itself.
        tres = dict(part.split("=") for part in before.split(",") if part)
        tres |= dict(part.split("=") for part in value.split(","))
        tres = {name: number for name, number in tres.items() if number != "-1"}
        if (memory := tres.get("mem", "")).isdecimal() and int(memory) % 1024 == 0:
            tres["mem"] = f"{int(memory) // 1024}G"
        return ",".join(f"{name}={number}" for name, number in tres.items())
    if key == "comment":
        assert not set(value) & set("\"'\\`"), "sacctmgr cuts quotes off"
        return value.lower()
    if value == "-1":
        return "1" if key == "share" else ""
    return value.removeprefix("0-") if key == "maxwall" else value  # no day of none


class FakeSacctmgr:
    """A sacctmgr that understands only the calls of the toolkit."""

    def __init__(self) -> None:
        self.accounts = {"root": {"parent": "", "fairshare": "1", "organization": "root"}}
        self.members = {("root", "root"): {}}
        self.defaults = {"root": "root"}
        self.changes = []
        self.shown = []
        self.account_limits = {}
        self.elsewhere = {}  # organizations of accounts without an association on this cluster
        self.partitions = set()  # associations of one partition: account, user, partition
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
        if "organization" not in settings or verb == "add":  # an account is of all clusters
            assert settings.pop("cluster") == "demo"
        name = settings.pop("name", None) or words[0]
        getattr(self, f"_{verb}_{entity}")(name, settings)
        return ""

    def _show(self, entity, conditions):
        (columns,) = (c.removeprefix("format=").split(",") for c in conditions if "format=" in c)
        if entity == "account":
            return [
                (name, properties["organization"]) for name, properties in self.accounts.items()
            ] + list(self.elsewhere.items())
        if entity == "user":
            return list(self.defaults.items())
        if entity == "qos":
            return [
                tuple({"Name": name, **settings}.get(column, "") for column in columns)
                for name, settings in self.qos.items()
            ]
        assert "cluster=demo" in conditions
        rows = [self._association(name, "") for name in self.accounts]
        for account, user in self.members:
            row = self._association(account, user)
            if "woplimits" not in conditions:
                row = self._inherited(account) | {key: text for key, text in row.items() if text}
            rows.append(row)
        rows += [
            {"account": account, "user": user, "partition": partition, "share": "1"}
            for account, user, partition in self.partitions
        ]
        return [
            tuple(row.get(COLUMNS.get(column.lower(), column.lower()), "") for column in columns)
            for row in rows
        ]

    def _association(self, account, user):
        qos = self.own_qos.get((account, user))
        row = {
            "account": account,
            "user": user,
            "qos": self._qos_of(account) if qos is None else ",".join(sorted(qos)),
        }
        if user:
            known = {"share": "1"} | self.members[account, user]
        else:
            own = self.accounts[account]
            known = {"parentname": own["parent"], "share": own["fairshare"]}
            known |= self.account_limits.get(account, {})
        return row | {key: "" if text == "-1" else text for key, text in known.items()}

    def _inherited(self, account):
        """Return the Max limits that a user has of the accounts above."""
        found = {}
        while account:
            limits = self.account_limits.get(account, {})
            found = {key: text for key, text in limits.items() if key[:3] == "max"} | found
            account = self.accounts[account]["parent"]
        return found

    def _limit(self, known, settings):
        """Keep limits as slurmdbd does."""
        for name, value in settings.items():
            key = COLUMNS.get(name.lower(), name.lower())
            known[key] = _printed(key, value, known.get(key, ""))

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
        settings["organization"] = self.elsewhere.pop(name, settings["organization"])
        self.accounts[name] = settings

    def _modify_account(self, name, settings):
        if name in self.elsewhere:
            self.elsewhere[name] = settings["organization"]
            return
        if name not in self.accounts or settings.get("parent", "root") not in self.accounts:
            raise RefusedError(f"modify account {name}")
        own = {key: settings.pop(key) for key in ACCOUNT if key in settings}
        self.accounts[name] |= own
        self._limit(self.account_limits.setdefault(name, {}), settings)

    def _delete_account(self, name, _sets):
        children = [account for account in self.accounts.values() if account["parent"] == name]
        if name not in self.accounts or children or name in {acc for acc, _ in self.members}:
            raise RefusedError(f"delete account {name}")
        del self.accounts[name]
        self.account_limits.pop(name, None)

    def _add_user(self, name, settings):
        key = (settings["account"], name)
        if settings["account"] not in self.accounts or key in self.members:
            raise RefusedError(f"add user {key}")
        self.members[key] = {}
        if "comment" in settings:
            self.members[key]["comment"] = settings["comment"]
        self.defaults.setdefault(name, settings["account"])

    def _modify_user(self, name, settings):
        if "account" in settings:
            account = settings.pop("account")
            assert not {entry for entry in self.partitions if entry[:2] == (account, name)}
            self._limit(self.members[account, name], settings)
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
