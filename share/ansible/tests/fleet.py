#!/usr/bin/env python3
"""Plays the collection against twelve hosts: network namespaces with an sshd each. Requires root, ansible-core, openssh.

fleet.py PROGRAM [TEST...]
"""
import argparse
import contextlib
import json
import os
import pathlib
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time

HERE = pathlib.Path(__file__).resolve().parent.parent
HOSTS = ["host%d" % number for number in range(1, 13)]
# The host whose clock is a minute ahead.
FAST = "host12"
# What a tune may change.
SETTINGS = "grep -r . /proc/sys/net/ipv4/conf /proc/sys/net/core /sys/class/net/eth0/queues 2>/dev/null; ethtool -k eth0"

# A server that reads its requests 50 times per second.
SLOW_ECHO = """
import socket, sys, time
server = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
server.bind((sys.argv[1], 7777))
while True:
    time.sleep(0.02)
    try:
        while True:
            server.sendto(*server.recvfrom(2048, socket.MSG_DONTWAIT))
    except BlockingIOError:
        pass
"""


def run(*words, check=True, **more):
    done = subprocess.run([str(word) for word in words], capture_output=True, text=True, **more)
    if check and done.returncode:
        raise AssertionError("%s: %s\n%s%s" % (" ".join(map(str, words)), done.returncode, done.stdout, done.stderr))
    return done


def wait_for(what, test, seconds=60):
    end = time.monotonic() + seconds
    while not test():
        assert time.monotonic() < end, what
        time.sleep(0.1)


class Fleet:
    def __init__(self, program):
        self.directory = pathlib.Path(tempfile.mkdtemp(prefix="linerate-fleet", dir="/var/tmp"))
        self.directory.chmod(0o755)
        self.program = self.directory / "linerate"
        shutil.copy2(program, self.program)
        self.prefix = "lrf%d" % os.getpid()
        self.children = []

    def __enter__(self):
        try:
            self.start()
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_):
        for child in reversed(self.children):
            with contextlib.suppress(ProcessLookupError):
                os.killpg(child.pid, signal.SIGKILL)
            child.wait()
        for name in ["controller", *HOSTS]:
            run("ip", "netns", "delete", self.prefix + name, check=False)
        shutil.rmtree(self.directory)

    def namespace(self, name):
        return ["ip", "netns", "exec", self.prefix + name]

    def spawn(self, host, *words, **more):
        more = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL, **more}
        words = self.namespace(host) + [str(word) for word in words]
        self.children.append(subprocess.Popen(words, start_new_session=True, stdin=subprocess.DEVNULL, **more))
        return self.children[-1]

    def start(self):
        for key in ("host_key", "key"):
            run("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", self.directory / key)
        shutil.copy2("/usr/bin/date", self.directory / "true-date")
        fast = self.directory / "date"
        fast.write_text("#!/bin/sh\nexec %s -d '60 seconds' \"$@\"\n" % (self.directory / "true-date"))
        fast.chmod(0o755)
        run("ip", "netns", "add", self.prefix + "controller")
        inside = self.namespace("controller")
        run(*inside, "sh", "-c", "ip link set lo up; ip link add br0 type bridge; ip address add 10.77.0.1/24 dev br0; ip link set br0 up")
        for number, host in enumerate(HOSTS, 1):
            run("ip", "netns", "add", self.prefix + host)
            run(*inside, "ip", "link", "add", "v%d" % number, "type", "veth", "peer", "name", "eth0", "netns", self.prefix + host)
            run(*inside, "ip", "link", "set", "v%d" % number, "master", "br0", "up")
            address = self.address(host)
            run(*self.namespace(host), "sh", "-c", "ip link set lo up; ip address add %s/24 dev eth0; ip link set eth0 up" % address)
            config = self.directory / ("sshd-" + host)
            config.write_text(
                "ListenAddress %s:22\nHostKey %s\nAuthorizedKeysFile %s\nPidFile none\nUsePAM no\nStrictModes no\n"
                "PermitRootLogin yes\nMaxStartups 100\nSubsystem sftp internal-sftp\n"
                % (address, self.directory / "host_key", self.directory / "key.pub")
            )
            # Directories that linerate and Ansible write to are the host's own.
            own = "for d in /run /tmp /var/lib; do mount -t tmpfs none $d; done; mkdir -m 755 /run/sshd /run/full; "
            own += "mount -t tmpfs -o size=4k none /run/full; hostname %s; " % host
            if host == FAST:
                own += "mount --bind %s /usr/bin/date; " % (self.directory / "date")
            own += "exec /usr/sbin/sshd -D -f %s" % config
            self.spawn(host, "unshare", "--mount", "--uts", "sh", "-c", own)
        for host in HOSTS:
            listens = [*self.namespace(host), "ss", "-Hltn", "sport", "=", "22"]
            wait_for("sshd of " + host, lambda: run(*listens).stdout)
        run("ansible-galaxy", "collection", "build", HERE, "--output-path", self.directory)
        archive = next(self.directory.glob("linerate-linerate-*.tar.gz"))
        run("ansible-galaxy", "collection", "install", archive, "-p", self.directory / "collections")

    @staticmethod
    def address(host):
        return "10.77.0.%d" % (10 + HOSTS.index(host))

    def inventory(self, hosts, **variables):
        """`variables` are per host."""
        rows = {host: {"ansible_host": self.address(host), **variables.get(host, {})} for host in hosts}
        everywhere = {
            "ansible_user": "root",
            "ansible_ssh_private_key_file": str(self.directory / "key"),
            "ansible_ssh_common_args": "-F /dev/null -o StrictHostKeyChecking=no -o UserKnownHostsFile=/dev/null",
            "ansible_python_interpreter": "/usr/bin/python3",
            "ansible_ssh_timeout": 5,
            "linerate_program": str(self.program),
        }
        path = self.directory / "inventory.json"
        path.write_text(json.dumps({"all": {"hosts": rows, "vars": everywhere}}))
        return path

    def play_words(self, playbook, inventory, variables, *arguments):
        variables = {"linerate_controller_program": str(self.program), **variables}
        words = [*self.namespace("controller"), "ansible-playbook", "-i", str(inventory), "--forks", "20", *arguments]
        return [*words, "-e", json.dumps(variables), playbook if ".yml" in playbook else "linerate.linerate." + playbook]

    def environment(self):
        return {
            **os.environ,
            "ANSIBLE_COLLECTIONS_PATH": str(self.directory / "collections"),
            "ANSIBLE_HOME": str(self.directory / "ansible"),
            "ANSIBLE_LOCALHOST_WARNING": "false",
            "ANSIBLE_SSH_CONTROL_PATH_DIR": str(self.directory / "cp"),
            "ANSIBLE_NOCOLOR": "1",
            "PWD": str(self.directory),
            "LC_ALL": "C.UTF-8",
        }

    def play(self, playbook, inventory, variables, *arguments):
        """The recap by host, the output and the exit status of a playbook."""
        words = self.play_words(playbook, inventory, variables, *arguments)
        done = run(*words, check=False, env=self.environment(), cwd=self.directory)
        recap = {}
        for row in re.findall(r"^(\S+)\s+: (ok=.*)$", done.stdout, re.M):
            recap[row[0]] = {key: int(value) for key, value in re.findall(r"(\w+)=(\d+)", row[1])}
        return recap, done.stdout + done.stderr, done.returncode

    def settings(self):
        return {host: run(*self.namespace(host), "sh", "-c", SETTINGS).stdout for host in HOSTS}

    def serve(self, host, rate=None, *options, slow=False):
        """An echo server, and requests to it."""
        service = self.address(host) + ":7777"
        if slow:
            self.spawn(host, "python3", "-c", SLOW_ECHO, self.address(host))
        else:
            self.spawn(host, self.program, "serve", "echo", "--bind", service, *options)
        listens = [*self.namespace(host), "ss", "-Hlun", "sport", "=", "7777"]
        wait_for("the server of " + host, lambda: run(*listens).stdout)
        if rate:
            self.spawn("controller", self.program, "load", service, "--rate", rate, "--duration", "600", "--backend", "socket")


