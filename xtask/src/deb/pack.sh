# Packs the release build and the files of share/ and docs/ into a Debian package, in the workspace's root.
# shellcheck shell=sh
set -eu
release=$1 package=$2
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
root=$work/root

put() { mode=$1 directory=$2; shift 2; install -D -m "$mode" -t "$root/$directory" "$@"; }
put_output() { install -D -m 644 /dev/stdin "$root/$1"; }

put 755 usr/bin "$release/linerate"
strip "$root/usr/bin/linerate"
"$release/linerate" completions bash | put_output usr/share/bash-completion/completions/linerate
"$release/linerate" completions zsh | put_output usr/share/zsh/vendor-completions/_linerate
"$release/linerate" completions fish | put_output usr/share/fish/vendor_completions.d/linerate.fish
"$release/linerate" man "$root/usr/share/man/man1" >/dev/null
gzip --best --no-name --recursive "$root/usr/share/man/man1"
put 644 usr/lib/systemd/system share/systemd/*.service
put 644 usr/share/linerate/grafana share/grafana/*.json
put 644 usr/share/linerate/prometheus share/prometheus/prometheus.yml share/prometheus/linerate.rules.yml
put 644 usr/share/linerate/kubernetes share/kubernetes/*.yaml
put 644 usr/share/linerate/schemas share/schemas/*.json
put 644 usr/share/doc/linerate README.md CHANGELOG.md share/debian/copyright
put 644 usr/share/doc/linerate/docs docs/*.md
gzip --best --no-name --stdout share/debian/changelog | put_output usr/share/doc/linerate/changelog.Debian.gz

put 755 DEBIAN share/debian/scripts/*
ln -s "$PWD/share/debian" "$work/debian"
cd "$work"
dpkg-shlibdeps -O "$root/usr/bin/linerate" >substvars
dpkg-gencontrol -plinerate -P"$root" -Tsubstvars -ffiles
(cd "$root" && find usr -type f -exec md5sum {} + | sort -k 2 >DEBIAN/md5sums)
# The same sources make the same package, whoever builds it and with any umask.
chmod -R u=rwX,go=rX "$root"
mkdir -p "${package%/*}"
dpkg-deb --build --root-owner-group "$root" "$package"
