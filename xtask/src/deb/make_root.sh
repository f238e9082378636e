# Makes the installation $1 of the archive $2 in memory, and runs the trial $3 in it, with the package
# version $4.
# shellcheck shell=sh
set -eu
mount --make-rprivate /
mount -t tmpfs -o mode=755 linerate-deb "$1"
tar -C "$1" -xf "$2"
mount -t proc proc "$1/proc"
mount -t sysfs sysfs "$1/sys"
mount --rbind /dev "$1/dev"
mkdir -p "$1/trial"
mount --bind "$3" "$1/trial"
exec chroot "$1" /usr/bin/env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin DEBIAN_FRONTEND=noninteractive /bin/sh /trial/in_root.sh "$4"