def unchanged(recap, output):
    assert recap and all(row["changed"] == 0 for row in recap.values()), output


def test_install(fleet):
    inventory = fleet.inventory(HOSTS)
    playbook = fleet.directory / "install.yml"
    playbook.write_text("- {hosts: all, gather_facts: false, roles: [linerate.linerate.install]}\n")
    checksum = run("sha256sum", fleet.program).stdout.split()[0]
    variables = {"install_file": str(fleet.program), "install_sha256": checksum, "install_path": "/run/linerate"}
    wrong = {**variables, "install_sha256": checksum[::-1]}
    recap, output, status = fleet.play(str(playbook), inventory, wrong)
    assert status and all(row["changed"] == 0 for row in recap.values()), output
    recap, output, status = fleet.play(str(playbook), inventory, variables)
    assert status == 0 and all(row["changed"] == 1 for row in recap.values()), output
    recap, output, status = fleet.play(str(playbook), inventory, variables)
    assert status == 0, output
    unchanged(recap, output)


def test_diagnose(fleet):
    """Also hosts that cannot be diagnosed: each is named, and the others go on."""
    scripts = {
        "user": 'exec setpriv --reuid 65534 --clear-groups %s "$@"' % fleet.program,
        "version": "%s \"$@\" | sed 's|linerate.doctor/2|linerate.doctor/9|'" % fleet.program,
    }
    for name, script in scripts.items():
        (fleet.directory / name).write_text("#!/bin/sh\n" + script + "\n")
    (fleet.directory / "architecture").write_bytes(b"\x7fELF" + bytes(60))
    for name in (*scripts, "architecture"):
        (fleet.directory / name).chmod(0o755)
    bad = {
        "host2": {"ansible_host": "10.77.0.200"},
        "host3": {"linerate_program": str(fleet.directory / "architecture")},
        "host4": {"linerate_program": str(fleet.directory / "version")},
        "host5": {"linerate_program": "linerate-is-missing"},
    }
    fleet.serve("host1")
    inventory = fleet.inventory(HOSTS, **bad)
    before = fleet.settings()
    for _ in range(2):
        recap, output, _ = fleet.play("diagnose", inventory, {})
        unchanged({host: row for host, row in recap.items()}, output)
    results = fleet.directory / "linerate-fleet"
    report = json.loads(run(fleet.program, "report", "--fleet", results, "--json", "-").stdout)["result"]
    problems = {host["name"]: " ".join(host["problems"]) for host in report["hosts"] if host["problems"]}
    assert set(problems) == set(bad), problems
    for host, words in (("host2", "10.77.0.200"), ("host3", "format"), ("host4", "doctor/9"), ("host5", "No such file")):
        assert words in problems[host], problems
    assert all(host["findings"] for host in report["hosts"] if not host["problems"]), report
    assert "host12" in (results / "fleet.html").read_text()
    assert fleet.settings() == before
    # Without root and with a full disk a tune is refused before anything is changed.
    no_root = {"linerate_program": str(fleet.directory / "user")}
    for variables, words in ((no_root, "requires root"), ({"linerate_state_dir": "/run/full/state"}, "No space left")):
        inventory = fleet.inventory(["host1"], host1=variables)
        recap, output, status = fleet.play("rolling_tune", inventory, {"linerate_port": 7777, "linerate_keep_if_better": False})
        assert status and words in output, output
    assert fleet.settings() == before


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
    assert status and "worse and are undone" in output, output
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
    variables = {
        "linerate_port": 7777,
        "linerate_keep_if_better": False,
        "linerate_serial": len(HOSTS),
        "linerate_until_confirmed": "20s",
        "linerate_health_check": str(fleet.directory / "health.yml"),
    }
    words = fleet.play_words("rolling_tune", fleet.inventory(HOSTS), variables)
    with open(fleet.directory / "log", "w", encoding="utf-8") as log:
        ansible = subprocess.Popen(words, env=fleet.environment(), stdout=log, stderr=log, start_new_session=True)
    wait_for("all hosts tuned", lambda: not demux(fleet), 120)
    os.killpg(ansible.pid, signal.SIGKILL)
    ansible.wait()
    wait_for("all hosts undone", lambda: fleet.settings() == before)


