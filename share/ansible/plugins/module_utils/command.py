"""Runs linerate and reads its documents."""
import contextlib
import json
import os

SCOPE = {
    "program": {"type": "str", "default": "linerate"},
    "interfaces": {"type": "list", "elements": "str", "default": []},
    "port": {"type": "int"},
    "pid": {"type": "int"},
}

CHANGES = {
    "state": {"choices": ["applied", "confirmed", "planned", "undone"], "default": "applied"},
    "state_dir": {"type": "path"},
    "tune": {"type": "int"},
    "until_confirmed": {"type": "str"},
    "keep_if_better": {"type": "bool", "default": False},
    "measure": {"choices": ["once", "alternate", "never"]},
}


def options(**named):
    """Words of a command line for the options that have a value."""
    words = []
    for name, value in named.items():
        for item in value if isinstance(value, list) else [value]:
            if item is True:
                words.append("--" + name.replace("_", "-"))
            elif item is not None and item is not False:
                words += ["--" + name.replace("_", "-"), str(item)]
    return words


def part(rate, duration, start_at, index, count):
    """The arguments of one of `count` generators: every `count`-th request of the schedule of one."""
    share = (round(rate * duration) - index + count - 1) // count
    return {"rate": rate / count, "duration": share * count / rate, "start_at": start_at + index / rate}


class Linerate:
    """The program on this host."""

    def __init__(self, module):
        self.module = module
        self.params = module.params

    def scope(self):
        return options(interface=self.params["interfaces"], port=self.params["port"], pid=self.params["pid"])

    def run(self, *words):
        try:
            status, out, err = self.module.run_command([self.params["program"], *words], handle_exceptions=False)
        except OSError as error:
            self.module.fail_json(msg="cannot run %s: %s" % (self.params["program"], error.strerror))
        return status, out, err.strip()

    def fail(self, err, **more):
        lines = err.splitlines() or ["linerate ended with status %s and printed no reason" % more.get("rc")]
        self.module.fail_json(msg=lines[-1], stderr=err, **more)

    def document(self, schema, *words):
        """The document that a command prints, its exit status and messages; fails if it prints none."""
        status, out, err = self.run(*words, "--json", "-")
        try:
            document = json.loads(out)
        except ValueError:
            return self.fail(err, rc=status)
        if document.get("schema") != schema:
            self.fail(
                "linerate %s of this host writes %s; this collection reads %s"
                % (document.get("version"), document.get("schema"), schema)
            )
        return document, status, err

    def save(self, document, path):
        """Writes a document whole, or not at all. Only this user may read it, as what root read."""
        # In /tmp other users can make files and links too: a new name, and never an existing file.
        part = "%s.%s.part" % (path, os.urandom(8).hex())
        try:
            with open(part, "x", encoding="utf-8", opener=lambda path, flags: os.open(path, flags, 0o600)) as file:
                json.dump(document, file)
            os.replace(part, path)
        except OSError as error:
            with contextlib.suppress(OSError):
                os.unlink(part)
            self.module.fail_json(msg="cannot write %s: %s" % (path, error.strerror))


class Changes(Linerate):
    """Changes of one kind: plan, apply, confirm and undo."""

    def __init__(self, module, apply_schema, kind):
        super().__init__(module)
        self.apply_schema = apply_schema
        self.kind = kind
        self.place = options(state_dir=self.params["state_dir"])

    def main(self):
        self.module.exit_json(**getattr(self, self.params["state"])())

    def planned(self):
        plan, more = self.plan()
        changes = plan["exclusions"] + plan["changes"]
        return {
            "changed": False,
            "plan": plan,
            "changes": [change["setting_name"] for change in named(changes)],
            # `skipped` would make Ansible show the task as skipped.
            "skipped_findings": [{"finding": one["finding"], "why": one["why"]} for one in plan["skipped"]],
            "diff": difference(named(changes)),
            **more,
        }

    def applied(self):
        result = self.planned()
        result["changed"] = bool(result["changes"])
        if self.module.check_mode or not result["changed"]:
            return result
        words = options(
            until_confirmed=self.params["until_confirmed"], keep_if_better=self.params["keep_if_better"]
        )
        if self.params["measure"]:
            words.append("--measure=" + self.params["measure"])
        document, status, err = self.document(
            self.apply_schema, self.kind, "apply", "--yes", *self.apply_words(), *words, *self.place
        )
        report = document["result"]
        done = {key: report.get(key) for key in ("tune", "measurement", "undone", "broke_off", "findings")}
        # The second plan, made by apply, may have nothing to change.
        result.update(done, diff=difference(report["changes"]), changed=report["tune"] is not None)
        if report["undone"]:
            self.fail("the changes are undone: " + undo_reason(report), **result)
        if status == 2:
            # Nothing stays half applied.
            left = report["tune"] is not None and self.run("tune", "undo", str(report["tune"]), *self.place)[0]
            done = "stopped; undo left settings, see linerate tune status" if left else "stopped and undone"
            self.fail("%s: %s" % (done, report["broke_off"] or err), **result)
        return result

    def confirmed(self):
        tunes = self.own()
        # For example, the confirmation came too late, and the guard has undone the tune.
        if self.params["tune"] and not tunes:
            self.fail("tune %d is not in effect, so it cannot be confirmed" % self.params["tune"])
        waiting = [tune for tune in tunes if "confirmed" in (tune["until"] or {})]
        if waiting and not self.module.check_mode:
            status, _, err = self.run("tune", "confirm", str(waiting[-1]["tune"]), *self.place)
            if status:
                self.fail(err)
        return {"changed": bool(waiting)}

    def undone(self):
        tunes = self.own()
        if not self.module.check_mode:
            for tune in reversed(tunes):
                status, _, err = self.run("tune", "undo", str(tune["tune"]), *self.place)
                if status:
                    self.fail(err or "some settings were left: see linerate tune status")
        before = [{**setting, "to": setting["from"], "from": setting["to"]} for tune in tunes for setting in tune["settings"]]
        return {"changed": bool(tunes), "diff": difference(before)}

    def own(self):
        """The tunes or boosts in effect, the earliest first: all of this kind, or the chosen one."""
        tunes = self.document("linerate.tune-status/2", "tune", "status", *self.place)[0]["result"]["tunes"]
        return [tune for tune in tunes if self.is_own(tune) and self.params["tune"] in (None, tune["tune"])]


def named(changes):
    return [{**change, "setting_name": " ".join(leaves(change["setting"]))} for change in changes]


def leaves(setting):
    """The words of a setting: `queue_cpus eth0 receive 3`, or a sysctl's name."""
    if not isinstance(setting, dict):
        return [str(setting)]
    words = [word for key in sorted(setting) for word in leaves(setting[key])]
    return words if len(setting) != 1 or "sysctl" in setting else [*setting, *words]


def difference(changes):
    """Changes as Ansible's diff, one line per setting."""
    def lines(key):
        return "".join("%s: %s\n" % (change.get("name") or change["setting_name"], change[key]) for change in changes)
    return {"before": lines("from"), "after": lines("to")}


def undo_reason(report):
    measured = report["measurement"] or {}
    figures = [figure["key"] for figure in measured.get("figures", []) if figure.get("verdict") == "worse"]
    if measured.get("verdict") == "worse":
        return "the service is worse: " + (", ".join(figures) or "no datagram arrives")
    return measured.get("unknown") or "an undo began"
