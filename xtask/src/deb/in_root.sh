# What `cargo xtask deb --test` does in a new Debian: the package is installed, used, upgraded, removed and purged.
# shellcheck shell=sh
set -eu
version=$1

say() { printf '\n-- %s\n' "$*"; }
fail() { printf 'cargo xtask deb --test: %s\n' "$*" >&2; exit 1; }
# All files by name, kind and mode, those of /etc and /usr by content too. What apt and dpkg write of their own doings is theirs.
files() {
    find / -xdev \( -path /proc -o -path /sys -o -path /dev -o -path /tmp -o -path /trial -o -path /var/log \
        -o -path /var/cache -o -path /var/lib/apt -o -path '/var/lib/dpkg/*-old' -o -path /var/lib/dpkg/triggers \
        -o -path '/var/lib/dpkg/lock*' -o -path /etc/ld.so.cache \) -prune -o -printf '%y %m %U:%G %p\n'
    find /etc /usr -xdev -type f ! -path /etc/ld.so.cache -exec md5sum {} +
}
install() { apt-get install -qq --no-install-recommends --allow-downgrades "$1" >/tmp/apt.log 2>&1 || { cat /tmp/apt.log; fail "$1 does not install"; }; }

say "as docs/install.md has it, without a package"
cd /trial
PATH=/trial/cargo/bin:$PATH sh -eu elsewhere.sh
/trial/cargo/bin/linerate --version
[ -s /usr/local/share/bash-completion/completions/linerate ] || fail "no completions"
[ -s /usr/local/share/man/man1/linerate-tune-apply.1 ] || fail "no manual"

# As on a host that systemd runs: tune persist writes units.
mkdir -p /run/systemd/system
files | sort >/tmp/before

say "install, as docs/install.md has it"
# apt asks where it would bring more than what was named.
printf 'APT::Get::Assume-Yes "true";\nAPT::Install-Recommends "false";\n' >/tmp/apt.conf
APT_CONFIG=/tmp/apt.conf sh -eu package.sh
cd /
dpkg-query -W -f '${Package} ${Version} needs ${Depends}\n' linerate
linerate --version
linerate --version | grep -Eq "^linerate ${version%-*}( \([0-9a-f]{7,} [0-9-]{10}\))?\$" || fail "an odd version"

say "what is there"
for file in /usr/bin/linerate /usr/share/bash-completion/completions/linerate /usr/share/zsh/vendor-completions/_linerate \
    /usr/share/fish/vendor_completions.d/linerate.fish /usr/share/doc/linerate/copyright \
    /usr/share/doc/linerate/changelog.Debian.gz /usr/share/man/man1/linerate.1.gz \
    /usr/share/man/man1/linerate-tune-apply.1.gz /usr/lib/systemd/system/linerate-export.service; do
    [ -s "$file" ] || fail "no $file"
done
for page in $(linerate man /tmp); do
    zcat "/usr/share/man/man1/$page.gz" | cmp - "/tmp/$page" || fail "$page is another than the program has"
    rm "/tmp/$page"
done
[ -z "$(ls /etc/systemd/system/multi-user.target.wants 2>/dev/null | grep linerate)" ] || fail "a service is enabled unasked"

say "use"
linerate lab --quick --steps reuseport --quiet
linerate doctor --fail-on high --json /tmp/doctor.json || [ $? = 1 ] || fail "doctor"

say "tune, and have it last"
linerate tune apply --plan /trial/plan.json --yes || [ $? = 1 ] || fail "tune apply"
linerate tune persist --yes
[ -s /etc/sysctl.d/90-linerate.conf ] || fail "nothing was made to last"

say "upgrade"
install /trial/later.deb
linerate --version
linerate tune status
[ -s /etc/sysctl.d/90-linerate.conf ] || fail "an upgrade took what is to last"

say "remove"
apt-get remove -qq linerate >/tmp/removed 2>&1
grep -q "'linerate tune undo'" /tmp/removed || fail "removing did not warn of the tune in effect"
[ ! -e /usr/bin/linerate ] || fail "the program is still there"
[ -s /etc/sysctl.d/90-linerate.conf ] || fail "removing took what only a purge takes"

say "install again, undo, purge"
install /trial/linerate.deb
linerate tune undo
linerate tune persist --yes || true
apt-get purge -qq linerate >/tmp/purged 2>&1
! grep "'linerate tune undo'" /tmp/purged || fail "purging warned of tunes, and none is in effect"
files | sort >/tmp/after
if ! diff /tmp/before /tmp/after | grep '^[<>]' >/tmp/difference; then
    say "purged, and nothing is left"
    exit 0
fi
cat /tmp/difference
fail "a purge leaves or takes the above"
