#!/usr/bin/env python3
"""Plays the collection against twelve hosts: network namespaces with an sshd each. Requires root, ansible-core, openssh.

fleet.py PROGRAM [TEST...]
"""
import argparse
import importlib.util
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time

from hosts import BAD, FAST, HERE, HOSTS, Fleet, run, wait_for


def unchanged(recap, output):
    assert recap and all(row["changed"] == 0 for row in recap.values()), output


def small_program(fleet, path):
    """What is installed: the program has some hundred megabytes."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text('#!/bin/sh\nexec %s "$@"\n' % fleet.program)
    path.chmod(0o755)
    return path


def test_install(fleet):
    # A program, and a Debian package on one whose root is an overlay.
    file, tree, package = (fleet.directory / name for name in ("install", "package", "linerate.deb"))
    small_program(fleet, file)
    small_program(fleet, tree / "usr/bin/linerate")
    (tree / "DEBIAN").mkdir()
    control = "Package: linerate\nVersion: 0.1.0-1\nArchitecture: all\nMaintainer: Nobody <root@localhost>\nDescription: a test\n"
    (tree / "DEBIAN/control").write_text(control)
    run("dpkg-deb", "--build", "--root-owner-group", tree, package)
    playbook = fleet.directory / "install.yml"
    playbook.write_text("- {hosts: all, gather_facts: false, roles: [linerate.linerate.install]}\n")
    root = fleet.overlay_root("host1")
    for source, hosts, changes, path, more in (
        (file, HOSTS[:3], 1, "/run/linerate", {}),
        (package, HOSTS[:1], 2, root / "usr/bin/linerate", {"host1": {"ansible_port": 2222}}),
    ):
        inventory, checksum = fleet.inventory(hosts, **more), run("sha256sum", source).stdout.split()[0]
        variables = {"install_file": str(source), "install_sha256": checksum, "install_path": str(path)}

        def there():
            return [host for host in hosts if run(*fleet.inside(host), "ls", path, check=False).returncode == 0]

        for wrong, arguments in (({"install_sha256": checksum[::-1]}, []), ({}, ["--check"])):
            recap, output, status = fleet.play(str(playbook), inventory, {**variables, **wrong}, *arguments)
            assert bool(status) == bool(wrong) and ("has the SHA-256" in output) == bool(wrong) and not there(), output
        recap, output, status = fleet.play(str(playbook), inventory, variables)
        assert status == 0 and there() == hosts and all(row["changed"] == changes for row in recap.values()), output
        recap, output, status = fleet.play(str(playbook), inventory, variables)
        assert status == 0, output
        unchanged(recap, output)


def test_diagnose(fleet):
    """Also hosts that cannot be diagnosed: each is named, and the others go on."""
    fleet.serve("host1")
    inventory = fleet.inventory(HOSTS, **fleet.bad_hosts())
    before = fleet.settings()
    results = fleet.directory / "linerate-fleet"
    # A result of last week, of a host that is unreachable now.
    stale = results / "host2/doctor.json"
    stale.parent.mkdir(parents=True)
    stale.write_text("{}")
    with fleet.full_disk("host7"):
        for _ in range(2):
            recap, output, _ = fleet.play("diagnose", inventory, {})
            unchanged(recap, output)
    assert not stale.exists() and (results / "host1/doctor.json").exists(), output
    left = run(*fleet.inside("host1"), "ls", "/tmp/linerate-doctor.json", check=False)
    assert left.returncode, left
    report = json.loads(run(fleet.program, "report", "--fleet", results, "--json", "-").stdout)["result"]
    hosts = {host["name"]: host for host in report["hosts"]}
    problems = {name: " ".join(host["problems"]) for name, host in hosts.items() if host["problems"]}
    # Without root there is a result, with less in it.
    assert set(problems) == set(BAD) - {"host6"} and hosts["host6"]["unknown"] > hosts["host8"]["unknown"], problems
    for host, why in problems.items():
        assert BAD[host] in why, problems
    assert all(host["findings"] for host in hosts.values() if not host["problems"]), report
    assert "host12" in (results / "fleet.html").read_text()
    assert fleet.settings() == before


# Failures by severity, and the fact.
SEVERITIES = """
- hosts: all
  gather_facts: false
  module_defaults: {linerate.linerate.linerate_doctor: {program: '{{ linerate_program }}'}}
  tasks:
    - linerate.linerate.linerate_doctor: {fail_on: note}
      register: strict
      ignore_errors: true
    - linerate.linerate.linerate_doctor:
      register: counted
      failed_when: counted.severities.note > 99
    - ansible.builtin.assert:
        that: [strict is failed, counted is not failed, counted.severities.note > 0, linerate_findings == counted.findings]
