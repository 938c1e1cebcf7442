#!/bin/busybox sh
# shellcheck shell=dash
# The first program in the machine: puts its root together and goes there.
export PATH=/bin
/bin/busybox --install -s /bin
mount -t proc proc /proc
mount -t sysfs sysfs /sys
mount -t devtmpfs devtmpfs /dev
while read -r module; do
  insmod "/lib/$module" || echo "insmod $module failed" >/dev/console
done </modules.list
die() { echo "initrd: $*" >/dev/console; sleep 1; reboot -f; }
folder() { mount -t 9p -o "trans=virtio,version=9p2000.L,msize=512000,$3" "$1" "$2"; }
folder root /lower ro,cache=loose || die "cannot mount the root"
mount -t tmpfs -o mode=755,size=90% tmpfs /rw || die "no tmpfs"
mkdir /rw/upper /rw/work /rw/root
mount -t overlay -o "lowerdir=/lower,upperdir=/rw/upper,workdir=/rw/work" root /rw/root || die "no overlay"
new=/rw/root
for name in proc sys dev run; do [ -d $new/$name ] || mkdir -p $new/$name; done
mount --move /proc $new/proc
mount --move /sys $new/sys
mount --move /dev $new/dev
mount -t tmpfs -o mode=755 tmpfs $new/run
mkdir -p $new/run/vm $new/run/lock
folder control $new/run/vm cache=mmap || die "cannot mount what is to be done"
release=$(uname -r)
mkdir -p "$new/lib/modules/$release"
folder modules "$new/lib/modules/$release" ro,cache=loose || die "cannot mount the modules"
exec switch_root $new /bin/bash /run/vm/guest.sh
die "switch_root failed"
