# Runs the image's program with only the capabilities $2. $1 is the unpacked image. With sys_chroot the
# program runs in the image's root, otherwise in the host's. The other arguments are the command.
# shellcheck shell=sh
set -eu
mount --make-rprivate /
root=$1 capabilities=$2
shift 2
case $capabilities in
*sys_chroot*)
    mkdir -p "$root/proc" "$root/sys"
    mount --rbind / "$root/host"
    mount --rbind /proc "$root/proc"
    mount --rbind /sys "$root/sys"
    set -- unshare --root="$root" /usr/bin/linerate "$@" ;;
*)
    mount -t sysfs sysfs /sys
    mount -t tmpfs none /var/lib
    ip link set lo up
    cp "$root/tmp/plan.json" /var/lib
    set -- "$root/usr/bin/linerate" "$@" ;;
esac
exec setpriv --inh-caps=-all --ambient-caps=-all --bounding-set="-all$capabilities" --no-new-privs "$@"
