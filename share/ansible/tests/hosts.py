"""Hosts for the tests: network namespaces with an sshd each."""
import contextlib
import json
import os
import pathlib
import re
import shutil
import signal
import subprocess
import tempfile
import time

HERE = pathlib.Path(__file__).resolve().parent.parent
HOSTS = ["host%d" % number for number in range(1, 13)]
# The host whose clock is a minute ahead.
FAST = "host12"
# Hosts that cannot be used, and words of the reason that has to be reported.
BAD = {
    "host2": "10.77.0.200",
    "host3": "cannot run",
    "host4": "/99",
    "host5": "No such file",
    "host6": "requires root",
    "host7": "No space left",
}
# Programs of hosts.
SCRIPTS = {
    # Another version.
    "host4": r"""%(program)s "$@" | sed -E 's|"(linerate\.[a-z-]+)/[0-9]+"|"\1/99"|'""",
    # Without root.
    "host6": 'exec setpriv --reuid 65534 --clear-groups %(program)s "$@"',
    # A generator that is late, and one that dies while it sends.
    "host8": """for word; do [ "$last" != --start-at ] || sleep $((${word%%.*} - $(date +%%s) + 2)); last=$word; done
exec %(program)s "$@" """,
    "host9": """%(program)s "$@" &
for word; do [ "$last" != --start-at ] || sleep $((${word%%.*} - $(date +%%s) + 1)); last=$word; done
kill -9 $!; wait $!""",
}
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
        # The sshd of each host.
        self.daemons = {}

    def __enter__(self):
        try:
            self.start()
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_):
        self.end(self.children)
        self.end(self.daemons.values())
        for name in ["controller", *HOSTS]:
            run("ip", "netns", "delete", self.prefix + name, check=False)
        shutil.rmtree(self.directory)

    @staticmethod
    def end(children):
        for child in children:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(child.pid, signal.SIGKILL)
            child.wait()

    def clear(self):
        """Ends what a test started, and undoes its changes."""
        self.end(self.children)
        self.children.clear()
        for host in HOSTS:
            run(*self.inside(host), self.program, "tune", "undo", check=False)

    def inside(self, host):
        """Within the network and the file system of a host."""
        return ["nsenter", "--target", self.daemons[host].pid, "--net", "--mount"]

    def overlay_root(self, host):
        """An sshd on port 2222, in a root of its own that shows the files of this machine."""
        place = pathlib.Path("/run/overlay")
        steps = "mkdir {0}; mount -t tmpfs none {0}; cd {0}; mkdir up work root; "
        steps += "mount -t overlay -o lowerdir=/,upperdir=up,workdir=work none root; "
        steps += "for d in proc sys dev; do mount --rbind /$d root/$d; done; "
        steps += "for d in run tmp; do mount -t tmpfs none root/$d; done; mkdir -m 755 root/run/sshd; "
        steps += "exec chroot root /usr/sbin/sshd -D -p 2222 -f {1}"
        config = self.directory / ("sshd-2222-" + host)
        config.write_text((self.directory / ("sshd-" + host)).read_text().replace(":22\n", ":2222\n"))
        self.spawn(host, *self.inside(host), "sh", "-ec", steps.format(place, config))
        wait_for("sshd", lambda: run(*self.namespace(host), "ss", "-Hltn", "sport", "=", "2222").stdout)
        return place / "root"

    @contextlib.contextmanager
    def full_disk(self, host):
        places = ["/tmp", "/var/lib"]
        for place in places:
            run(*self.inside(host), "mount", "-t", "tmpfs", "-o", "size=4k", "none", place)
            run(*self.inside(host), "sh", "-c", "cat /dev/zero >%s/full || true" % place)
        yield
        for place in places:
            run(*self.inside(host), "umount", place)

    def bad_hosts(self, names=BAD):
        """Variables of these hosts, which cannot be used."""
        (self.directory / "host3").write_bytes(b"\x7fELF" + bytes(60))
        for name, script in SCRIPTS.items():
            (self.directory / name).write_text("#!/bin/sh\n" + script % {"program": self.program} + "\n")
        variables = {name: {"linerate_program": str(self.directory / name)} for name in ("host3", *SCRIPTS)}
        for name in variables:
            (self.directory / name).chmod(0o755)
        variables.update(host2={"ansible_host": "10.77.0.200"}, host5={"linerate_program": "linerate-is-missing"})
        return {name: variables.get(name, {}) for name in names}

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
            own = "for d in /run /tmp /var/lib; do mount -t tmpfs none $d; done; mkdir -m 755 /run/sshd; hostname %s; " % host
            if host == FAST:
                own += "mount --bind %s /usr/bin/date; " % (self.directory / "date")
            own += "exec /usr/sbin/sshd -D -f %s" % config
            self.daemons[host] = self.spawn(host, "unshare", "--mount", "--uts", "sh", "-c", own)
        self.children.clear()
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