"""


def test_severities(fleet):
    playbook = fleet.directory / "severities.yml"
    playbook.write_text(SEVERITIES)
    _, output, status = fleet.play(str(playbook), fleet.inventory(HOSTS[:1]), {})
    assert status == 0, output


def test_bad(fleet):
    """Hosts that cannot be tuned are named and left as they are, and the others are tuned."""
    hosts = HOSTS[:8]
    for host in hosts:
        fleet.serve(host)
    before = fleet.settings()
    # All hosts of the second batch are bad.
    variables = {"linerate_port": 7777, "linerate_keep_if_better": False, "linerate_serial": 3}
    with fleet.full_disk("host7"):
        recap, output, status = fleet.play("rolling_tune", fleet.inventory(hosts, **fleet.bad_hosts()), variables)
    named = re.search(r"Every host is tuned.*", output, re.S)
    assert status and named, output
    for host, why in BAD.items():
        assert re.search("%s: .*%s" % (host, why), named.group()), output
    assert [host for host in hosts if host not in demux(fleet)] == ["host1", "host8"], output
    after = fleet.settings()
    assert all(after[host] == before[host] for host in BAD), output


def demux(fleet):
    """The hosts whose value of the setting that the plans change is still the original."""
    read = {host: run(*fleet.namespace(host), "cat", "/proc/sys/net/ipv4/udp_early_demux").stdout.strip() for host in HOSTS}
    return [host for host in HOSTS if read[host] == "1"]


def test_rolling(fleet):
    tuned = HOSTS[:4]
    for host in tuned:
        fleet.serve(host, "1k", "--any", slow=host == "host3")
    # The third host, whose server lets requests wait, gets a receive buffer that loses most of them.
    words = ["boost", "plan", "--port", "7777", "--receive-buffer", "64000000", "--no-steer", "--no-pin", "--no-datagrams"]
    boost = json.loads(run(*fleet.namespace("host3"), fleet.program, *words, "--json", "-").stdout)["result"]["plan"]
    worse = json.loads(run(*fleet.namespace("host3"), fleet.program, "tune", "plan", "--port", "7777", "--json", "-").stdout)
    buffers = [change for change in boost["changes"] if change["setting"].get("socket", {}).get("knob") == "receive_buffer"]
    worse["changes"] += [{**change, "to": "4096"} for change in buffers]
    assert buffers, boost
    plan = fleet.directory / "worse.json"
    plan.write_text(json.dumps(worse))
    before = fleet.settings()
    inventory = fleet.inventory(tuned, host3={"linerate_plan": str(plan)})
    variables = {"linerate_port": 7777, "linerate_health_check": str(fleet.directory / "health.yml")}
    (fleet.directory / "health.yml").write_text(
        "- name: Ask the server\n  ansible.builtin.command: %s load {{ ansible_host }}:7777 --payload 8 --rate 100 --duration 1 --max-loss 10%% --quiet\n"
        "  changed_when: false\n" % fleet.program
    )
    recap, output, status = fleet.play("rolling_tune", inventory, variables, "--check", "--diff")
    assert status == 0 and "+net.ipv4.udp_early_demux: 0" in output, output
    assert fleet.settings() == before, "check mode changed a host"
    recap, output, status = fleet.play("rolling_tune", inventory, variables)
    print(output if "-v" in sys.argv else "", end="")
    assert status and "are undone: the service is worse" in output, output
    assert demux(fleet) == HOSTS[2:], (demux(fleet), output)
    assert recap["host1"]["changed"] == recap["host2"]["changed"] == 2 and "host4" not in recap, output
    # Without the bad plan the others follow, and a second run changes nothing.
    inventory = fleet.inventory(tuned)
    recap, output, status = fleet.play("rolling_tune", inventory, variables)
    assert status == 0 and demux(fleet) == HOSTS[4:], (demux(fleet), output)
    recap, output, status = fleet.play("rolling_tune", inventory, variables)
    assert status == 0, output
    unchanged(recap, output)
    # A failed health check undoes that host.
    undo = fleet.directory / "undo.yml"
    task = "linerate.linerate.linerate_tune: {program: '{{ linerate_program }}', state: undone}"
    undo.write_text("- hosts: all\n  gather_facts: false\n  tasks: [{name: Undo, %s}]\n" % task)
    recap, output, status = fleet.play(str(undo), inventory, {})
    assert status == 0 and fleet.settings() == before, output
    recap, output, status = fleet.play(str(undo), inventory, {})
    unchanged(recap, output)
    (fleet.directory / "health.yml").write_text("- {name: Fail, ansible.builtin.fail: {msg: no answer}}\n")
    recap, output, status = fleet.play("rolling_tune", inventory, {**variables, "linerate_keep_if_better": False})
    assert status and "no answer" in output and fleet.settings() == before, output


def test_boost(fleet):
    fleet.serve("host1", "5k")
    inventory, plays = fleet.inventory(["host1"]), {}
    for state in ("applied", "undone"):
        plays[state] = fleet.directory / (state + ".yml")
        task = "linerate.linerate.linerate_boost: {program: '{{ linerate_program }}', port: 7777, state: %s, receive_buffer: 4000000, steer: false, pin: false}"
        task %= state
        plays[state].write_text("- hosts: all\n  gather_facts: false\n  tasks: [{name: Boost, %s}]\n" % task)
    recap, output, status = fleet.play(str(plays["applied"]), inventory, {}, "--check", "--diff")
    assert status == 0 and recap["host1"]["changed"] == 1 and "receive_buffer" in output, output
    for state in plays:
        for changed in (1, 0):
            recap, output, status = fleet.play(str(plays[state]), inventory, {}, "--diff")
            assert status == 0 and recap["host1"]["changed"] == changed, output


def test_killed(fleet):
    """Ansible is killed while tunes wait for their confirmation: every host undoes its own."""
    for host in HOSTS:
        fleet.serve(host)
    before = fleet.settings()
    (fleet.directory / "health.yml").write_text("- {name: Wait, ansible.builtin.pause: {seconds: 300}}\n")
    # Seconds until hosts undo their changes: the first in which this machine tunes all of them.
    for patience in (20, 120):
        variables = {
            "linerate_port": 7777,
            "linerate_keep_if_better": False,
            "linerate_serial": len(HOSTS),
            "linerate_until_confirmed": "%ds" % patience,
            "linerate_health_check": str(fleet.directory / "health.yml"),
        }
        words = fleet.play_words("rolling_tune", fleet.inventory(HOSTS), variables)
        with open(fleet.directory / "log", "w", encoding="utf-8") as log:
            ansible = subprocess.Popen(words, env=fleet.environment(), stdout=log, stderr=log, start_new_session=True)
        end = time.monotonic() + patience + 40
        while demux(fleet) and time.monotonic() < end:
            time.sleep(0.1)
        waiting = not demux(fleet)
        os.killpg(ansible.pid, signal.SIGKILL)
        ansible.wait()
        wait_for("all hosts undone", lambda: fleet.settings() == before, patience + 40)
        if waiting:
            return
    raise AssertionError("not all hosts were tuned at the same time")


def command_module():
    spec = importlib.util.spec_from_file_location("command", HERE / "plugins/module_utils/command.py")
    command = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(command)
    return command


class FakeModule:
    """Answers commands of linerate by their first words."""

    def __init__(self, answers, **params):
        self.answers, self.commands, self.check_mode = answers, [], False
        absent = dict.fromkeys(("state_dir", "tune", "until_confirmed", "keep_if_better", "measure"))
        self.params = {**absent, "program": "linerate", **params}

    def run_command(self, words, **_):
        self.commands.append(" ".join(words[1:]))
        status, out = next(answer for start, answer in self.answers.items() if self.commands[-1].startswith(start))
        return status, json.dumps(out), ""

    def fail_json(self, **result):
        raise SystemExit(result["msg"])


def test_changes(fleet):
    """Half-applied tunes are undone, and only own tunes that are in effect are confirmed."""
    command = command_module()

    class Tunes(command.Changes):
        def __init__(self, answers, **params):
            super().__init__(FakeModule(answers, **params), "apply", "tune")

        def planned(self):
            return {"changes": ["a"]}

        def apply_words(self):
            return []

        def is_own(self, tune):
            return tune["goal"] != "boost"

    report = {"tune": 3, "undone": None, "broke_off": "eth0 is gone", "changes": []}
    for undo, said in ((0, "stopped and undone: eth0"), (1, "stopped; undo left settings"), (2, "stopped; undo left settings")):
        answers = {"tune apply": (2, {"schema": "apply", "result": report}), "tune undo 3": (undo, {})}
        try:
            raise AssertionError(Tunes(answers).applied())
        except SystemExit as failure:
            assert str(failure).startswith(said) and "eth0 is gone" in str(failure), failure
    goals = {1: "tune", 2: "tune", 3: "boost"}
    tunes = [{"tune": number, "goal": goal, "until": {"confirmed": 1}} for number, goal in goals.items()]
    answers = {"tune status": (0, {"schema": "linerate.tune-status/2", "result": {"tunes": tunes}}), "tune confirm": (0, {})}
    for chosen, confirmed in ((None, ["tune confirm 2"]), (1, ["tune confirm 1"]), (0, [])):
        kept = Tunes(answers, tune=chosen)
        assert kept.confirmed() == {"changed": bool(confirmed)}, chosen
        assert kept.module.commands[1:] == confirmed, kept.module.commands
    # A boost, and a tune that its guard has undone.
    for chosen in (3, 4):
        try:
            raise AssertionError(Tunes(answers, tune=chosen).confirmed())
        except SystemExit as failure:
            assert str(failure).startswith("tune %d is not in effect" % chosen), failure


def test_schedule(fleet):
    """Together 1, 4 or 20 generators keep the same schedule."""
    load = command_module()
    for rate, duration in ((2001, 2), (100000, 0.5), (7, 3)):
        for count in (1, 4, 20):
            times = []
            for index in range(count):
                part = load.part(rate, duration, 1000, index, count)
                requests = round(part["rate"] * part["duration"])
                times += [part["start_at"] + number / part["rate"] for number in range(requests)]
            whole = [1000 + number / rate for number in range(round(rate * duration))]
            assert len(times) == len(whole), (rate, count, len(times))
            assert all(abs(one - other) < 1e-6 for one, other in zip(sorted(times), whole)), (rate, count)


# Seconds until generators start: the first that this machine is fast enough for.
LEADS = (6, 15, 40)


def test_capacity(fleet):
    # One server, four generators.
    served = fleet.directory / "served.json"
    service = fleet.address("host1") + ":7777"
    # Rates that four generators cannot share equally.
    rates = [2001, 4003]
    variables = {
        "load_targets": [service],
        "linerate_rates": rates,
        "load_duration": 2,
        "linerate_max_loss": 0.5,
        "load_arguments": ["--backend", "socket"],
    }
    inventory = fleet.inventory(HOSTS[1:5])
    recap, output, status = fleet.play("capacity", inventory, variables, "--check")
    assert status == 0, output
    for lead in LEADS:
        server = fleet.spawn("host1", fleet.program, "serve", "echo", "--bind", service, "--json", served)
        wait_for("the server", lambda: run(*fleet.namespace("host1"), "ss", "-Hlun", "sport", "=", "7777").stdout)
        recap, output, status = fleet.play("capacity", inventory, {**variables, "load_lead": lead})
        server.send_signal(signal.SIGINT)
        server.wait()
        if "is past" not in output:
            break
    assert status == 0, output
    unchanged(recap, output)
    merged = [json.loads((fleet.directory / ("linerate-capacity/%d.json" % rate)).read_text())["result"] for rate in rates]
    count = json.loads(served.read_text())["result"]
    print("sent by four generators: %s; received by the server: %d" % ([one["sent"] for one in merged], count["total"]["received"]))
    sent = sum(one["sent"] for one in merged)
    assert sent == count["total"]["received"], (sent, count)
    if not any(one["generator_bound"] for one in merged):
        assert capacity(output) == rates[-1], output
    for rate, one in zip(rates, merged):
        starts = sorted(run["started_realtime_ns"] for run in one["merged"])
        apart = [(later - earlier) * rate / 1e9 for earlier, later in zip(starts, starts[1:])]
        assert one["sent"] == rate * 2 or one["generator_bound"], one
        assert len(apart) == 3 and all(abs(step - 1) < 0.01 for step in apart), one
        assert one["overlap_ratio"] > 0.9 and all(run["clock"]["uncertain_seconds"] for run in one["merged"]), one
    # Bad generators are named, and excluded if that is the policy.
    fleet.serve("host1")
    variables.update(linerate_rates=[1000], linerate_results=str(fleet.directory / "excluded"))
    inventory = fleet.inventory(["host2", FAST], **fleet.bad_hosts())
    recap, output, status = fleet.play("capacity", inventory, variables)
    assert status and re.search("without host12: the clock is .*; host2: .*10.77.0.200", output), output
    hosts = [host for host in HOSTS[1:] if host != "host6"]
    expected = {**BAD, "host8": "is past", "host9": "Killed", FAST: "the clock is"}
    del expected["host6"]
    for lead in LEADS:
        with fleet.full_disk("host7"):
            inventory = fleet.inventory(hosts, **fleet.bad_hosts(hosts))
            excluding = {**variables, "load_missing": "exclude", "load_lead": lead}
            recap, output, status = fleet.play("capacity", inventory, excluding)
        reasons = dict(re.findall(r"(host\d+): (.*?)(?:; |\")", re.search("(?:excluded:|without).*", output).group()))
        if not {"host10", "host11"} & reasons.keys():
            break
    assert status == 0, output
    assert reasons.keys() == expected.keys(), (reasons, output)
    assert all(expected[host] in why for host, why in reasons.items()), (reasons, output)
    one = json.loads((fleet.directory / "excluded/1000.json").read_text())["result"]
    assert [run["name"].rsplit("/", 1)[1] for run in one["merged"]] == ["host10.json", "host11.json"], one["merged"]
    # Two of ten offered their part of the rate.
    assert 0 < capacity(output) <= 1000 * 2 / len(hosts), output


def capacity(output):
    """The capacity that the play printed."""
    return int(re.search(r'"capacity_per_second": "?(\d+)', output).group(1))


def test_prometheus(fleet):
    """A Prometheus finds twelve exporters by the shipped configuration, and evaluates the shipped rules."""
    for host in HOSTS:
        fleet.spawn(host, fleet.program, "export", "--listen", fleet.address(host) + ":9853", "--allow-remote")
    shipped, place = HERE.parent / "prometheus", fleet.directory / "prometheus"
    (place / "targets").mkdir(parents=True)
    shutil.copy2(shipped / "linerate.rules.yml", place)
    (place / "prometheus.yml").write_text("global: {evaluation_interval: 1s}\n" + (shipped / "prometheus.yml").read_text().replace("15s", "1s"))
    targets = [fleet.address(host) + ":9853" for host in HOSTS]
    (place / "targets/fleet.json").write_text(json.dumps([{"targets": targets, "labels": {"site": "lab"}}]))
    words = ["prometheus", "--config.file=prometheus.yml", "--storage.tsdb.path=data", "--web.listen-address=127.0.0.1:9090"]
    fleet.spawn("controller", *words, cwd=place)

    def ask(path):
        script = "import sys, urllib.request; print(urllib.request.urlopen('http://127.0.0.1:9090/api/v1/' + sys.argv[1]).read().decode())"
        done = run(*fleet.namespace("controller"), "python3", "-c", script, path, check=False)
        return json.loads(done.stdout)["data"] if done.returncode == 0 else None

    def count(query):
        data = ask("query?query=count(%s)" % query)
        return int(data["result"][0]["value"][1]) if data and data["result"] else 0

    for query in ("up==1", "linerate:host_lost_packets:rate5m", "linerate:host_softirq_headroom:ratio"):
        wait_for("%s of twelve exporters" % query, lambda: count(query) == len(HOSTS))
    rules = [rule for group in ask("rules")["groups"] for rule in group["rules"]]
    assert len(rules) > 20 and all(rule["health"] == "ok" for rule in rules), rules
    print("up: %d; rules that evaluate: %d" % (count("up==1"), len(rules)))


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("program")
    parser.add_argument("tests", nargs="*")
    arguments = parser.parse_args()
    # The hosts are removed, however the run ends.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    tests = {name[5:]: test for name, test in globals().items() if name.startswith("test_")}
    with Fleet(arguments.program) as fleet:
        for name in arguments.tests or tests:
            began = time.monotonic()
            tests[name](fleet)
            fleet.clear()
            print("%s: ok (%.0f s)" % (name, time.monotonic() - began), flush=True)


if __name__ == "__main__":
    sys.exit(main())