def test_capacity(fleet):
    # One server, four generators. Its clock is that of host1; date of host6 is a minute ahead.
    served = fleet.directory / "served.json"
    service = fleet.address("host1") + ":7777"
    server = fleet.spawn("host1", fleet.program, "serve", "echo", "--bind", service, "--json", served)
    wait_for("the server", lambda: run(*fleet.namespace("host1"), "ss", "-Hlun", "sport", "=", "7777").stdout)
    generators = HOSTS[1:5]
    variables = {
        "load_targets": [service],
        "linerate_rates": [2000, 4000],
        "load_duration": 2,
        "linerate_max_loss": 0.5,
        "load_lead": 20,
        "load_max_late": 1,
        "load_arguments": ["--backend", "socket"],
    }
    inventory = fleet.inventory(generators)
    recap, output, status = fleet.play("capacity", inventory, variables, "--check")
    assert status == 0, output
    recap, output, status = fleet.play("capacity", inventory, variables)
    assert status == 0, output
    unchanged(recap, output)
    merged = [json.loads((fleet.directory / ("linerate-capacity/%d.json" % rate)).read_text())["result"] for rate in (2000, 4000)]
    assert [len(one["merged"]) for one in merged] == [4, 4]
    server.send_signal(signal.SIGINT)
    wait_for("the server's own count", served.exists)
    server.wait()
    count = json.loads(served.read_text())["result"]
    print("sent by four generators: %s; received by the server: %d" % ([one["sent"] for one in merged], count["total"]["received"]))
    sent = sum(one["sent"] for one in merged)
    assert sent == count["total"]["received"], (sent, count)
    assert all(one["sent"] == rate * 2 and one["overlap_ratio"] > 0.9 for rate, one in zip((2000, 4000), merged)), merged
    # A generator that is unreachable or whose clock is off is named, and excluded if that is the policy.
    fleet.serve("host1")
    inventory = fleet.inventory(["host2", "host3", "host4", FAST], host4={"ansible_host": "10.77.0.200"})
    variables.update(linerate_rates=[1000], linerate_results=str(fleet.directory / "excluded"))
    recap, output, status = fleet.play("capacity", inventory, variables)
    assert status and "without host12, host4" in output and "the clock is " in output, output
    recap, output, status = fleet.play("capacity", inventory, {**variables, "load_missing": "exclude"})
    assert status == 0 and "excluded: host12, host4" in output, output
    one = json.loads((fleet.directory / "excluded/1000.json").read_text())["result"]
    assert [run["name"].rsplit("/", 1)[1] for run in one["merged"]] == ["host2.json", "host3.json"], one["merged"]


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
    for name in arguments.tests or tests:
        began = time.monotonic()
        with Fleet(arguments.program) as fleet:
            tests[name](fleet)
        print("%s: ok (%.0f s)" % (name, time.monotonic() - began), flush=True)


if __name__ == "__main__":
    sys.exit(main())
